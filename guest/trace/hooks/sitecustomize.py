"""Second on the path of a traced program's Python processes, behind the hook that seeds it: has the
operations of PyTorch, TensorFlow and JAX sent to the tracer once these are imported, and runs the
sitecustomize behind it."""

import importlib
import json
import os
import sys

import vbstudy_imports
from vbstudy_hook import AFTER, wrap, write

UNCOMPILED = "torch.compile was off: these are the operations of the program uncompiled"
_SETTINGS = json.loads(os.environ["VBSTUDY_TRACE"])
_set_up = {name: AFTER[name] for name in ("torch", "tensorflow")}
_wires: list[object] = []  # the one of this process


def _log(framework, *arguments):  # type: ignore[no-untyped-def]
    if sys.version_info < (3, 11):  # noqa: UP036  (the program's own)
        version = sys.version.split()[0]
        write("untraced", what=f"the program runs in Python {version}, and trace needs 3.11 or later there")
        return
    # A module of the program's own may have this name.
    programs_own = _take_guest()  # type: ignore[no-untyped-call]
    sys.path.insert(0, _SETTINGS["library"])
    try:
        if not _wires:
            from guest.trace.wire import Wire

            _wires.append(Wire(_SETTINGS, write))
        importlib.import_module(f"guest.trace.program_{framework}").start(*_wires, *arguments)
    except Exception as error:  # noqa: BLE001  (of a version that nobody has tried)
        version = getattr(sys.modules[framework], "__version__", "of unknown version")
        write("untraced", what=f"{framework} {version} cannot be traced: {type(error).__name__}: {error}")
    finally:
        sys.path.remove(_SETTINGS["library"])
        _take_guest()  # type: ignore[no-untyped-call]
        sys.modules.update(programs_own)


def _take_guest():  # type: ignore[no-untyped-def]
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "guest"}


def _after_torch(torch):  # type: ignore[no-untyped-def]
    set_threads = torch.set_num_threads  # before calls of it are noticed as the program's own
    _set_up["torch"](torch)
    wrap(torch, "compile", lambda *_, **__: write("untraced", what=UNCOMPILED))
    _log("torch", set_threads, write)  # type: ignore[no-untyped-call]


def _after_tensorflow(tensorflow):  # type: ignore[no-untyped-def]
    _set_up["tensorflow"](tensorflow)
    _log("tensorflow")  # type: ignore[no-untyped-call]


def _after_jax(_):  # type: ignore[no-untyped-def]
    _log("jax")  # type: ignore[no-untyped-call]


AFTER.update({"torch": _after_torch, "tensorflow": _after_tensorflow, "jax": _after_jax})
vbstudy_imports.run_next(__file__)
