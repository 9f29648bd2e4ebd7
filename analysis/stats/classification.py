"""How good one or several classifiers are, by class too. Pure functions of arrays: N samples, R runs,
C classes. `truth` is (N,) integers from 0, `labels` what was predicted: (R, N), one row a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """For each run and class (R, C): true positives, samples put in the class, and (C,) samples of it."""

    hits: np.ndarray
    predicted: np.ndarray
    support: np.ndarray

    @property
    def samples(self) -> int:
        return int(self.support.sum())


def class_hits(truth: np.ndarray, labels: np.ndarray) -> ClassCounts:
    """Counts by class, for all classes up to the largest that occurs. Raises ValueError for shapes that
    do not fit and for no samples."""
    if truth.ndim != 1 or labels.ndim != 2 or labels.shape[1] != len(truth) or labels.size == 0:
        raise ValueError(f"truth {truth.shape} and labels {labels.shape} are not (N,) and (R, N)")
    runs, classes = len(labels), int(max(truth.max(), labels.max())) + 1
    cells = np.arange(runs)[:, None] * classes + labels  # int64: small label types would overflow
    predicted = np.bincount(cells.ravel(), minlength=runs * classes)
    hits = np.bincount(cells[labels == truth], minlength=runs * classes)
    return ClassCounts(
        hits=hits.reshape(runs, classes),
        predicted=predicted.reshape(runs, classes),
        support=np.bincount(truth, minlength=classes),
    )


def class_accuracy(counts: ClassCounts) -> np.ndarray:
    """(R, C): the share of each class's samples that are put in it (its recall); NaN for a class
    without samples."""
    return _ratio(counts.hits, np.broadcast_to(counts.support, counts.hits.shape))


def false_positive_rate(counts: ClassCounts) -> np.ndarray:
    """(R, C): FP / (FP + TN), each class against the rest; NaN where all samples are of the class."""
    others = counts.samples - counts.support
    return _ratio(counts.predicted - counts.hits, np.broadcast_to(others, counts.hits.shape))


def false_negative_rate(counts: ClassCounts) -> np.ndarray:
    """(R, C): FN / (FN + TP), each class against the rest; NaN for a class without samples. (The scripts
    of Zhuang et al., MLSys 2022, divide by FP + TN here.)"""
    return _ratio(counts.support - counts.hits, np.broadcast_to(counts.support, counts.hits.shape))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    result = np.full(above.shape, np.nan)
    np.divide(above, below, out=result, where=below > 0)
    return result
