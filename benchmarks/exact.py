"""The step time of exact mode, against that of default torch and of Intel's strict mode
(`MKL_CBWR=AVX2,STRICT` with oneDNN off), at the same number of threads.

What is fair about it:

- All sides train the same network on the same batch with the same optimiser, each in a process of its own,
  with the environment that guests have (`guest.machine.threads`: waiting threads spin only briefly), and
  with freed memory kept (`KEPT_MEMORY`).
- They take turns, a block of steps each, so that whatever else the machine does meets all alike; ratios are
  formed within a turn, and the median of them is the value.
- Every process takes some steps unmeasured first, and every step ends in its loss.

The ratio to the strict mode is shown on Intel's CPUs only: it is made for no others. RepDL, whose bits are
the same on all machines, too, takes a turn where it is installed (its setup.py compiles for CUDA as well:
without that, leave `CUDAExtension` out, and put an empty `repdl/backend/cuda.py` in its place), on networks
whose layers it has. Its loss and optimisers are left out, which favours it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.networks import NETWORKS
from benchmarks.table import Row, over
from guest import workloads
from guest.datasets import datasets
from guest.machine import fingerprint
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec

BATCH = 64
THREADS = (1, 2)
BLOCK_S = 0.15
WORKLOADS = {  # the study's networks and their data's shape; the wider set is `NETWORKS`
    "resnet20": "cifar10",
    "transformer": "headlines",
    "lenet5": "mnist",
    "mlp": "mnist",
    "lstm": "headlines",
}
OF_WORKLOADS, OF_NETWORKS, OF_ANY, OF_ONE_SAMPLE = 1.0, 1.1, 1.3, 1.2  # the most of default's time
OF_REPDL = ("resnet20", "lenet5", "mlp")  # linear layers, convolutions and BatchNorm are all it has
NOT_OF_ONE_SAMPLE = {"resnet50-channels-last", "gat"}  # a graph's batch is its nodes
SCALING_TARGET = 0.95
# glibc keeps what is freed. Whether it returns a step's memory to the kernel, to be requested again in the
# next, depends on the end of a process's heap: with default torch and with exact mode alike LeNet-5 took
# 3.4 or 4.6 ms a step, with 0 or 900 page faults, from one start to the next.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}


def step_of(model: str, side: str) -> Callable[[], float]:
    """One training step of the network on made-up data, or `inference:NETWORK`'s answer for one sample."""
    kind, _, name = model.rpartition(":")
    if name in NETWORKS:
        make, batch = NETWORKS[name]
        return make(1).inference() if kind else make(batch).training()
    info = datasets.info(WORKLOADS[model])
    spec = WorkloadSpec(
        name=model,
        framework=Framework.TORCH,
        model=model,
        dataset=info.name,
        epochs=1,
        batch_size=BATCH,
        learning_rate=0.01,
        optimizer=Optimizer.SGD,
        momentum=0.9,
        weight_decay=0.0,
    )
    seeds = Seeds(initialisation=1, data_order=2, augmentation=3, dropout=4)
    backend: Any = workloads.build(spec, info, seeds, deterministic=False)
    if side == "repdl":
        import repdl  # type: ignore[import-not-found]

        backend.model = repdl.from_torch_module(backend.model)
        backend.optimizer.param_groups[0]["params"] = list(backend.model.parameters())
    draw = np.random.default_rng(0)
    shape = (BATCH, *info.shape)
    x = draw.random(shape, np.float32)
    if info.kind != "image":
        x = draw.integers(0, info.vocabulary, shape).astype(np.int32)
    y = draw.integers(0, info.classes, BATCH)
    return lambda: backend.train_step(x, y)


def serve(model: str, threads: int, side: str) -> None:
    """A side's process: for every line with a number of steps, one with their mean time in seconds."""
    import torch

    from vbstudy import exact

    torch.set_num_threads(threads)
    step = step_of(model, side)
    if side == "strict":
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    if side == "exact":
        exact.enable()
    for line in sys.stdin:
        steps = int(line)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        print(json.dumps((time.perf_counter() - began) / steps), flush=True)


class Side:
    """A process that trains one network in one way, on request."""

    def __init__(self, model: str, threads: int, side: str) -> None:
        count = str(threads)
        settings = {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "GOMP_SPINCOUNT": "1000",
        } | KEPT_MEMORY
        if side == "strict":
            settings["MKL_CBWR"] = "AVX2,STRICT"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.exact", model, count, side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | settings,
        )

    def seconds(self, steps: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def turns(model: str, threads: int, runs: int) -> dict[str, list[float]]:
    """Seconds a step of each turn, by side."""
    sides = ["default", "exact"]
    if fingerprint.cpu()["vendor"] == "GenuineIntel":
        sides.append("strict")
    if model in OF_REPDL and importlib.util.find_spec("repdl"):
        sides.append("repdl")
    at_work = {side: Side(model, threads, side) for side in sides}
    times: dict[str, list[float]] = {side: [] for side in sides}
    try:
        for process in at_work.values():
            process.seconds(2)
        steps = {side: max(1, round(BLOCK_S / process.seconds(2))) for side, process in at_work.items()}
        for _ in range(runs):
            for side, process in at_work.items():
                times[side].append(process.seconds(steps[side]))
    finally:
        for process in at_work.values():
            process.close()
    return times


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    one_sample = [f"inference:{model}" for model in NETWORKS if model not in NOT_OF_ONE_SAMPLE]
    rows = [
        *_group("the study's five", list(WORKLOADS), OF_WORKLOADS, runs, report),
        *_group("the wider set", list(NETWORKS), OF_NETWORKS, runs, report),
        *_group("inference of one sample", one_sample, None, runs, report),
    ]
    return [dataclasses.replace(rows[0], name=name), *rows[1:]]


def _group(
    group: str, models: list[str], at_most: float | None, runs: int, report: Callable[[str], None]
) -> list[Row]:
    """A row for each network and number of threads, and their geometric means."""
    rows, means = [], []
    every: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for model in models:
        measured = {}
        for threads in THREADS:
            times = measured[threads] = turns(model, threads, runs)
            ratios = over(times["exact"], times["default"])
            every[threads].append(statistics.median(ratios))
            title = f"{model}, {threads} thread{'s' * (threads > 1)}"
            milliseconds = 1000 * statistics.median(times["default"])
            report(f"{title}: {milliseconds:.2f} ms, and by exact mode {every[threads][-1]:.2f} of it")
            limit = OF_ANY if at_most else OF_ONE_SAMPLE
            rows.append(Row(f"{title}: exact : default", ratios, at_most=limit))
            for peer, side in (("MKL strict", "strict"), ("RepDL", "repdl")):
                if side in times:
                    against = over(times["exact"], times[side])
                    rows.append(Row(f"{title}: exact : {peer}", against, at_most=1.0))
            if "repdl" in times:
                slower = over(times["repdl"], times["default"])
                rows.append(Row(f"{title}: RepDL : default", slower))
        if model in WORKLOADS:
            one, two = measured[THREADS[0]], measured[THREADS[1]]
            exact, default = (over(one[side], two[side]) for side in ("exact", "default"))
            scaling = over(exact, default)
            what = f"{model}: speed-up by the second thread, exact : default"
            rows.append(Row(what, scaling, at_least=SCALING_TARGET))
    for threads, ratios in every.items():
        what = f"{group}, {threads} thread{'s' * (threads > 1)}: geometric mean of exact : default"
        means.append(Row(what, ratios, value=statistics.geometric_mean(ratios), at_most=at_most))
    return [*rows, *means]


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
