"""How busy given cores are with the work of others, and what else makes a timing untrustworthy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from guest.machine import quota

SYSTEM, PROC = Path("/sys/devices/system/cpu"), Path("/proc")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the kernel tells at one moment of some cores and of the memory.

    `busy_s`: seconds since boot that the cores were busy, with all processes together and what a hypervisor
    took away (steal); None where the kernel does not tell. `conditions`, as far as it tells: `steal_s`
    seconds that a hypervisor took from them since boot, `throttled` times that they were slowed because of
    heat, `quota_s` seconds of cores that a quota held back, `swapped_mib` moved to and from disk,
    `frequency_mhz` their mean clock."""

    busy_s: float | None
    conditions: dict[str, float]


def look(cores: Collection[int] | None = None) -> Look:
    """At these cores, or those of this process."""
    cores = os.sched_getaffinity(0) if cores is None else cores
    busy_s, found = _times(cores)
    with contextlib.suppress(OSError, KeyError):  # small kernels do not count what is swapped
        pages = dict(line.split() for line in (PROC / "vmstat").read_text().splitlines())
        found["swapped_mib"] = (int(pages["pswpin"]) + int(pages["pswpout"])) * PAGE_MIB
    held_s = quota.held_s()
    if held_s is not None:
        found["quota_s"] = held_s
    throttled = list(_each(cores, "thermal_throttle/core_throttle_count"))
    if throttled:
        found["throttled"] = sum(throttled)
    clocks = list(_each(cores, "cpufreq/scaling_cur_freq"))
    if clocks:
        found["frequency_mhz"] = sum(clocks) / len(clocks) / 1000
    return Look(busy_s=busy_s, conditions=found)


def load_by_others(before: Look, after: Look, own_cpu_s: float, wall_s: float) -> float | None:
    """Mean number of cores that others kept busy while a run of `own_cpu_s` took `wall_s`."""
    if before.busy_s is None or after.busy_s is None or wall_s <= 0:
        return None
    return round(max(0.0, after.busy_s - before.busy_s - own_cpu_s) / wall_s, 3)


def change(before: Look, after: Look) -> dict[str, float]:
    """What happened between two looks; of the clock, both."""
    first, last = before.conditions, after.conditions
    told = {
        name: round(last[name] - value, 3)
        for name, value in first.items()
        if name in last and name != "frequency_mhz"
    }
    for name, when in (("before", first), ("after", last)):
        if "frequency_mhz" in when:
            told[f"frequency_mhz_{name}"] = round(when["frequency_mhz"], 1)
    return told


def _times(cores: Collection[int]) -> tuple[float | None, dict[str, float]]:
    """Seconds that these cores were busy since boot, and what a hypervisor took of them."""
    try:
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
    except OSError:
        return None, {}
    ticks, wanted = os.sysconf("SC_CLK_TCK"), {f"cpu{core}" for core in cores}
    found = [[int(field) for field in fields[:8]] for name, *fields in lines if name in wanted]
    if len(found) < len(wanted):
        return None, {}
    busy = sum(
        user + nice + system + irq + softirq + steal
        for user, nice, system, _idle, _iowait, irq, softirq, steal in found
    )
    return busy / ticks, {"steal_s": sum(fields[7] for fields in found) / ticks}


def _each(cores: Collection[int], file: str) -> Iterator[float]:
    for core in cores:
        with contextlib.suppress(OSError, ValueError):
            yield float((SYSTEM / f"cpu{core}" / file).read_text())
