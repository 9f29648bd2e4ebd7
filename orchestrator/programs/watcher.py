"""A killed vbstudy cannot end the program that it runs: a process beside it does. It finds the program, and
what that started, by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = re.compile(r"VBSTUDY_OWNER_[0-9a-f]{32}=1")
END_WITHIN_S = 30.0
POLL_S = 0.02


@contextlib.contextmanager
def watched() -> Iterator[dict[str, str]]:
    """The mark, to be added to the environment of programs that must not outlive this process."""
    # The name is unique, not the value: a program that itself runs `vbstudy try` keeps both marks.
    name = f"VBSTUDY_OWNER_{os.urandom(16).hex()}"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{name}=1"],  # this module alone: it starts fast
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # neither Ctrl-C nor the end of a terminal ends it
    ) as watcher:
        try:
            yield {name: "1"}
        finally:
            watcher.kill()


def end_marked(mark: str) -> None:
    """Kills until two searches found nothing: a process that begins a program just then has no environment
    for a moment. Raises ValueError for a mark that others may have."""
    if not MARK.fullmatch(mark):
        raise ValueError(mark)
    deadline, seen = time.monotonic() + END_WITHIN_S, True
    while ((left := _marked(mark)) or seen) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        seen = bool(left)
        time.sleep(POLL_S)


def _marked(mark: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


if __name__ == "__main__":
    sys.stdin.buffer.read()  # until the other end is closed, which the system does for a killed process
    end_marked(sys.argv[1])
