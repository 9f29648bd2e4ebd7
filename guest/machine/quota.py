"""CPU quotas (`docker run --cpus 2`): a process sees all cores, and is held back where it uses more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS, PROC = Path("/sys/fs/cgroup"), Path("/proc")


def allowed_cores() -> float | None:
    """How many cores this process may keep busy at a time; None without a quota."""
    found = []
    for group in _groups():
        with contextlib.suppress(OSError, ValueError):
            if (group / "cpu.max").exists():
                quota, period = (group / "cpu.max").read_text().split()
            else:
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            found.append(float(quota) / float(period))  # ValueError for `max`
    return min((cores for cores in found if cores > 0), default=None)  # version 1 has -1 without one


def held_s() -> float | None:
    """Seconds of cores that quotas have held back so far; None where there is none."""
    found = []
    for group in _groups():
        with contextlib.suppress(OSError, ValueError, KeyError):
            counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            if int(counts["nr_periods"]):
                found.append(
                    int(counts["throttled_usec"]) / 1e6
                    if "throttled_usec" in counts
                    else int(counts["throttled_time"]) / 1e9
                )
    return sum(found) if found else None


def _groups() -> Iterator[Path]:
    """The folders of this process's group and of those above it, of whichever version has the controller."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        own = PurePosixPath(path.lstrip("/"))
        for group in dict.fromkeys((own, *own.parents)):
            yield CGROUPS / ("cpu" if controllers else "") / group
