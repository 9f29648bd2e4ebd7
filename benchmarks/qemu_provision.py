"""What it brings to make virtual machines side by side, against the same machines one after the other.

What is fair about it: the same ten guests of one CPU each, booted cold, looked into and stopped, in both
cases by the code of `vbstudy provision`, in turns in one run. The image is built before."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.qemu_boot import STUDY
from benchmarks.table import Row
from orchestrator.cores.leases import host_cores
from orchestrator.guests.provision import make_all
from orchestrator.inventory import GuestSpec
from orchestrator.providers.qemu.provider import QemuProvider
from orchestrator.store.store import Store
from orchestrator.study import schema

GUESTS = 10


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    guests = [GuestSpec(name=f"cpus-1-on-{i}", cpus=1) for i in range(GUESTS)]
    with tempfile.TemporaryDirectory() as folder:
        provider = QemuProvider(schema.parse(STUDY.format(snapshot="false")), Store(Path(folder)), report)
        problems = provider.check()
        assert not problems, problems
        ratios, together_s = [], []
        try:
            for turn in range(runs):
                report(f"turn {turn + 1} of {runs}: {GUESTS} guests, one by one and side by side")
                alone = _taken(lambda: [make_all([guest], provider, lambda _: None) for guest in guests])
                together_s.append(_taken(lambda: make_all(guests, provider, lambda _: None)))
                ratios.append(alone / together_s[-1])
        finally:
            for guest in guests:
                provider.destroy(guest)
    cores = len(host_cores())
    what = f"{GUESTS} guests, one by one / side by side on {cores} cores"
    return [
        Row.of(what, ratios, name=name, at_least=0.75 * min(cores, GUESTS)),
        Row.of("side by side", together_s, "s"),
    ]


def _taken(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
