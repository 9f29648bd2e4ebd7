"""Power: which difference n runs a set can show, and how many runs a difference needs.

For two sets of n runs each whose metric is about normal with one SD, compared two-sidedly in a family of
`tests` that Holm corrects. Holm's first and hardest step is at ALPHA / tests, so that is the level planned
with: the result is never too hopeful. Up to SIMULATED runs a set, or pairs, the power is that of DRAWN
simulated ones, for the formulas know neither the discrete p of few runs nor Welch's degrees of freedom.
Beyond, Welch's t test has the power of Student's, and Brunner and Munzel's, as Mann-Whitney's U, needs pi / 3
times its runs (Hodges and Lehmann, 1956: asymptotic relative efficiency 3 / pi). Of n pairs with the SD of
their differences, Student's t has an exact formula, and sign flips beyond SIMULATED, or at levels that too
few of DRAWN_FLIPS reach, its power (asymptotic relative efficiency 1)."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from enum import StrEnum

import numpy as np
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from analysis.results.model import ALPHA
from analysis.stats.ranks import SAME, critical_value, statistics_of
from analysis.stats.statistics import UPPER, runs_needed, smallest_p

POWER = 0.8
RANK_EFFICIENCY = 3 / math.pi
LARGEST_EFFECT = 1e3  # standard deviations; no power is asked for beyond
MOST_RUNS = 10_000_000
SMALLEST_EFFECT = 5e-4  # standard deviations; so many runs show none below
SIMULATED = 40  # runs
DRAWN = 2_000
ENUMERATED = 16  # pairs, of which all sign flips are looked at
DRAWN_FLIPS = 9_999
RAREST = 1e-3  # the level of sign flips that are drawn
STEPS = 20  # halvings: a millionth of the effect
SEED = 1


class Test(StrEnum):
    """Which test is planned for."""

    __test__ = False  # not for pytest

    WELCH = "welch"
    RANKS = "brunner-munzel"
    PAIRED_T = "paired-t"
    SIGN_FLIPS = "sign-flips"


PAIRED = (Test.PAIRED_T, Test.SIGN_FLIPS)


def power(n: int, effect: float, tests: int, test: Test = Test.RANKS) -> float:
    """The probability that n runs a set, or n pairs, show a difference of `effect` standard deviations."""
    if n < 2 or tests * _attainable(n, test) > ALPHA:
        return 0.0
    rare = test is Test.SIGN_FLIPS and n > ENUMERATED and ALPHA / tests < RAREST
    if n <= SIMULATED and test is not Test.PAIRED_T and not rare:
        return _simulated(n, effect, test, ALPHA / tests)
    if test in PAIRED:
        exact = float(TTestPower().power(effect, n, ALPHA / tests))
        return exact if 0 <= exact <= 1 else _by_normal(effect * math.sqrt(n), n - 1, ALPHA / tests)
    size = n * RANK_EFFICIENCY if test is Test.RANKS else float(n)
    exact = float(TTestIndPower().power(effect, size, ALPHA / tests, ratio=1, alternative="two-sided"))
    # The library's series for the noncentral t fails far out: NaN, or a little below 0.
    return exact if 0 <= exact <= 1 else _by_normal(effect * math.sqrt(size / 2), 2 * size - 2, ALPHA / tests)


def _attainable(n: int, test: Test) -> float:
    """The smallest p that n runs a set, or n pairs, can have."""
    if test is Test.RANKS:
        return smallest_p(n, n)
    return 2.0 ** (1 - n) if test is Test.SIGN_FLIPS else 0.0


def _simulated(n: int, effect: float, test: Test, level: float) -> float:
    if test is Test.SIGN_FLIPS:
        return float(np.mean(effect > _flips_reject_beyond(n, level)))
    a, b = _drawn(n)
    if test is Test.RANKS:
        found = np.abs(statistics_of(a + effect, b)) >= critical_value(n, n, level) - SAME
    else:
        found = stats.ttest_ind(a + effect, b, axis=1, equal_var=False).pvalue <= level
    return float(np.mean(found))


@functools.lru_cache(maxsize=64)
def _flips_reject_beyond(n: int, level: float) -> np.ndarray:
    """(DRAWN,) the effect from which on sign flips of each simulated n pairs reach the level: fewer of the
    assignments than it allows flip pairs whose mean is then 0 or less (Hartigan, 1969: typical values)."""
    exact = n <= ENUMERATED
    allowed = math.floor(level / 2 * (2**n if exact else DRAWN_FLIPS + 1) + SAME)  # the observed one is one
    if allowed < 1:
        return np.full(DRAWN, np.inf)
    if exact:
        flipped = np.arange(1, 2**n)[:, None] >> np.arange(n) & 1
    else:
        flipped = np.random.default_rng(SEED).integers(2, size=(DRAWN_FLIPS, n))
    shares = (-flipped / np.maximum(1, flipped.sum(axis=1, keepdims=True))).T.astype(np.float32)
    parts = np.array_split(_drawn(n)[0].astype(np.float32), DRAWN // 50)  # for the memory
    return np.concatenate([np.partition(part @ shares, -allowed, axis=1)[:, -allowed] for part in parts])


@functools.lru_cache(maxsize=4)
def _drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for every effect, so that power grows with it."""
    drawn = np.random.default_rng(SEED).normal(size=(2, DRAWN, n))
    return drawn[0], drawn[1]


