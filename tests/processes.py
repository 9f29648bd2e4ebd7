"""Processes that a test expects to run, or to have ended."""

import time
from pathlib import Path


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
