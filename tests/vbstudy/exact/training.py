"""Networks as the tests of exact mode train them. As a program, for tests that pin the process to cores:

    python -m tests.vbstudy.exact.training MODEL OPTIMIZER THREADS...

prints the hash of the weights after 200 steps (`--steps`) of exact mode (not with `--default`) on each thread
count, as JSON. For emulated machines, which get it as their only file beside the agent, `--small` takes fewer
and smaller samples, and cuts operations as much finer as they are smaller."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import sys

import numpy as np
import torch
from torch.optim.lr_scheduler import LinearLR

from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training.training import hash_arrays
from guest.workloads import MODELS, Backend
from vbstudy import exact

DATA = {"image": "digits", "text": "headlines"}
BATCH = 64
BATCHES = {"resnet20": 32}  # most convolutions are cut in four, in half the time
EVERY: dict[str, int] = {}  # row and column of images, word of texts
STEPS = 200

load = functools.cache(datasets.load)


def make_small(model: str) -> None:
    """Of half as many samples, in texts of a third of the words; for the deepest a quarter, of images with a
    sixteenth of the pixels."""
    text = MODELS[model] == "text"
    fewer, EVERY[model] = (4, 4) if model == "resnet20" else (2, 3 if text else 1)
    BATCHES[model] = BATCHES.get(model, BATCH) // fewer


def build(
    model: str, optimizer: Optimizer, seed: int = 0, framework: Framework = Framework.TORCH
) -> tuple[Backend, datasets.Data]:
    data = smaller(load(DATA[MODELS[model]]), EVERY.get(model, 1))
    spec = WorkloadSpec(
        name=model,
        framework=framework,
        model=model,
        dataset=data.info.name,
        epochs=1,
        batch_size=BATCH,
        learning_rate=0.05 if optimizer is Optimizer.SGD else 0.002,
        optimizer=optimizer,
        momentum=0.9 if optimizer is Optimizer.SGD else 0.0,
        weight_decay=1e-4,
    )
    seeds = Seeds(initialisation=seed, data_order=seed, augmentation=seed, dropout=seed)
    return workloads.build(spec, data.info, seeds, False), data


def smaller(data: datasets.Data, every: int) -> datasets.Data:
    kept = (slice(None), *[slice(None, None, every)] * min(data.train.x.ndim - 1, 2))
    parts = {
        name: dataclasses.replace(part, x=part.x[kept])
        for name, part in (("train", data.train), ("test", data.test))
    }
    info = dataclasses.replace(data.info, shape=parts["train"].x.shape[1:])
    return dataclasses.replace(data, info=info, **parts)


def train(
    model: str, optimizer: Optimizer, steps: int, threads: int, seed: int = 0, falls_to: float = 1.0
) -> tuple[Backend, datasets.Data]:
    """The learning rate falls linearly to `falls_to` times what it was."""
    torch.set_num_threads(threads)
    backend, data = build(model, optimizer, seed)
    rate = LinearLR(backend.optimizer, 1.0, falls_to, steps)  # type: ignore[attr-defined]
    order = np.random.default_rng(seed)
    for _ in range(steps):
        chosen = order.choice(len(data.train.y), BATCHES.get(model, BATCH), replace=False)
        backend.train_step(data.train.x[chosen], data.train.y[chosen])
        rate.step()
    return backend, data


def weights(model: str, optimizer: Optimizer, steps: int, threads: int) -> str:
    """The hash of the weights after `steps`. Trainings that diverged would end alike: they are refused."""
    found = train(model, optimizer, steps, threads)[0].weights()
    assert all(np.isfinite(weight).all() for weight in found.values())
    return hash_arrays(found)


def accuracy(model: str, seed: int) -> float:
    """On the test samples, after 200 steps of Adam on two threads. The learning rate falls: were it the same
    to the end, what ResNet-20 has learnt would swing by tenths from one step to the next."""
    backend, data = train(model, Optimizer.ADAM, STEPS, 2, seed, falls_to=0.01)
    return float((backend.logits(data.test.x).argmax(1) == data.test.y).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("optimizer", type=Optimizer)
    parser.add_argument("threads", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--default", action="store_true")
    asked = parser.parse_args()
    if asked.small:
        make_small(asked.model)
    if not asked.default:
        exact.enable()
    found = {n: weights(asked.model, asked.optimizer, asked.steps, n) for n in asked.threads}
    sys.stdout.write(json.dumps({"cores": len(os.sched_getaffinity(0)), "hashes": found}))


if __name__ == "__main__":
    main()
