"""Python runs this at its start, when `vbstudy record` or `vbstudy replay` has put the folder on PYTHONPATH.
It starts the hooks, steps aside, and runs the sitecustomize that would have been found without it."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib is slow to import)
sys.path[:] = [_here] + [_path for _path in sys.path if os.path.abspath(_path or ".") != _here]  # noqa: PTH100
if os.environ.get("VBSTUDY_REPLAY_MODE"):
    import vbstudy_replay

    vbstudy_replay.start()
sys.path.remove(_here)
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401  (the next one on the path)
except ModuleNotFoundError as _error:
    if _error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _own
