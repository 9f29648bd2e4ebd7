"""The interpreter of guests in these tests: python guest_main.py FOLDER ARGUMENTS... runs what Python would
run with these arguments. What `guest.json` of the folder says happens to the agent, which computes a small
model in numpy in place of a network in PyTorch unless the folder holds `torch`: a run takes milliseconds. All
else of the agent is its own: the warm worker, the forks, the training loop, the files, the protocol."""

import json
import os
import runpy
import sys
from pathlib import Path

FOLDER, ARGUMENTS = Path(sys.argv[1]), sys.argv[2:]


def stand_in() -> None:
    """numpy in place of torch."""
    from guest import workloads
    from guest.machine import fingerprint, threads
    from guest.records.run import Framework
    from tests.faults import numpy_backend

    workloads._BACKENDS[Framework.TORCH] = numpy_backend.__name__
    threads.apply = lambda framework, threads: None
    threads.in_force = lambda framework: {"visible_cpus": len(os.sched_getaffinity(0))}
    fingerprint._torch = lambda: {"name": "torch", "version": "none"}


if __name__ == "__main__":
    if not ARGUMENTS or not ARGUMENTS[0].endswith(".pyz"):
        os.execv(sys.executable, [sys.executable, *ARGUMENTS])
    here = Path(__file__).parents[2]
    sys.path[0] = str(here)
    from tests.faults import arming, soaking  # before the agent's modules, of which the repository has others

    sys.path.insert(0, str(Path(ARGUMENTS[0]).absolute()))
    if not (FOLDER / "torch").exists():
        stand_in()
    if (FOLDER / "guest.json").exists():
        arming.arm(arming.decode(json.loads((FOLDER / "guest.json").read_text())), FOLDER)
    soaking.arm("guest", FOLDER)
    sys.argv = ARGUMENTS
    runpy.run_path(ARGUMENTS[0], run_name="__main__")
