"""Second on the path of a traced program's Python processes, behind the hook that seeds it: has PyTorch's
operations sent to the tracer once PyTorch is imported, and runs the sitecustomize behind it."""

import atexit
import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path

from vbstudy_hook import AFTER

_HERE = str(Path(__file__).resolve().parent)
_SETTINGS = json.loads(os.environ["VBSTUDY_TRACE"])
_OTHERS = ("tensorflow", "jax", "sklearn", "xgboost", "lightgbm")
_set_up = AFTER["torch"]


def _after_torch(torch):  # type: ignore[no-untyped-def]
    set_threads = torch.set_num_threads  # before calls of it are noticed as the program's own
    _set_up(torch)
    there = {name for name in sys.modules if name.partition(".")[0] == "guest"}
    sys.path.insert(0, _SETTINGS["library"])
    try:
        from guest.trace import program
    finally:
        sys.path.remove(_SETTINGS["library"])
    for name in [n for n in sys.modules if n.partition(".")[0] == "guest" and n not in there]:
        del sys.modules[name]  # a package of the program's own may have this name
    program.start(_SETTINGS, set_threads)


def _libraries():  # type: ignore[no-untyped-def]
    found = [name for name in _OTHERS if name in sys.modules]
    if found:
        with open(os.path.join(_SETTINGS["folder"], "libraries"), "a") as file:  # noqa: PTH118, PTH123
            file.write("\n".join(found) + "\n")


AFTER["torch"] = _after_torch
atexit.register(_libraries)
_places = [str(Path(p or ".").resolve()) for p in sys.path]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[_places.index(_HERE) + 1 :])
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
