"""Whole networks, trained by exact mode: the same weights on every thread count, and good ones."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from guest import datasets, exact, workloads
from guest.records import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training import hash_arrays
from guest.workloads import MODELS, Backend

NETWORKS = ["mlp", "lenet5", "resnet20", "lstm", "transformer"]
SEEDS = Seeds(initialisation=1, data_order=2, augmentation=3, dropout=4)
DATA = {"image": "digits", "text": "headlines"}
BATCH = 64


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


load = functools.cache(datasets.load)


def build(model: str, optimizer: Optimizer) -> tuple[Backend, datasets.Data]:
    data = load(DATA[MODELS[model].kind])
    spec = WorkloadSpec(
        name=model,
        framework=Framework.TORCH,
        model=model,
        dataset=data.info.name,
        epochs=1,
        batch_size=BATCH,
        learning_rate=0.05 if optimizer is Optimizer.SGD else 0.002,
        optimizer=optimizer,
        momentum=0.9 if optimizer is Optimizer.SGD else 0.0,
        weight_decay=1e-4,
    )
    return workloads.build(spec, data.info, SEEDS, False), data


def train(model: str, optimizer: Optimizer, steps: int, threads: int) -> tuple[Backend, datasets.Data]:
    torch.set_num_threads(threads)
    backend, data = build(model, optimizer)
    order = np.random.default_rng(0)
    for _ in range(steps):
        batch = order.choice(len(data.train.y), BATCH, replace=False)
        backend.train_step(data.train.x[batch], data.train.y[batch])
    return backend, data


def weights(model: str, optimizer: Optimizer, steps: int, threads: int) -> str:
    """The hash of the weights after `steps`."""
    return hash_arrays(train(model, optimizer, steps, threads)[0].weights())


def accuracy(model: str, threads: int) -> tuple[float, int]:
    """Of 200 steps of Adam, on the test samples, and how many these are."""
    backend, data = train(model, Optimizer.ADAM, 200, threads)
    return float((backend.logits(data.test.x).argmax(1) == data.test.y).mean()), len(data.test.y)


@pytest.mark.parametrize("model", NETWORKS)
def test_a_network_learns_the_same_weights_on_one_and_three_threads(model: str) -> None:
    with exact.mode():
        assert weights(model, Optimizer.SGD, 3, 1) == weights(model, Optimizer.SGD, 3, 3)


@pytest.mark.parametrize("model", NETWORKS)
def test_strict_mode_knows_every_operation_of_a_network(model: str) -> None:
    with exact.mode(strict=True):
        for optimizer in Optimizer:
            train(model, optimizer, 1, 2)
    assert exact.coverage().unknown == ()


def test_without_exact_mode_it_does_not() -> None:
    assert weights("lenet5", Optimizer.SGD, 3, 1) != weights("lenet5", Optimizer.SGD, 3, 3)


@pytest.mark.exact
@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
def test_two_hundred_steps_give_the_same_weights_on_every_thread_count_and_any_cores(
    model: str, optimizer: Optimizer
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    hashes = {}
    try:
        for pinned in (cores[:1], cores[:2]):
            os.sched_setaffinity(0, pinned)
            for threads in (1, 2, 3, 4, 6, 8):
                with exact.mode():
                    hashes[threads, len(pinned)] = weights(model, optimizer, 200, threads)
    finally:
        os.sched_setaffinity(0, cores)
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.exact
@pytest.mark.parametrize("model", NETWORKS)
def test_accuracy_is_that_of_default_within_its_noise(model: str) -> None:
    """Thread counts give default a spread that has nothing to do with quality. Exact mode must lie within it,
    widened by three binomial standard errors of the test samples."""
    default = [accuracy(model, threads)[0] for threads in (1, 2, 3, 4)]
    with exact.mode():
        ours, samples = accuracy(model, 2)
    mean = float(np.mean(default))
    error = np.sqrt(max(mean * (1 - mean), 0.01) / samples)
    assert min(default) - 3 * error <= ours <= max(default) + 3 * error


@pytest.mark.parametrize("model", NETWORKS)
def test_a_networks_gradient_is_as_near_to_that_of_float64_as_defaults_is(model: str) -> None:
    """In the Euclidean norm of the whole gradient, relative: within three times default's distance. (Where a
    ReLU's input is all but zero, rounding decides whether it passes; `test_sweep` has single operations.)"""
    exactly, default, truth = (gradient(model, kind) for kind in ("exact", "default", "float64"))
    distance, usual = ((g - truth).norm() / truth.norm() for g in (exactly, default))
    assert distance <= max(3 * usual, 1e-6)
    assert usual < 0.02


def gradient(model: str, kind: str) -> torch.Tensor:
    """Of the loss of the first batch at the initial weights, without dropout, by all parameters."""
    torch.set_num_threads(2)
    backend, data = build(model, Optimizer.SGD)
    network = backend.model.train()  # type: ignore[attr-defined]
    for layer in network.modules():
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    x = backend._input(data.train.x[:BATCH])  # type: ignore[attr-defined]
    if kind == "float64":
        network.double()
        x = x.double() if x.is_floating_point() else x
    labels = torch.from_numpy(data.train.y[:BATCH])
    with exact.mode() if kind == "exact" else contextlib.nullcontext():
        torch.nn.functional.cross_entropy(network(x), labels).backward()
    return torch.cat([p.grad.double().flatten() for p in network.parameters() if p.grad is not None])
