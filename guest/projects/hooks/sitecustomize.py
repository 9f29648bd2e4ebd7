"""Python imports this at its start, because its folder stands first in PYTHONPATH. Runs our hook, then
the sitecustomize that would have been imported without us."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)

import vbstudy_hook  # noqa: E402, F401  (its import does all)

# Only behind this folder: a hook before it, as of `vbstudy exact`, has run and would run this one again.
_places = [str(Path(p or ".").resolve()) for p in sys.path]
_others = sys.path[_places.index(_HERE) + 1 :]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
