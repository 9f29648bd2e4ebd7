"""Intervals and tests. n is always carried, a set without variance is reported as such, and no p
value is ever NaN. Everything here is exact or a formula: nothing is drawn at random. What other modules of
this room draw is from generators with a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from analysis.results.model import ALPHA, bound_names
from guest.records.run import Metric

# Below these numbers of values simulated intervals do not cover what they say (docs/statistics.md).
MEAN_FROM = 5
SD_FROM = 10
PAIRS_FROM = 3
RATIOS_FROM = 3  # at two, Student's t is 12.7: bounds of a ratio would span orders of magnitude
INTERVALS_NOTE = (
    "Intervals of 95 %: means by Hall's transformed t, SD by Bonett's method; a mean needs "
    f"{MEAN_FROM} runs that are no copies for one, an SD {SD_FROM}, a ratio {RATIOS_FROM} runs, and not all "
    "of one value."
)
PROPORTION = (0.0, 1.0)
NOT_NEGATIVE = (0.0, math.inf)
Bounds = tuple[float | None, float | None]  # of an interval; None where there is none
CONFIDENCE = 0.95
DRAWN = (9_999, 99_999)  # arrangements
VALUES_DRAWN = 10_000_000  # values of arrangements, up to which more are drawn: about a second
EXTREME = 10
UPPER = (1 + CONFIDENCE) / 2  # the share of a distribution below the end of a two-sided interval


def bounds_of(metric: str) -> tuple[float, float] | None:
    """What a metric of ours can be at least and at most; None of a project's own."""
    return PROPORTION if metric in {each.value for each in Metric} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number from n finite values, with its interval. `low` and `high` are None where n does not
    allow one; where there is no number, `note` may say why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int
    note: str = ""

    def cells(self, name: str, bounds: str | None = None) -> dict[str, float | None]:
        """The value and its bounds by the column names of `results.model.interval`."""
        low, high = bound_names(name if bounds is None else bounds)
        return {name: self.value, low: self.low, high: self.high}


def exactly(value: float | None, n: int) -> Estimate:
    """What has no sampling error: the common value of n copies of one run."""
    return Estimate(value=value, low=value, high=value, n=n)


def mean(
    values: Sequence[float] | np.ndarray,
    confidence: float = CONFIDENCE,
    *,
    within: tuple[float, float] | None = None,
) -> Estimate:
    """The mean with the interval of Hall's transformed t (Hall 1992, section 2: the skewness is taken out
    by a monotone cubic), which is near Student's for symmetric values. No interval below MEAN_FROM values
    and for values that are all equal. Values that are not finite are left out of it and of n; `within` are
    the bounds of what the values can be, to which the interval is cut (a project may give percents)."""
    kept = finite(values)
    n, constant = len(kept), is_constant(kept)
    if n == 0:
        return Estimate(value=None, n=0)
    centre = float(kept[0]) if constant else float(kept.mean())
    s = float(kept.std(ddof=1)) if n > 1 else 0.0
    if n < MEAN_FROM or constant or s == 0:  # of values that differ by less than can be squared
        return Estimate(value=centre, n=n)
    third = float(stats.skew((kept - centre) / s, bias=False)) / 3
    t = float(stats.t.ppf((1 + confidence) / 2, n - 1)) / math.sqrt(n)
    low, high = (centre - s * _inverse(u, third, n) for u in (t, -t))
    if within is not None and within[0] <= kept.min() and kept.max() <= within[1]:
        low, high = max(low, within[0]), min(high, within[1])
    return Estimate(value=centre, low=low, high=high, n=n)


def _inverse(u: float, third: float, n: int) -> float:
    """The x with x + a x^2 + a^2 x^3 / 3 + a / (2 n) = u, where a is a third of the skewness."""
    if abs(third) < 1e-6:
        return u
    return float(np.cbrt(1 + 3 * third * (u - third / (2 * n))) - 1) / third


