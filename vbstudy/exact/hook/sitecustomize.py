"""Python imports this at its start, because `vbstudy exact` put its folder first in PYTHONPATH. Switches
exact mode on when the import of torch has ended (TensorFlow: fixes its pools), then runs the sitecustomize
that would have been imported without it. Light: each Python process of a program runs it."""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (light)
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
_SETTINGS = json.loads(os.environ.get("VBSTUDY_EXACT", "{}"))
_FAILED = 3  # exit status, as of vbstudy where something is to be installed
_said: list[Callable[[], str]] = []  # what was switched on, for the line at the end


def _torch(torch):  # type: ignore[no-untyped-def]
    from vbstudy import exact

    compile_, compiled = torch.compile, []
    exact.enable(strict=_SETTINGS["strict"], level=_SETTINGS["level"])
    if not _SETTINGS["strict"]:

        @functools.wraps(compile_)
        def uncompiled(*args, **kwargs):  # type: ignore[no-untyped-def]
            compiled.append(True)
            return compile_(*args, **kwargs)  # exact mode has it run what it is given uncompiled

        torch.compile = uncompiled

    def line() -> str:
        found = exact.coverage()
        state = f"level {found.level}" if exact.active() else "switched off by the program"
        threads = f"torch on {torch.get_num_threads()} threads" + ", torch.compile off" * bool(compiled)
        known = {*found.machine, *found.threads}  # names; other types of theirs are at level threads
        below, unknown = (
            ", ".join(f"{name} ({n})" for name, n in sorted(found.below.items()) if (name in known) is there)
            or "none"
            for there in (True, False)
        )
        counts = f"{found.computed:,} by its arithmetic; below the level: {below}; unknown: {unknown}"
        return f"{state}, arithmetic version {found.arithmetic}, {threads}; operations: {counts}"

    _said.append(line)


def _tensorflow(_):  # type: ignore[no-untyped-def]
    from vbstudy import exact

    exact.enable_tensorflow()
    _said.append(lambda: "TensorFlow's pools are fixed")


_AFTER: dict[str, Callable[..., None]] = {"torch": _torch, "tensorflow": _tensorflow}


class _Finder(importlib.abc.MetaPathFinder):
    """Calls the function of `_AFTER` when the module has been executed."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name == "vbstudy":  # the program's Python may lack it
            return importlib.machinery.PathFinder.find_spec(name, [_LIBRARY])
        if name not in _AFTER:
            return None
        others = (each for each in sys.meta_path if each is not self)
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            del loader.exec_module
            execute(module)
            try:
                _AFTER[name](module)
            except Exception as error:  # noqa: BLE001  (the program must not run without exact mode)
                sys.stderr.write(f"vbstudy exact: {error}\n")
                sys.exit(_FAILED)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _SETTINGS:
    sys.meta_path.insert(0, _Finder())
    if _SETTINGS["verbose"]:
        import atexit

        # The first Python process of the program speaks, and not those that it starts.
        os.environ["VBSTUDY_EXACT"] = json.dumps(_SETTINGS | {"verbose": False})

        _first = os.getpid()

        def _report() -> None:
            if os.getpid() == _first and (_said or not {"torch", "tensorflow"} & sys.modules.keys()):
                said = "; ".join(line() for line in _said) or "this process imported no torch or TensorFlow"
                sys.stderr.write(f"vbstudy exact: {said}\n")

        atexit.register(_report)

# Only behind this folder: a hook before it, as of `vbstudy try`, has run and would run this one again.
_places = [os.path.abspath(p or ".") for p in sys.path]  # noqa: PTH100
_others = sys.path[_places.index(_HERE) + 1 :]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
