"""Processes that a test expects to run, or to have ended."""

import subprocess
import time
from pathlib import Path

PATIENCE_S = 600


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and waits to be reaped, which some inits never do, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def wait_until(condition, process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process is None or process.poll() is None, "it ended unasked"
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
