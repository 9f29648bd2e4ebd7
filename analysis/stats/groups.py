"""Tests over several sets at once: do they differ in location (Kruskal-Wallis), in
dispersion (Brown-Forsythe)? Small sets get permutation p values, drawn from a generator with a fixed seed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.stats.statistics import finite, is_constant

SMALL = 10  # runs; below it the distributions of H and W are not those of the formulas
PERMUTATIONS = 9_999  # enumerated when there are no more arrangements, else drawn
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTest:
    """One test over the sets. `p` is None when there was nothing to test; `method` then says why."""

    sizes: tuple[int, ...]
    statistic: float | None = None
    p: float | None = None
    method: str


def kruskal_wallis(groups: Sequence[np.ndarray]) -> GroupTest:
    """Do the sets differ in location? H with the correction for ties, p by chi-square, or by
    permutation of the ranks when a set has fewer than SMALL values. Values that are not finite are left
    out. Sets that are all constant are not tested: their runs are copies of one observation."""
    kept = [finite(group) for group in groups]
    sizes = tuple(map(len, kept))
    if len(kept) < 2 or min(sizes) < 2:
        return GroupTest(sizes=sizes, method=_too_few(sizes, 2))
    if all(is_constant(group) for group in kept):
        equal = len({float(group[0]) for group in kept}) == 1
        return GroupTest(sizes=sizes, method="all conditions constant, " + ("equal" if equal else "unequal"))
    h, p = (float(value) for value in stats.kruskal(*kept))
    if min(sizes) >= SMALL:
        return GroupTest(sizes=sizes, statistic=h, p=p, method="chi-square")
    ranks = np.split(stats.rankdata(np.concatenate(kept)), np.cumsum(sizes)[:-1])
    p, method = _permuted(ranks)
    return GroupTest(sizes=sizes, statistic=h, p=p, method=method)


def friedman(values: np.ndarray) -> GroupTest:
    """Do the sets differ in location, of matched values (seeds, sets)? Friedman's ranks within each seed
    (1937), p by permutation of the labels within seeds; the statistic for three sets or more."""
    seeds, sets = values.shape
    sizes = (seeds,) * sets
    if (values == values[:, :1]).all():
        return GroupTest(sizes=sizes, method="the conditions are equal for each seed")
    ranks = stats.rankdata(values, axis=1)
    statistic = float(stats.friedmanchisquare(*values.T).statistic) if sets > 2 else None
    p, method = _permuted(list(ranks.T), "samples")
    return GroupTest(sizes=sizes, statistic=statistic, p=p, method=f"{method} within seeds")


def brown_forsythe(groups: Sequence[np.ndarray]) -> GroupTest:
    """Do the sets differ in dispersion? Levene's W of the distances from each set's median (Brown and
    Forsythe 1974), without the zero that each set has by structure (Hines and Hines 2000), p by the F
    distribution, or by permutation of these distances when a set has fewer than SMALL values (approximate:
    the distances of one set are not independent). Needs three values a set: two lie equally far from their
    median. Sets that are all constant are not tested."""
    kept = [finite(group) for group in groups]
    sizes = tuple(map(len, kept))
    if len(kept) < 2 or min(sizes) < 3:
        return GroupTest(sizes=sizes, method=_too_few(sizes, 3))
    if all(is_constant(group) for group in kept):
        return GroupTest(sizes=sizes, method="all conditions constant: no dispersion to compare")
    if all(is_constant(np.abs(group - np.median(group))) for group in kept):
        return GroupTest(sizes=sizes, method="the distances from the medians do not vary")
    distances = [_distances(group) for group in kept]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # SciPy before 1.17: W is infinite
        w, p = (float(value) for value in stats.f_oneway(*distances))
    if min(sizes) >= SMALL:
        return GroupTest(sizes=sizes, statistic=w, p=p, method="F distribution")
    p, method = _permuted(distances)
    return GroupTest(sizes=sizes, statistic=w, p=p, method=method)


def _distances(values: np.ndarray) -> np.ndarray:
    """(n - 1,) the distances from the median without the one that structure makes zero (Hines and Hines
    2000): of an odd number of values the median's own; of an even number the two middle ones are equal, and
    turned into zero and sqrt(2) times their distance."""
    found = np.sort(np.abs(values - np.median(values)))
    if len(values) % 2 == 0:
        found[1] *= np.sqrt(2)
    return np.asarray(found[1:])


def _too_few(sizes: Sequence[int], least: int) -> str:
    return "one condition only" if len(sizes) < 2 else f"fewer than {least} observations in a condition"


def _between(*groups: np.ndarray, axis: int) -> np.ndarray:
    """The sum of squares between the groups but for a constant: the pooled values being fixed, H and W
    grow with it and with nothing else."""
    parts = [group.sum(axis=axis) ** 2 / group.shape[axis] for group in groups]
    # Rounding would separate arrangements whose sums are equal.
    return np.asarray(np.round(np.sum(parts, axis=0), 12))


def _permuted(groups: Sequence[np.ndarray], kind: str = "independent") -> tuple[float, str]:
    scale = max(float(np.abs(np.concatenate(groups)).max()), np.finfo(float).tiny)
    result = stats.permutation_test(
        [group / scale for group in groups],
        _between,
        permutation_type=kind,
        vectorized=True,
        n_resamples=PERMUTATIONS,
        alternative="greater",
        random_state=np.random.default_rng(SEED),
    )
    exact = len(result.null_distribution) < PERMUTATIONS
    return float(result.pvalue), "exact permutation" if exact else f"{PERMUTATIONS} permutations"
