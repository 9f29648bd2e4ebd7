"""Trains one model and looks at it after every epoch: losses, metrics, and the hashes by which two
runs are compared bit for bit. Framework-neutral; a `Backend` does the arithmetic."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guest.machine import seeds
from guest.records.run import Seeds, WorkloadSpec
from guest.training import metrics

if TYPE_CHECKING:
    import numpy as np

    from guest.datasets.datasets import Data
    from guest.workloads import Backend

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model at one moment: weights by name, and its logits (float32, samples x classes) on the
    test samples."""

    weights: dict[str, np.ndarray]
    logits: np.ndarray
    scores: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training left: the history (one row an epoch), both models, and where time went."""

    history: list[Row]
    step_hashes: dict[str, str]
    selected_epoch: int
    last: Model
    selected: Model
    train_s: float
    evaluate_s: float


def train(
    backend: Backend,
    data: Data,
    spec: WorkloadSpec,
    drawn: Seeds,
    on_epoch: Callable[[Row], None],
    on_step: Callable[[int], None],
) -> Trained:
    """Trains `spec.epochs` epochs of full batches (a last, smaller batch is left out: every step has
    one shape). `on_step` gets the number of steps done, `on_epoch` the finished history row."""
    import numpy as np

    history: list[Row] = []
    step_hashes: dict[str, str] = {}
    step = 0
    train_s = evaluate_s = 0.0
    started = time.perf_counter()
    selected: Model | None = None
    selected_epoch, best = 0, -np.inf

    for epoch, batches in enumerate(epochs(data, spec, drawn), start=1):
        began = time.perf_counter()
        losses = []
        for x, y in batches:
            losses.append(backend.train_step(x, y))
            step += 1
            if step & (step - 1) == 0:  # 1, 2, 4, 8, ...: brackets the first step that differs
                paused = time.perf_counter()
                step_hashes[str(step)] = hash_arrays(backend.weights())  # point: step hashed
                began += time.perf_counter() - paused  # no part of training
            on_step(step)  # point: step done
        train_s += time.perf_counter() - began

        began = time.perf_counter()
        validation = backend.logits(data.validation.x)
        test = backend.logits(data.test.x)
        weights = backend.weights()
        validation_scores = _scores(spec, data.validation.y, validation)
        last = Model(weights=weights, logits=test, scores=_scores(spec, data.test.y, test))
        if selected is None or validation_scores[spec.metrics[0]] > best:
            selected, selected_epoch, best = last, epoch, validation_scores[spec.metrics[0]]
        evaluate_s += time.perf_counter() - began

        row: Row = {
            "epoch": epoch,
            "step": step,
            "train_loss": float(np.mean(losses)),
            "validation_loss": metrics.cross_entropy(data.validation.y, validation),
            "test_loss": metrics.cross_entropy(data.test.y, test),
            **{f"validation_{name}": value for name, value in validation_scores.items()},
            **{f"test_{name}": value for name, value in last.scores.items()},
            "selected_epoch": selected_epoch,
            **{f"selected_test_{name}": value for name, value in selected.scores.items()},
            "weights_sha256": hash_arrays(weights),
            "logits_sha256": hash_arrays({"logits": test}),
            "predictions_sha256": hash_arrays({"predictions": test.argmax(axis=1)}),
            "elapsed_s": time.perf_counter() - started,
        }
        history.append(row)  # point: epoch done
        on_epoch(row)  # point: epoch reported

    assert selected is not None  # noqa: S101  (a spec has at least one epoch)
    return Trained(
        history=history,
        step_hashes=step_hashes,
        selected_epoch=selected_epoch,
        last=last,
        selected=selected,
        train_s=train_s,
        evaluate_s=evaluate_s,
    )


def epochs(data: Data, spec: WorkloadSpec, drawn: Seeds) -> Iterator[Iterator[tuple[np.ndarray, np.ndarray]]]:
    """The batches (images or texts, labels) of every epoch, in the order that `drawn` gives them."""
    order = seeds.generator(drawn, "data_order")
    noise = seeds.generator(drawn, "augmentation")
    count = len(data.train.y)
    if spec.batch_size > count:
        raise ValueError(f"batch_size = {spec.batch_size} is more than the {count} training samples")
    for _ in range(spec.epochs):
        yield _batches(data, spec, order.permutation(count), noise)


def _batches(
    data: Data, spec: WorkloadSpec, permutation: np.ndarray, noise: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from guest.workloads import augment

    for start in range(0, len(permutation) - spec.batch_size + 1, spec.batch_size):
        batch = permutation[start : start + spec.batch_size]
        x = data.train.x[batch]
        yield (augment(x, noise) if spec.augment else x), data.train.y[batch]


def _scores(spec: WorkloadSpec, y_true: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    predicted = logits.argmax(axis=1)
    return {metric.value: metrics.compute(metric, y_true, predicted) for metric in spec.metrics}


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and raw bytes, in order of the names. Equal hashes mean
    equal bits: -0.0 and 0.0 differ, and so do two NaNs with different payloads."""
    import numpy as np

    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        total.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        total.update(array.tobytes())
    return total.hexdigest()