def sd(values: Sequence[float] | np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """The sample standard deviation with Bonett's interval (2006), which takes the kurtosis from the values
    and so does not suppose them normal. No interval below SD_FROM values and for values that are all
    equal."""
    kept = finite(values)
    n = len(kept)
    if n < 2:
        return Estimate(value=None, n=n)
    s = 0.0 if is_constant(kept) else float(kept.std(ddof=1))
    if n < SD_FROM or s == 0:
        return Estimate(value=s, n=n)
    z = float(stats.norm.ppf((1 + confidence) / 2))
    small = n / (n - z)
    half = z * small * math.sqrt(max(0.0, kurtosis(kept) - (n - 3) / n) / (n - 1))
    low, high = (s * math.sqrt(small * math.exp(sign * half)) for sign in (-1, 1))
    return Estimate(value=s, low=low, high=high, n=n)


def kurtosis(values: np.ndarray) -> float:
    """Of more than four finite values that are not all equal, around their trimmed mean, which is less
    biased for few (Bonett 2006, equation 3); 3 is a normal distribution's."""
    n = len(values)
    unit = (values - values.mean()) / values.std(ddof=1)
    trimmed = stats.trim_mean(unit, 1 / (2 * math.sqrt(n - 4)))
    return n * float(((unit - trimmed) ** 4).sum()) / (n - 1) ** 2


def effective(freedom: float, values: np.ndarray, least: float = 0.0) -> float:
    """The degrees of freedom of normal values whose variance would be as uncertain as that of `values`,
    deviations around 0 or a mean (Box 1953). `least` is the excess kurtosis that is supposed where few
    values show none."""
    known = len(values) > 4 and not is_constant(values)
    return freedom / (1 + max(least, kurtosis(values) - 3 if known else 0.0) / 2)


def pooled_sd(sets: Iterable[Sequence[float] | np.ndarray]) -> tuple[float | None, int, int]:
    """(the SD within sets, pooled by their degrees of freedom; these; the values it is from). None where no
    set has two finite values. Equal values give exactly 0."""
    kept = [values for values in map(finite, sets) if len(values) > 1]
    freedom, n = sum(len(values) - 1 for values in kept), sum(map(len, kept))
    squares = sum(float(((v - v.mean()) ** 2).sum()) for v in kept if not is_constant(v))
    return (math.sqrt(squares / freedom) if freedom else None), freedom, n


def share(count: float, of: float, *, method: str = "wilson") -> Estimate:
    """A share of independent cases with Wilson's interval (1927); counts may be means of counts. No value
    where there are no cases. Method `beta` is Clopper and Pearson's (1934), which covers for few cases
    too."""
    if of == 0:
        return Estimate(value=None, n=0)
    low, high = proportion_confint(count, of, alpha=1 - CONFIDENCE, method=method)
    # Wilson's end there exactly, which rounding misses.
    low, high = 0.0 if count == 0 else float(low), 1.0 if count == of else float(high)
    return Estimate(value=count / of, low=low, high=high, n=int(of))


def mean_of_pairs(value: float, parts: Sequence[np.ndarray], *, most: float = math.inf) -> Estimate:
    """The interval of a mean over pairs of runs, between 0 and `most`. Pairs that share a run are not
    independent: runs are.

    `parts` has, for each set of runs, (R,) the sum over each run's pairs, equally many, divided by the number
    of all pairs. Their variance gives that of the mean (Hoeffding's projection of a U statistic, 1948), with
    Student's t and the degrees of freedom of Welch and Satterthwaite. No interval where a set has fewer than
    PAIRS_FROM runs; the runs must not be copies."""
    n = sum(map(len, parts))
    variances = [len(part) * float(part.var(ddof=1)) for part in parts if len(part) > 1]
    if len(parts) == 1 and n > 2:  # a set's own pairs: the jackknife, without which few runs are too sure
        variances = [v * ((n - 1) / (n - 2)) ** 2 for v in variances]
    total = sum(variances)
    if any(len(part) < PAIRS_FROM for part in parts) or total == 0:
        return Estimate(value=value, n=n)
    freedom = 1 / sum((v / total) ** 2 / (len(part) - 1) for v, part in zip(variances, parts, strict=True))
    half = float(stats.t.ppf(UPPER, freedom)) * math.sqrt(total)
    return Estimate(value=value, low=max(0.0, value - half), high=min(most, value + half), n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sets compared. `p` is None when there was nothing to test; `method` then says why.
    `smallest_p` is what these sizes could reach at best; `delta` is Cliff's, > 0 when a is larger."""

    n_a: int
    n_b: int
    u: float | None = None
    p: float | None = None
    smallest_p: float | None = None
    delta: float | None
    method: str


def smallest_p(n_a: int, n_b: int) -> float:
    """The smallest two-sided p a rank test of these sizes can reach: 2 of all C(n_a+n_b, n_a)
    arrangements are as extreme as complete separation."""
    return min(1.0, 2 / math.comb(n_a + n_b, n_a))


def numbers_drawn(values: int) -> list[int]:
    """How many arrangements of so many values a permutation test draws: as many as the first number, and the
    next where fewer than EXTREME of these are as extreme as the observed one. So p holds its level (Besag and
    Clifford 1991), and can become small enough for a large family."""
    most = max(DRAWN[0], VALUES_DRAWN // values)
    return [each for each in DRAWN if each < most] + [most]


def runs_needed(tests: int) -> int:
    """The runs a set must have before Holm's correction over `tests` tests can find anything."""
    n = 2
    while tests * smallest_p(n, n) > ALPHA:
        n += 1
    return n


def cliffs_delta(a: np.ndarray, b: np.ndarray) -> float | None:
    """P(a > b) - P(a < b), in [-1, 1]; None when a set is empty."""
    if len(a) == 0 or len(b) == 0:
        return None
    u = stats.mannwhitneyu(a, b, method="asymptotic").statistic
    return float(2 * u / (len(a) * len(b)) - 1)


def welch(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float | None:
    """Two-sided p of Welch's t test; None when a set has fewer than two values or both are constant."""
    means = _means(a, b)
    return None if means is None else float(means.ttest_ind(usevar="unequal")[1])


def welch_bounds(a: np.ndarray, b: np.ndarray, confidence: float = CONFIDENCE) -> Bounds:
    """The interval of mean(a) - mean(b) by Welch's t; None where there is none (as `welch`)."""
    means = _means(a, b)
    if means is None:
        return None, None
    low, high = means.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    return float(low), float(high)


def _means(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> CompareMeans | None:
    # statsmodels', which takes values that hardly differ; scipy's warns of them.
    x, y = finite(a), finite(b)
    if min(len(x), len(y)) < 2 or (is_constant(x) and is_constant(y)):
        return None
    return CompareMeans(DescrStatsW(x), DescrStatsW(y))


def ratio(a: np.ndarray, b: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio of the geometric means of positive values `a` over `b`, and its interval by Welch's t on
    logarithms; None without positive values, and no interval below RATIOS_FROM or without variance."""
    n = min(len(a), len(b))
    if not n or min(a.min(), b.min()) <= 0:
        return Estimate(value=None, n=n)
    x, y = np.log(a), np.log(b)
    bounds = welch_bounds(x, y, confidence) if n >= RATIOS_FROM else (None, None)
    return from_logarithm(float(x.mean() - y.mean()), *bounds, n)


def from_logarithm(value: float, low: float | None, high: float | None, n: int) -> Estimate:
    """The ratio whose logarithm, and its bounds, are known."""
    if low is None or high is None:
        return Estimate(value=math.exp(value), n=n)
    return Estimate(value=math.exp(value), low=math.exp(low), high=math.exp(high), n=n)


def ratio_of_sums(above: Sequence[float], below: Sequence[float]) -> Bounds:
    """The interval of sum(above) / sum(below), a share whose parts are clusters of cases (Cochran 1977,
    section 6.3: the ratio estimator), within [0, 1], by Student's t. None for fewer than two parts."""
    x, y = np.asarray(above, float), np.asarray(below, float)
    n, total = len(x), float(y.sum())
    if n < 2 or total == 0:
        return None, None
    value = float(x.sum()) / total
    error = math.sqrt(n / (n - 1) * float(((x - value * y) ** 2).sum())) / total
    half = float(stats.t.ppf(UPPER, n - 1)) * error
    return max(0.0, value - half), min(1.0, value + half)


def bonferroni(p: float | None, tests: int) -> float | None:
    """p corrected for so many tests; None (not tested) stays None."""
    return None if p is None else min(1.0, tests * p)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values over one family; None (not tested) stays None and does not count."""
    # statsmodels' `multipletests` collects garbage at every call, which takes seconds over a large study.
    tested = np.array([p for p in p_values if p is not None])
    order = np.argsort(tested)
    raised = np.minimum(1.0, np.maximum.accumulate(tested[order] * np.arange(len(tested), 0, -1)))
    adjusted = iter(raised[np.argsort(order)])
    return [None if p is None else float(next(adjusted)) for p in p_values]


def finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def is_constant(values: np.ndarray) -> bool:
    return len(values) > 0 and bool((values == values[0]).all())
