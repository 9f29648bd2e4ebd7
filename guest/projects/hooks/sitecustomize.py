"""Python imports this at its start, because its folder stands first in PYTHONPATH. Runs our hook, then
the sitecustomize that would have been imported without us."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)

import vbstudy_hook  # noqa: E402, F401  (its import does all)

_others = [p for p in sys.path if str(Path(p or ".").resolve()) != _HERE]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
