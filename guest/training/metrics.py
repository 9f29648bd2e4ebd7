"""Metrics of a classifier, in numpy. Nothing here calls BLAS, so no thread count plays a part.

y_true and y_pred are integer classes of shape (samples,), logits are (samples, classes)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from guest.records.run import Metric

if TYPE_CHECKING:
    import numpy as np


def compute(metric: Metric, y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """The metric's value, in 0 .. 1. Raises ValueError for no samples, and for `f1_binary` with other
    classes than 0 and 1."""
    functions = {
        Metric.ACCURACY: accuracy,
        Metric.F1_MACRO: f1_macro,
        Metric.F1_MICRO: f1_micro,
        Metric.F1_BINARY: f1_binary,
    }
    return functions[metric](y_true, y_pred)


def accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """The share of samples whose class is predicted."""
    _check(y_true, y_pred)
    return int((y_true == y_pred).sum()) / len(y_true)


def f1_macro(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """The unweighted mean of F1 over the classes that occur in either array. A class that is never
    predicted rightly counts 0."""
    counts = _counts(y_true, y_pred)
    scores = [_f1(*row) for row in counts if any(row)]
    return math.fsum(scores) / len(scores)


def f1_micro(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """F1 of the counts summed over the classes: with one class a sample, the accuracy."""
    counts = _counts(y_true, y_pred)
    return _f1(*(sum(column) for column in zip(*counts, strict=True)))


def f1_binary(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """F1 of class 1, where the classes are 0 and 1; 0 when class 1 does not occur at all."""
    counts = _counts(y_true, y_pred)
    if len(counts) > 2:
        raise ValueError(
            f"f1_binary is for the classes 0 and 1; class {len(counts) - 1} occurs: use f1_macro"
        )
    return _f1(*counts[1]) if len(counts) == 2 else 0.0


def _check(y_true: np.ndarray, y_pred: np.ndarray) -> None:
    if y_true.ndim != 1 or y_true.shape != y_pred.shape or not len(y_true):
        raise ValueError(
            f"two arrays of as many classes were expected, not shapes {y_true.shape}, {y_pred.shape}"
        )


def _counts(y_true: np.ndarray, y_pred: np.ndarray) -> list[tuple[int, int, int]]:
    """True positives, false positives and false negatives of each class from 0 to the highest."""
    import numpy as np

    _check(y_true, y_pred)
    classes = int(max(y_true.max(), y_pred.max())) + 1
    hits = np.bincount(y_true[y_true == y_pred], minlength=classes)
    predicted = np.bincount(y_pred, minlength=classes)
    actual = np.bincount(y_true, minlength=classes)
    table: Any = np.stack([hits, predicted - hits, actual - hits], axis=1)
    return [(int(tp), int(fp), int(fn)) for tp, fp, fn in table]


def _f1(true_positives: int, false_positives: int, false_negatives: int) -> float:
    total = 2 * true_positives + false_positives + false_negatives
    return 2 * true_positives / total if total else 0.0


def cross_entropy(y_true: np.ndarray, logits: np.ndarray) -> float:
    """The mean negative log-likelihood of the true classes under softmax, in nats. Computed in float64
    and summed exactly, so the order of the samples plays no part."""
    import numpy as np

    if logits.ndim != 2 or len(logits) != len(y_true) or not len(y_true):
        raise ValueError(f"{len(y_true)} rows of logits were expected, not shape {logits.shape}")
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y_true)), y_true]
    if not np.isfinite(losses).all():  # a model that has diverged; fsum refuses infinities of both signs
        return float(losses.mean())
    return math.fsum(losses.tolist()) / len(y_true)
