"""Differences within matched pairs: do they lie around 0, how large are they, are they within a margin?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats.effects import Equivalence, noncentral_bounds
from analysis.stats.statistics import (
    CONFIDENCE,
    EXTREME,
    RATIOS_FROM,
    Bounds,
    Comparison,
    Estimate,
    from_logarithm,
    numbers_drawn,
)

ENUMERATED = 40  # pairs up to which all assignments of signs are looked at
BLOCK = 10_000  # assignments that are drawn at once, for the memory
SEED = 1
ROUNDING = 1e-9  # of the largest difference: far above what floats leave, far below what a metric resolves


def _all_equal(differences: np.ndarray) -> bool:
    """0.8 - 0.7 and 0.3 - 0.2 differ in their last bits; that is no variance."""
    return len(differences) > 0 and bool(np.ptp(differences) <= ROUNDING * np.abs(differences).max())


def sign_flips(differences: np.ndarray) -> Comparison:
    """Two-sided permutation test of a mean difference of 0: within a pair either value could have been of
    either setting (Fisher 1935, section 21). Pairs without a difference change nothing. Exact up to
    ENUMERATED others, and where these have one sign. `delta` is the share of pairs in which the first is
    larger, less that in which it is smaller."""
    n = len(differences)
    delta = float(np.sign(differences).mean()) if n else None

    def found(p: float | None, smallest: float | None, method: str) -> Comparison:
        return Comparison(n_a=n, n_b=n, p=p, smallest_p=smallest, delta=delta, method=method)

    if not differences.any():
        return found(None, None, "fewer than two pairs" if n < 2 else "all pairs equal")
    scaled = differences / np.abs(differences).max()
    scaled = scaled[np.abs(scaled) > ROUNDING]
    smallest = 2.0 ** (1 - len(scaled))
    if n < 2:
        return found(None, smallest, "fewer than two pairs")
    p, drawn = smallest, 0
    if abs(np.sign(scaled).sum()) < len(scaled):
        p, drawn = _flipped(scaled, abs(float(scaled.sum())) - ROUNDING)
    return found(p, smallest, f"{drawn} sign flips of pairs" if drawn else "exact sign flips of pairs")


def _flipped(values: np.ndarray, total: float) -> tuple[float, int]:
    """The share of the assignments of signs with a sum `total` from 0, and how many were drawn (0: none)."""
    n = len(values)
    if n <= ENUMERATED:
        # Each half has few assignments: those of the one are looked up among those of the other.
        half, other = _sums(values[: n // 2]), np.sort(_sums(values[n // 2 :]))
        above = len(half) * len(other) - int(np.searchsorted(other, total - half).sum())
        return min(1.0, 2 * above / 2**n), 0
    rng, extreme, done = np.random.default_rng(SEED), 0, 0
    for drawn in numbers_drawn(n):
        while done < drawn:
            size = min(BLOCK, drawn - done)
            sums = (2 * rng.integers(2, size=(size, n)) - 1) @ values
            extreme, done = extreme + int((np.abs(sums) >= total).sum()), done + size
        if extreme >= EXTREME:
            break
    return (extreme + 1) / (done + 1), done


def _sums(values: np.ndarray) -> np.ndarray:
    """(2**n,) of the values, each with either sign."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def bounds(differences: np.ndarray, confidence: float = CONFIDENCE) -> Bounds:
    """The interval of the mean difference by Student's t; None below two pairs or without variance."""
    if len(differences) < 2 or _all_equal(differences):
        return None, None
    low, high = DescrStatsW(differences).tconfint_mean(alpha=1 - confidence)
    return float(low), float(high)


def ratio(ratios: Sequence[float] | np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """The geometric mean of the ratios (n,) of positive pairs, with its interval by Student's t on
    logarithms; none below RATIOS_FROM pairs or without variance."""
    logs = np.log(ratios)
    low, high = bounds(logs, confidence) if len(logs) >= RATIOS_FROM else (None, None)
    return from_logarithm(float(logs.mean()), low, high, len(logs))


def standardised(differences: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """The mean difference in SDs of the differences (Cohen's d_z), with the interval by the noncentral t
    distribution."""
    n = len(differences)
    if n < 2 or _all_equal(differences):
        reason = "fewer than two pairs" if n < 2 else "all differences equal"
        return Estimate(value=None, n=n, note=reason)
    sd = float(differences.std(ddof=1))
    if sd == 0:
        return Estimate(value=None, n=n, note="variance too small to divide by")
    d = float(differences.mean()) / sd
    low, high = noncentral_bounds(d, math.sqrt(n), n - 1, n, confidence)
    return Estimate(value=d, low=low, high=high, n=n)


def tost_pairs(differences: np.ndarray, margin: float, confidence: float = CONFIDENCE) -> Equivalence:
    """Two one-sided paired t tests of |mean difference| >= margin (Schuirmann 1987)."""
    n = len(differences)
    if n < 2 or _all_equal(differences):
        return Equivalence(method="fewer than two pairs" if n < 2 else "all differences equal")
    described = DescrStatsW(differences)
    p, *_ = described.ttost_mean(-margin, margin)
    low, high = described.tconfint_mean(alpha=2 * (1 - confidence))
    return Equivalence(low=float(low), high=float(high), p=float(p), method="paired t")