def _by_normal(noncentrality: float, freedom: float, level: float) -> float:
    """The normal approximation of the noncentral t (Johnson and Welch, 1940)."""
    critical = float(stats.t.isf(level / 2, freedom))
    shifted = critical * (1 - 1 / (4 * freedom)) - noncentrality
    return float(stats.norm.sf(shifted / math.sqrt(1 + critical**2 / (2 * freedom))))


def sd_bounds(sd: float, freedom: float) -> tuple[float, float]:
    """The interval of an SD of normal values with so many degrees of freedom, by chi-square."""
    low, high = (sd * math.sqrt(freedom / stats.chi2.ppf(share, freedom)) for share in (UPPER, 1 - UPPER))
    return low, high


def detectable(n: int, sd: float, tests: int, test: Test = Test.RANKS) -> float | None:
    """The smallest difference that n runs a set show with power POWER; None where no difference is
    large enough for so few runs. `sd` is above 0: from equal runs no power follows."""
    units = _units(n, tests, test)
    return None if units is None else units * sd


@functools.cache
def _units(n: int, tests: int, test: Test) -> float | None:
    """`detectable` in standard deviations."""
    low, high = 0.0, 1.0
    while power(n, high, tests, test) < POWER:
        low, high = high, 2 * high
        if high > LARGEST_EFFECT:
            return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if power(n, middle, tests, test) >= POWER else (middle, high)
    return high


def runs_for(difference: float, sd: float, tests: int, test: Test = Test.RANKS) -> int | None:
    """The fewest runs a set that show a difference with power POWER; None for more than ten
    million. Raises ValueError unless `difference` and `sd` are above 0."""
    if not min(difference, sd) > 0:
        raise ValueError("a difference to plan for, and its SD, must be larger than 0")
    effect = min(difference / sd, LARGEST_EFFECT)
    if effect < SMALLEST_EFFECT:
        return None
    fewest = runs_needed(tests) if test is Test.RANKS else 2
    if power(fewest, effect, tests, test) >= POWER:
        return fewest
    low, high = fewest, 2 * fewest
    while power(high, effect, tests, test) < POWER:
        low, high = high, 2 * high
        if high > MOST_RUNS:
            return None
    reached = range(low + 1, high + 1)  # no further: the exact p of many runs takes long
    return reached[bisect_left(reached, True, key=lambda n: power(n, effect, tests, test) >= POWER)]
