"""What happened on the cores of a virtual machine as the machine below it sees them: from inside, the work of
others there is not to be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from guest.machine import load


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """`cpu_s` are the seconds that the processes of the virtual machine have used, by their numbers."""

    at_s: float
    cores: load.Look
    cpu_s: dict[int, float]


def look(cores: Collection[int], processes: Collection[int]) -> HostLook:
    return HostLook(
        at_s=time.monotonic(),
        cores=load.look(cores),
        cpu_s={process: _cpu_s(process) for process in processes},
    )


def between(before: HostLook | None, after: HostLook | None) -> dict[str, float]:
    """`wall_s` between the looks, `load_by_others` where the same processes were the machine in both, and the
    conditions that `guest.machine.load.Look` has. Nothing where there was no look."""
    if before is None or after is None:
        return {}
    wall_s = after.at_s - before.at_s
    found = {"wall_s": round(wall_s, 3)}
    if before.cpu_s and before.cpu_s.keys() == after.cpu_s.keys():
        own_s = sum(after.cpu_s.values()) - sum(before.cpu_s.values())
        by_others = load.load_by_others(before.cores, after.cores, own_s, wall_s)
        if by_others is not None:
            found["load_by_others"] = by_others
    return found | load.change(before.cores, after.cores)


def _cpu_s(process: int) -> float:
    """Of all its threads, in user and system mode; 0 of one that has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
