"""How long a virtual machine takes until a command runs in it over SSH: cold, and from its snapshot.

What is fair about it: the same machine with the same disks, on the same cores, in turns; timed from the
start of QEMU to the end of a first `true` over a fresh SSH connection. The image is built before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Row
from orchestrator.cores.leases import host_cores
from orchestrator.inventory import GuestSpec
from orchestrator.providers.qemu.provider import QemuProvider
from orchestrator.store.store import Store
from orchestrator.study import schema

COLD_TARGET_S, SNAPSHOT_TARGET_S, TRANSFER_TARGET_S = 15, 4, 1
STUDY = """
[provider]
kind = "qemu"
snapshot = {snapshot}
[[workload]]
model = "lenet1"
dataset = "digits"
"""
GUEST = GuestSpec(name="cpus-1", cpus=1)


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        cold, resumed = (
            QemuProvider(schema.parse(STUDY.format(snapshot=kept)), Store(Path(folder) / kept), report)
            for kept in ("false", "true")
        )
        try:
            for provider in (cold, resumed):
                problems = provider.check()
                assert not problems, problems
            report("booting once, importing torch, taking the snapshot")
            _start(resumed)
            report(f"{runs} starts each, in turns")
            pairs = [(_start(cold), _start(resumed)) for _ in range(runs)]
            report("and what a run costs beside its training: files put and fetched")
            transfers = _transfers(resumed, runs, Path(folder))
        finally:
            for provider in (cold, resumed):
                provider.destroy(GUEST)
    cold_s, resumed_s = ([pair[i] for pair in pairs] for i in (0, 1))
    work = "a worker's command, five files fetched, a folder removed"
    return [
        Row("cold boot to SSH", cold_s, "s", name=name, at_most=COLD_TARGET_S),
        Row("snapshot to SSH", resumed_s, "s", at_most=SNAPSHOT_TARGET_S),
        Row(work, transfers, "s", at_most=TRANSFER_TARGET_S),
    ]


def _start(provider: QemuProvider) -> float:
    began = time.perf_counter()
    connection = provider.start(GUEST, host_cores()[:1])
    assert connection.run(["true"], {}, 60).status == 0
    taken = time.perf_counter() - began
    connection.close()
    provider.stop(GUEST)
    return taken


def _transfers(provider: QemuProvider, runs: int, folder: Path) -> list[float]:
    """What `Executor` does around one run, but for the training: five files of LeNet's size."""
    connection = provider.start(GUEST, host_cores()[:1])
    taken = []
    script = "mkdir -p out; for i in 1 2 3 4 5; do head -c 50000 /dev/zero > out/$i; done; exec cat"
    for _ in range(runs):
        stream = connection.open(["sh", "-c", script], {})
        stream.send("ready")
        assert stream.receive(60) == b"ready\n"
        began = time.perf_counter()
        stream.send("a request")
        assert stream.receive(60) == b"a request\n"
        for i in range(1, 6):
            connection.get(f"out/{i}", folder / str(i), 50_000)
        connection.remove("out")
        taken.append(time.perf_counter() - began)
        stream.kill()
    connection.close()
    provider.stop(GUEST)
    return taken
