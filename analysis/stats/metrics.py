"""Measures of how much runs differ. Pure functions of arrays; R is runs, N samples, E epochs, T
thread settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

FEW_CLASSES = 64  # up to here classes are counted by comparing, beyond by sorting into bins
BLOCK = 64  # runs at once: what is worked on stays in the cache, and counts fit a byte
BITS_SET = np.array([number.bit_count() for number in range(256)], dtype=np.uint8)


def churn_within(labels: np.ndarray) -> float:
    """Churn of one set: the mean over its pairs of runs of P(f1(x) != f2(x)) (Zhuang et al., MLSys
    2022, section 3.2). `labels` is (R, N) integers from 0; the result lies in [0, 1].

    Counted by classes, not by pairs: a sample that c_k runs put in class k has c_k (c_k - 1) / 2
    agreeing pairs. Raises ValueError for fewer than two runs.
    """
    runs, samples = _shape(labels)
    if runs < 2:
        raise ValueError("churn needs at least two runs")
    counts = class_counts(codes(labels)[0])
    agreeing = int((counts * (counts - 1)).sum())
    return 1.0 - agreeing / (runs * (runs - 1) * samples)


def churn_between(a: np.ndarray, b: np.ndarray) -> float:
    """Churn across two sets: the mean over pairs, one run of each, of P(f1(x) != f2(x)).
    `a` is (R, N), `b` (S, N), integers from 0; the result lies in [0, 1]."""
    (runs_a, samples), (runs_b, other) = _shape(a), _shape(b)
    if samples != other:
        raise ValueError(f"the sets predict {samples} and {other} samples")
    a, b = codes(a, b)
    classes = int(max(a.max(), b.max())) + 1
    agreeing = int((class_counts(a, classes) * class_counts(b, classes)).sum())
    return 1.0 - agreeing / (runs_a * runs_b * samples)


def churn_against(labels: np.ndarray, counts: np.ndarray, runs: int) -> np.ndarray:
    """(R,) the mean churn of each run of `labels` (R, N) with `runs` others, of which `class_counts` are
    (N, C). A run that is among the others counts with itself, as 0."""
    samples = np.arange(labels.shape[1])
    agreeing = np.array([int(counts[samples, run].sum()) for run in labels])
    return np.asarray(1.0 - agreeing / (runs * labels.shape[1]))


def churn_matrix(labels: np.ndarray) -> np.ndarray:
    """(R, R) the churn of every pair of runs; 0 on the diagonal. `labels` is (R, N) integers from 0.

    Labels are taken apart into bits, 64 samples to a word: two runs differ on a sample where any of its
    bits does. Samples on which all runs agree are left out before."""
    runs, samples = _shape(labels)
    differing = labels[:, (labels != labels[0]).any(axis=0)]
    churn = np.zeros((runs, runs))
    if not differing.size:
        return churn
    planes = _bit_planes(differing)

    def fill(i: int) -> None:
        for first in range(i + 1, runs, BLOCK):
            apart = planes[0, first : first + BLOCK] ^ planes[0, i]
            for plane in planes[1:]:
                apart |= plane[first : first + BLOCK] ^ plane[i]
            churn[i, first : first + BLOCK] = _ones(apart) / samples

    with ThreadPoolExecutor() as pool:  # numpy releases the interpreter's lock
        list(pool.map(fill, range(runs)))
    return churn + churn.T


def _bit_planes(labels: np.ndarray) -> np.ndarray:
    """(B, R, W) uint64: bit b of the labels of run r, 64 samples to a word, zeros behind the last."""
    runs, samples = labels.shape
    bits = max(1, int(labels.max()).bit_length())
    packed = np.zeros((bits, runs, 8 * -(-samples // 64)), dtype=np.uint8)
    for bit in range(bits):
        packed[bit, :, : -(-samples // 8)] = np.packbits((labels >> bit & 1).astype(np.uint8), axis=1)
    return packed.view(np.uint64)


def _ones(words: np.ndarray) -> np.ndarray:
    """(R,) how many bits are set in each row of `words` (R, W) uint64."""
    if hasattr(np, "bitwise_count"):  # from numpy 2.0 on
        return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int64))
    return np.asarray(BITS_SET[words.view(np.uint8)].sum(axis=1, dtype=np.int64))


def agreement(labels: np.ndarray) -> float:
    """The share of samples that all runs put in one class. `labels` is (R, N); in [0, 1]."""
    _shape(labels)
    return float((labels == labels[0]).all(axis=0).mean())


def codes(*sets: np.ndarray) -> list[np.ndarray]:
    """The sets, each (R, N), with the labels of each sample numbered from 0 where they are larger than there
    are runs: token ids and rounded values are counted in no more memory than classes. Which runs agree on a
    sample stays as it is; a number has no meaning beyond its sample."""
    runs = sum(map(len, sets))
    if max(int(labels.max()) for labels in sets) < max(runs, FEW_CLASSES):
        return list(sets)
    together = np.concatenate(sets)
    found = np.empty(together.shape, np.min_scalar_type(runs))
    for sample, numbers in zip(together.T, found.T, strict=True):
        numbers[:] = np.unique(sample, return_inverse=True)[1]
    return np.split(found, np.cumsum([len(labels) for labels in sets])[:-1])


def class_counts(labels: np.ndarray, classes: int | None = None) -> np.ndarray:
    """(N, C): how many of the runs put each sample in each class. `labels` is (R, N), small numbers: see
    `codes`."""
    _, samples = _shape(labels)
    classes = int(labels.max()) + 1 if classes is None else classes
    if classes > FEW_CLASSES:
        cells = np.arange(samples) * classes + labels  # int64: small label types would overflow
        return np.bincount(cells.ravel(), minlength=samples * classes).reshape(samples, classes)
    counts = np.zeros((classes, samples), dtype=np.int64)
    for first in range(0, len(labels), BLOCK):
        block = labels[first : first + BLOCK]
        for c in range(classes):
            counts[c] += (block == c).view(np.uint8).sum(axis=0, dtype=np.uint8)
    return counts.T


def _shape(labels: np.ndarray) -> tuple[int, int]:
    if labels.ndim != 2 or 0 in labels.shape:
        raise ValueError(f"labels must be (runs, samples) and not empty, not {labels.shape}")
    return labels.shape[0], labels.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxDifference:
    """The largest difference between rows, and the columns where it is attained (first to last
    of the unbroken stretch that starts at the first)."""

    difference: float
    first: int
    last: int


def max_difference(values: np.ndarray) -> MaxDifference | None:
    """The largest max-min across thread settings at one epoch (Xiao et al., ISSRE 2021, table VII).
    `values` is (T, E); epochs where a value is not finite are left out. None when fewer than two
    settings or no epoch is left."""
    finite = np.isfinite(values).all(axis=0)
    if values.shape[0] < 2 or not finite.any():
        return None
    spread = np.full(values.shape[1], -1.0)
    spread[finite] = values[:, finite].max(axis=0) - values[:, finite].min(axis=0)
    first = int(spread.argmax())
    last = first
    while last + 1 < len(spread) and spread[last + 1] == spread[first]:
        last += 1
    return MaxDifference(difference=float(spread[first]), first=first, last=last)


def column_sd(values: np.ndarray) -> np.ndarray:
    """(E,) sample standard deviation (ddof 1) of each column of `values` (R, E); NaN where a value is
    not finite or there is one row only, exactly 0 where all are equal."""
    result = np.full(values.shape[1], np.nan)
    if values.shape[0] < 2:
        return result
    finite = np.isfinite(values).all(axis=0)
    kept = values[:, finite]
    # The rounded mean of equal numbers may differ from them: zero is decided by equality.
    result[finite] = np.where((kept == kept[0]).all(axis=0), 0.0, kept.std(axis=0, ddof=1))
    return result


# ---- convergence ------------------------------------------------------------------------------------

CONVERGED = 0.99  # of the best value of the run


def epochs_to_converge(values: np.ndarray, share: float = CONVERGED) -> np.ndarray:
    """(R,) the first epoch, from 1, at which each run's metric (R, E) reaches `share` of the best value
    of that run; NaN for a run without a finite value. (Pham et al., ASE 2020, compare the time of
    training to convergence and leave the criterion to each network.)"""
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"values must be (runs, epochs) and not empty, not {values.shape}")
    finite = np.where(np.isfinite(values), values, -np.inf)
    best = finite.max(axis=1)
    reached = finite >= share * best[:, None]
    return np.where(np.isfinite(best), reached.argmax(axis=1) + 1.0, np.nan)


def rel_diff(values: np.ndarray) -> float | None:
    """RelDiff = (slowest - fastest) / fastest (Pham et al., ASE 2020, section 3.3). Of (n,) positive
    values; those that are not finite are left out. None for fewer than two, or a fastest of 0."""
    kept = values[np.isfinite(values)]
    if len(kept) < 2 or kept.min() <= 0:
        return None
    return float((kept.max() - kept.min()) / kept.min())


def rel_sd(values: np.ndarray) -> float | None:
    """RelSD = SD / mean (same source); None for fewer than two finite values, or a mean of 0."""
    kept = values[np.isfinite(values)]
    if len(kept) < 2 or kept.mean() == 0:
        return None
    return float(column_sd(kept[:, None])[0] / abs(kept.mean()))
