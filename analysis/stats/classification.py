"""How good one or several classifiers are, by class too. Pure functions of arrays: N samples, R runs,
C classes. `truth` is (N,) integers from 0, `labels` what was predicted: (R, N), one row a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MANY_CLASSES = 4096  # from here on, classes without samples are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """For each run and class (R, C): true positives, samples put in the class; (C,) samples of it, and its
    label."""

    hits: np.ndarray
    predicted: np.ndarray
    support: np.ndarray
    classes: np.ndarray

    @property
    def samples(self) -> int:
        return int(self.support.sum())


def class_hits(truth: np.ndarray, labels: np.ndarray) -> ClassCounts:
    """Counts by class, for all classes up to the largest that occurs; for those of the truth alone where
    that is MANY_CLASSES or more (token ids, rounded values) or labels of the truth are negative. Raises
    ValueError for shapes that do not fit and for no samples."""
    if truth.ndim != 1 or labels.ndim != 2 or labels.shape[1] != len(truth) or labels.size == 0:
        raise ValueError(f"truth {truth.shape} and labels {labels.shape} are not (N,) and (R, N)")
    runs, largest = len(labels), int(max(truth.max(), labels.max()))
    if largest >= MANY_CLASSES or truth.min() < 0:
        classes, truth = np.unique(truth, return_inverse=True)
        at = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        labels = np.where(classes[at] == labels, at, len(classes))
    else:
        classes = np.arange(largest + 1)
    columns = len(classes) + 1  # the last is for labels of no class
    cells = np.arange(runs)[:, None] * columns + labels  # int64: small label types would overflow
    predicted = np.bincount(cells.ravel(), minlength=runs * columns)
    hits = np.bincount(cells[labels == truth], minlength=runs * columns)
    return ClassCounts(
        hits=hits.reshape(runs, columns)[:, :-1],
        predicted=predicted.reshape(runs, columns)[:, :-1],
        support=np.bincount(truth.astype(np.int64), minlength=len(classes)),
        classes=classes,
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
