"""What hashing every output of a training step costs: a traced step of ResNet-20 against a plain one, and
against torch's own DebugMode with its hashes.

What is fair about it:

- The same model, batch (64 CIFAR-sized images) and number of threads; plain, traced and DebugMode steps take
  turns, after one unmeasured step of each.
- Ours is charged with all that it does: inputs too, module paths, source lines, the record of each operation.
  DebugMode runs at its cheapest, output hashes ("norm", its default) and no modules or stack traces; a second
  row has it hash inputs as well, which is what finding a first divergence takes.
- All run in a process with the environment that a guest has, which is where `vbstudy trace` looks: its OpenMP
  threads do not spin for long, and so do not keep the second core from the one that hashes.
- Nothing is written to disk on either side.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.table import Row, over
from guest import workloads
from guest.datasets.datasets import info
from guest.machine import fingerprint, seeds, threads
from guest.records.run import Framework, Optimizer, RunSpec, Seeds, ThreadSpec, Variant, WorkloadSpec

TARGET = 2.0
BATCH = 64
SEEDS = Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1)
WORKLOAD = WorkloadSpec(
    name="resnet20",
    framework=Framework.TORCH,
    model="resnet20",
    dataset="cifar10",
    epochs=1,
    batch_size=BATCH,
    learning_rate=0.1,
    optimizer=Optimizer.SGD,
    momentum=0.9,
)


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    count = len(os.sched_getaffinity(0))
    spec = RunSpec(
        study_id=name,
        workload=WORKLOAD,
        variant=Variant.FIXED_SEED,
        threads=ThreadSpec(cpus=count, intra_op=count, inter_op=count),
        repetition=1,
        seeds=SEEDS,
    )
    env = os.environ | threads.environment(spec, cpu_vendor=fingerprint.cpu()["vendor"])
    report(f"{runs} steps each, in turns, {count} threads")
    command = [sys.executable, "-m", "benchmarks.trace", str(count), str(runs)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    times: dict[str, list[float]] = json.loads(done.stdout)
    medians = {kind: statistics.median(each) for kind, each in times.items()}
    head = f"ResNet-20, batch {BATCH}, {count} threads"
    compared = (
        (name, f"{head}: a traced step : a plain one of {1000 * medians['plain']:.0f} ms", "plain", TARGET),
        ("", "the same traced step : one under DebugMode with output hashes", "debug", 1.0),
        ("", "the same : one under DebugMode with input and output hashes", "debug inputs", 1.0),
    )
    traced, n = times["traced"], f"{runs} + {runs}"
    return [
        Row(
            what,
            over(traced, times[peer]),
            name=title,
            n=n,
            value=medians["traced"] / medians[peer],
            at_most=most,
        )
        for title, what, peer, most in compared
    ]


def turns(count: int, runs: int) -> dict[str, list[float]]:
    """Seconds of `runs` steps of each kind."""
    import torch
    from torch.utils._debug_mode import DebugMode

    from guest.trace.torch_log import watch

    torch.set_num_threads(count)
    backend = workloads.build(WORKLOAD, info("cifar10"), seeds.draw(SEEDS), deterministic=False)
    generator = np.random.default_rng(1)
    x = generator.random((BATCH, *info("cifar10").shape), dtype=np.float32)
    y = generator.integers(0, 10, BATCH)

    @contextlib.contextmanager
    def debug(*, inputs: bool) -> Any:
        with DebugMode() as mode, DebugMode.log_tensor_hashes("norm", hash_inputs=inputs):
            yield mode

    kinds: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": contextlib.nullcontext,
        "traced": lambda: watch(backend, frozenset()),
        "debug": lambda: debug(inputs=False),
        "debug inputs": lambda: debug(inputs=True),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(runs + 1):
        for kind, looking in kinds.items():
            began = time.perf_counter()
            with looking():
                backend.train_step(x, y)
            if turn:
                times[kind].append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    print(json.dumps(turns(*map(int, sys.argv[1:]))))
