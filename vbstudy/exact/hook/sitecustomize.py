"""Python imports this at its start, because `vbstudy exact` put its folder first in PYTHONPATH. Switches
exact mode on when the import of torch has ended (TensorFlow: fixes its pools), then runs the sitecustomize
that would have been imported without it. Light: each Python process of a program runs it."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import TYPE_CHECKING

import vbstudy_imports

if TYPE_CHECKING:
    from collections.abc import Callable

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (light)
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
_SETTINGS = json.loads(os.environ.get("VBSTUDY_EXACT", "{}"))
_FAILED = 3  # exit status, as of vbstudy where something is to be installed
_said: list[Callable[[], str]] = []  # what was switched on, for the line at the end


def _torch(torch):  # type: ignore[no-untyped-def]
    from vbstudy import exact

    exact.enable(strict=_SETTINGS["strict"], level=_SETTINGS["level"])

    def line() -> str:
        found = exact.coverage()
        state = f"level {found.level}" if exact.active() else "switched off by the program"
        threads = f"torch on {torch.get_num_threads()} threads" + ", torch.compile off" * found.compiled
        known = {*found.machine, *found.threads}  # names; other types of theirs are at level threads
        below, unknown = (
            ", ".join(f"{name} ({n})" for name, n in sorted(found.below.items()) if (name in known) is there)
            or "none"
            for there in (True, False)
        )
        counts = f"{found.computed:,} by its arithmetic; below the level: {below}; unknown: {unknown}"
        return f"{state}, arithmetic version {found.arithmetic}, {threads}; operations: {counts}"

    _said.append(line)


def _tensorflow(tensorflow):  # type: ignore[no-untyped-def]
    import copy

    from tensorflow.python.client.session import BaseSession
    from tensorflow.python.eager import context

    from vbstudy import exact

    exact.enable_tensorflow()
    # The program's own numbers would give other bits: they are ignored here, where all their names lead.
    numbers = ("intra_op_parallelism_threads", "inter_op_parallelism_threads")
    for name in numbers:
        ignored = getattr(context.Context, name).setter(lambda self, number: None)  # noqa: ARG005
        setattr(context.Context, name, ignored)
    start = BaseSession.__init__

    @functools.wraps(start)
    def start_fixed(self, target="", graph=None, config=None):  # type: ignore[no-untyped-def]
        if hasattr(config, numbers[0]):  # otherwise the session takes the context's, or refuses it
            config = copy.deepcopy(config)
            for name in numbers:
                setattr(config, name, getattr(context.context(), name))
            for pool in config.session_inter_op_thread_pool:
                pool.num_threads = config.inter_op_parallelism_threads
        start(self, target, graph, config)

    BaseSession.__init__ = start_fixed
    pools = tensorflow.config.threading

    def line() -> str:
        within, between = pools.get_intra_op_parallelism_threads(), pools.get_inter_op_parallelism_threads()
        return f"TensorFlow on {within} threads within an operation, {between} between operations"

    _said.append(line)


_AFTER: dict[str, Callable[..., None]] = {"torch": _torch, "tensorflow": _tensorflow}


def _imported(name, module):  # type: ignore[no-untyped-def]
    try:
        _AFTER[name](module)
    except Exception as error:  # noqa: BLE001  (the program must not run without exact mode)
        old = sys.version_info < (3, 11)  # the program's Python may lack what vbstudy imports
        needed = f"exact mode needs Python 3.11 or newer, and this is {sys.version.split()[0]}"
        sys.stderr.write(f"vbstudy exact: {needed if old else error}\n")
        sys.exit(_FAILED)


if _SETTINGS:
    sys.meta_path[:0] = [vbstudy_imports.Library(_LIBRARY), vbstudy_imports.AfterImport(_AFTER, _imported)]
    if _SETTINGS["verbose"]:
        import atexit

        # The first Python process of the program speaks, and not those that it starts.
        os.environ["VBSTUDY_EXACT"] = json.dumps({**_SETTINGS, "verbose": False})

        _first = os.getpid()

        def _report() -> None:
            if os.getpid() == _first and (_said or not {"torch", "tensorflow"} & sys.modules.keys()):
                said = "; ".join(line() for line in _said) or "this process imported no torch or TensorFlow"
                sys.stderr.write(f"vbstudy exact: {said}\n")

        atexit.register(_report)

    for _name in _AFTER:
        if _name in sys.modules:  # a .pth file imported it
            try:
                _imported(_name, sys.modules[_name])  # type: ignore[no-untyped-call]
            except SystemExit:  # which Python would take for an error of its own, this early
                os._exit(_FAILED)

vbstudy_imports.run_next(__file__)
