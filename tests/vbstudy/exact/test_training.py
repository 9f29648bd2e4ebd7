"""Whole networks, trained by exact mode: the same weights on every thread count, and good ones."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from guest.records.run import Optimizer
from tests.vbstudy.exact.training import BATCH, STEPS, accuracy, build, train, weights
from vbstudy import exact

NETWORKS = ["mlp", "lenet5", "resnet20", "lstm", "transformer"]
COMMITTED = json.loads((Path(__file__).parents[2] / "golden" / "exact-weights.json").read_text("utf-8"))
THREADS = (1, 2, 3, 4, 6, 8)
SEEDINGS = 10
LEARNT = 0.6  # of ten classes, or of two


def test_the_committed_weights_are_those_of_this_arithmetic() -> None:
    """A new version of it has others: `training.py` prints them."""
    assert COMMITTED["arithmetic"] == exact.coverage().arithmetic


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
def test_a_network_learns_the_committed_weights_on_one_and_three_threads(
    model: str, optimizer: Optimizer
) -> None:
    with exact.mode():
        hashes = {threads: weights(model, optimizer, 3, threads) for threads in (1, 3)}
    assert set(hashes.values()) == {COMMITTED["weights"]["3"][model][optimizer]}, hashes


@pytest.mark.parametrize("model", NETWORKS)
def test_a_network_answers_the_same_on_one_and_three_threads(model: str) -> None:
    backend, data = build(model, Optimizer.SGD)
    answers = []
    with exact.mode(), torch.inference_mode():
        for threads in (1, 3):
            torch.set_num_threads(threads)
            answers.append(backend.logits(data.train.x[:128]))
    assert np.array_equal(*answers)


@pytest.mark.parametrize("model", NETWORKS)
def test_strict_mode_knows_every_operation_of_a_network(model: str) -> None:
    with exact.mode(strict=True):
        for optimizer in Optimizer:
            train(model, optimizer, 1, 2)
    assert exact.coverage().unknown == ()


def test_without_exact_mode_it_does_not() -> None:
    assert weights("lenet5", Optimizer.SGD, 3, 1) != weights("lenet5", Optimizer.SGD, 3, 3)


def _takes_minutes(model: str, optimizer: Optimizer) -> bool:
    return model == "resnet20" or optimizer is not Optimizer.SGD


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        pytest.param(*each, marks=pytest.mark.needs("proof", long=_takes_minutes(*each)))
        for each in itertools.product(NETWORKS, Optimizer)
    ],
)
def test_two_hundred_steps_give_the_committed_weights_on_one_two_and_four_threads(
    model: str, optimizer: Optimizer
) -> None:
    with exact.mode():
        hashes = {threads: weights(model, optimizer, STEPS, threads) for threads in (1, 2, 4)}
    assert set(hashes.values()) == {COMMITTED["weights"][str(STEPS)][model][optimizer]}, hashes


@pytest.mark.needs("exact")
@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
def test_two_hundred_steps_give_the_same_weights_on_every_thread_count_and_any_cores(
    model: str, optimizer: Optimizer
) -> None:
    found = [on_cores(cores, model, optimizer) for cores in (1, 2)]
    assert [one["cores"] for one in found] == [1, 2]
    hashes = [one["hashes"][str(threads)] for one in found for threads in THREADS]
    assert len(set(hashes)) == 1, found


def on_cores(cores: int, model: str, optimizer: Optimizer) -> dict[str, Any]:
    """A process of its own, because threads that are there already would not be pinned."""
    command = [sys.executable, "-m", "tests.vbstudy.exact.training", model, optimizer, *map(str, THREADS)]
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:cores])  # the child inherits it
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, every)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.needs("exact")
@pytest.mark.parametrize("model", NETWORKS)
def test_accuracy_is_equivalent_to_defaults(model: str) -> None:
    """Two one-sided t tests of paired differences at 5 %, over ten seeds, 200 steps of Adam each. The margin
    is the noise that default has itself: the standard deviation of its accuracy over the seeds, but no less
    than half a percentage point."""
    default = np.array([accuracy(model, seed) for seed in range(SEEDINGS)])
    with exact.mode():
        differences = np.array([accuracy(model, seed) for seed in range(SEEDINGS)]) - default
    margin = max(float(default.std(ddof=1)), 0.005)
    if np.ptp(differences) > 0:  # else t is 0 / 0, and the mean says it all
        above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
        assert max(above, below) < 0.05, (margin, default, differences)
    assert abs(differences.mean()) < margin
    assert default.mean() > LEARNT, "a network that has learnt nothing is equivalent to any other"


@pytest.mark.needs("studies")
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
