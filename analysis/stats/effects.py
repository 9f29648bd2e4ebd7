"""How large differences are, with intervals; how equal two sets are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from analysis.stats.statistics import CONFIDENCE, Estimate, cliffs_delta, finite, is_constant

DELTA_FROM = 5  # runs a set, for an interval of Cliff's delta
FAR = 1e4  # of t, beyond which the noncentral t distribution takes minutes or does not end


def cliffs(a: np.ndarray, b: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """Cliff's delta, P(a > b) - P(a < b), with the asymmetric interval of Feng and Cliff 2004 (Student's
    t, n_a + n_b - 2 degrees of freedom). At complete separation its variance vanishes, and the inner bound
    is (m - z^2) / (m + z^2) with the smaller size m (same source). No interval below DELTA_FROM values a set,
    where it would hold for certain and say nothing."""
    x, y = finite(a), finite(b)
    n, m = len(x), len(y)
    delta = cliffs_delta(x, y)
    if delta is None or min(n, m) < DELTA_FROM:
        return Estimate(value=delta, n=n + m)
    if is_constant(x) and is_constant(y):
        return Estimate(value=delta, n=n + m)
    z = float(stats.t.ppf((1 + confidence) / 2, n + m - 2))
    if abs(delta) == 1:
        inner = (min(n, m) - z**2) / (min(n, m) + z**2)
        low, high = (inner, 1.0) if delta > 0 else (-1.0, -inner)
        return Estimate(value=delta, low=low, high=high, n=n + m)
    signs = np.sign(x[:, None] - y[None, :])
    rows = ((signs.mean(axis=1) - delta) ** 2).sum()
    columns = ((signs.mean(axis=0) - delta) ** 2).sum()
    cells = ((signs - delta) ** 2).sum()
    variance = (m**2 * rows + n**2 * columns - cells) / (m * n * (m - 1) * (n - 1))
    variance = max(variance, (1 - delta**2) / (m * n - 1))
    root = z * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + z**2 * variance)
    below = 1 - delta**2 + z**2 * variance
    low, high = ((delta - delta**3 + sign * root) / below for sign in (-1, 1))
    return Estimate(value=delta, low=max(-1.0, low), high=min(1.0, high), n=n + m)


def hedges_g(a: np.ndarray, b: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """Cohen's d = (m0 - m1) / sqrt((s0^2 + s1^2) / 2) (Pham et al., ASE 2020, section 3.3) less its bias, by
    Hedges' factor gamma(f/2) / (sqrt(f/2) gamma((f-1)/2)) with f = n_a + n_b - 2 (Hedges 1981), with the
    interval of d's true value by the noncentral t distribution: exact for normal values of equal n and
    variance. None, and why, without variance in either set."""
    x, y = finite(a), finite(b)
    n, m = len(x), len(y)
    if min(n, m) < 2:
        return Estimate(value=None, n=n + m, note="fewer than two observations in a condition")
    if is_constant(x) and is_constant(y):
        note = "no variance in either condition, " + ("equal" if x[0] == y[0] else "unequal")
        return Estimate(value=None, n=n + m, note=note)
    sd = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
    d = float(x.mean() - y.mean()) / sd if sd else math.inf
    if not math.isfinite(d):
        return Estimate(value=None, n=n + m, note="variance too small to divide by")
    low, high = noncentral_bounds(d, math.sqrt(n * m / (n + m)), n + m - 2, n + m, confidence)
    half_f = (n + m - 2) / 2
    factor = math.exp(math.lgamma(half_f) - math.lgamma(half_f - 0.5)) / math.sqrt(half_f)
    return Estimate(value=factor * d, low=low, high=high, n=n + m)


def noncentral_bounds(d: float, to_t: float, freedom: int, n: int, confidence: float) -> tuple[float, float]:
    """The interval of a standardised difference d of n values in all, of which `to_t` d is noncentral t. The
    formula of that distribution fails far out; there the normal approximation of Hedges and Olkin 1985 stands
    in."""
    if abs(d * to_t) < FAR:
        tails = ((1 + confidence) / 2, (1 - confidence) / 2)
        low, high = (float(special.nctdtrinc(freedom, tail, d * to_t)) / to_t for tail in tails)
        if math.isfinite(low) and math.isfinite(high) and low <= d <= high:
            return low, high
    half = float(stats.norm.ppf((1 + confidence) / 2)) * math.sqrt(1 / to_t**2 + d**2 / (2 * n))
    return d - half, d + half


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Whether two sets have the same mean up to a margin. `low` and `high` are the interval of the
    difference (a - b) that corresponds to two one-sided tests, 90 % for tests at 5 %. `p` is None when there
    was nothing to test; `method` then says why."""

    low: float | None = None
    high: float | None = None
    p: float | None = None
    method: str


def tost(a: np.ndarray, b: np.ndarray, margin: float, confidence: float = CONFIDENCE) -> Equivalence:
    """Two one-sided Welch t tests of |mean a - mean b| >= margin (Schuirmann 1987): a small p says
    that the means are equivalent. Two constant sets are compared, not tested."""
    if not margin > 0:
        raise ValueError(f"the margin of equivalence must be above 0, not {margin}")
    x, y = finite(a), finite(b)
    if min(len(x), len(y)) < 2:
        return Equivalence(method="fewer than two observations in a condition")
    if is_constant(x) and is_constant(y):
        return Equivalence(method="both conditions constant, " + ("equal" if x[0] == y[0] else "unequal"))
    compared = CompareMeans(DescrStatsW(x), DescrStatsW(y))
    p, *_ = compared.ttost_ind(-margin, margin, usevar="unequal")
    low, high = compared.tconfint_diff(alpha=2 * (1 - confidence), usevar="unequal")
    return Equivalence(low=float(low), high=float(high), p=float(p), method="Welch")
