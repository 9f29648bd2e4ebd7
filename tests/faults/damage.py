"""What mishaps do, on either side: a bit flips, the clock of a process is set."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path


def flip(path: Path, at: float = 0.5) -> None:
    """One bit, at that part of the file."""
    data = bytearray(path.read_bytes())
    data[min(int(at * len(data)), len(data) - 1)] ^= 1
    path.write_bytes(data)


def step_clock(seconds: float) -> None:
    """From now on this process is told another time of day; what counts seconds goes on as it did."""
    told = time.time

    class Stepped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    time.time = lambda: told() + seconds
    if "orchestrator.store.store" in sys.modules:
        sys.modules["orchestrator.store.store"].datetime = Stepped
