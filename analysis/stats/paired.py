"""Differences within matched pairs: do they lie around 0, how large are they, are they within a margin?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats.effects import Equivalence, noncentral_bounds
from analysis.stats.statistics import (
    CONFIDENCE,
    RATIOS_FROM,
    Bounds,
    Comparison,
    Estimate,
    from_logarithm,
)

ENUMERATED = 16  # pairs up to which all assignments of signs are looked at
DRAWN = 9_999
SEED = 1
ROUNDING = 1e-9  # of the largest difference: far above what floats leave, far below what a metric resolves


def _all_equal(differences: np.ndarray) -> bool:
    """0.8 - 0.7 and 0.3 - 0.2 differ in their last bits; that is no variance."""
    return len(differences) > 0 and bool(np.ptp(differences) <= ROUNDING * np.abs(differences).max())


def sign_flips(differences: np.ndarray) -> Comparison:
    """Two-sided permutation test of a mean difference of 0: within a pair either value could have been of
    either setting (Fisher 1935, section 21). Exact up to ENUMERATED pairs. `delta` is the share of pairs in
    which the first is larger, less that in which it is smaller."""
    n = len(differences)
    delta = float(np.sign(differences).mean()) if n else None
    smallest = 2.0 ** (1 - n) if n else None

    def found(p: float | None, method: str) -> Comparison:
        return Comparison(n_a=n, n_b=n, p=p, smallest_p=smallest, delta=delta, method=method)

    if n < 2:
        return found(None, "fewer than two pairs")
    if not differences.any():
        return found(None, "all pairs equal")
    scaled = differences / np.abs(differences).max()  # scipy compares with a tolerance that is absolute
    exact = n <= ENUMERATED
    p = stats.permutation_test(
        (scaled,),
        lambda d, axis: d.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if exact else DRAWN,
        rng=np.random.default_rng(SEED),
    ).pvalue
    return found(min(1.0, float(p)), "exact sign flips of pairs" if exact else f"{DRAWN} sign flips of pairs")


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
