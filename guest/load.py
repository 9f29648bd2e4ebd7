"""How busy given cores are with the work of others: what makes a timing untrustworthy."""

from __future__ import annotations

import os
from pathlib import Path


def busy_s() -> float | None:
    """Seconds that the cores of this process were busy since boot, with all processes together and
    what a hypervisor took away (steal); None where the kernel does not tell."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    wanted = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    for line in lines:
        name, *fields = line.split()
        if name in wanted:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            total += (user + nice + system + irq + softirq + steal) / ticks
            wanted.discard(name)
    return None if wanted else total


def load_by_others(
    before_s: float | None, after_s: float | None, own_cpu_s: float, wall_s: float
) -> float | None:
    """Mean number of cores that others kept busy while a run of `own_cpu_s` took `wall_s`."""
    if before_s is None or after_s is None or wall_s <= 0:
        return None
    return round(max(0.0, after_s - before_s - own_cpu_s) / wall_s, 3)
