"""How busy given cores are with the work of others, and what else makes a timing untrustworthy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SYSTEM, PROC = Path("/sys/devices/system/cpu"), Path("/proc")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


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


def conditions() -> dict[str, float]:
    """What the kernel tells now of the cores of this process and the memory, as far as it does:
    `steal_s` seconds that a hypervisor took from them since boot, `throttled` times that they were slowed
    because of heat, `swapped_mib` moved to and from disk, `frequency_mhz` their mean clock."""
    found: dict[str, float] = {}
    cores = os.sched_getaffinity(0)
    wanted = {f"cpu{core}" for core in cores}
    with contextlib.suppress(OSError):
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
        found["steal_s"] = sum(int(line[8]) for line in lines if line[0] in wanted) / os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError):
        pages = dict(line.split() for line in (PROC / "vmstat").read_text().splitlines())
        found["swapped_mib"] = (int(pages["pswpin"]) + int(pages["pswpout"])) * PAGE_MIB
    throttled = list(_each(cores, "thermal_throttle/core_throttle_count"))
    if throttled:
        found["throttled"] = sum(throttled)
    clocks = list(_each(cores, "cpufreq/scaling_cur_freq"))
    if clocks:
        found["frequency_mhz"] = sum(clocks) / len(clocks) / 1000
    return found


def change(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What happened between two looks; of the clock, both."""
    told = {
        name: round(after[name] - value, 3)
        for name, value in before.items()
        if name in after and name != "frequency_mhz"
    }
    for name, when in (("before", before), ("after", after)):
        if "frequency_mhz" in when:
            told[f"frequency_mhz_{name}"] = round(when["frequency_mhz"], 1)
    return told


def _each(cores: set[int], file: str) -> Iterator[float]:
    for core in cores:
        with contextlib.suppress(OSError, ValueError):
            yield float((SYSTEM / f"cpu{core}" / file).read_text())
