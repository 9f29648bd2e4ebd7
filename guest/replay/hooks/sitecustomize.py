"""Python runs this at its start, when `vbstudy record` or `vbstudy replay` has put the folder on PYTHONPATH.
It starts the hooks, and runs the sitecustomize that would have been found without it."""

import os

import vbstudy_imports

if os.environ.get("VBSTUDY_REPLAY_MODE"):
    import vbstudy_replay

    vbstudy_replay.start()
vbstudy_imports.run_next(__file__)
