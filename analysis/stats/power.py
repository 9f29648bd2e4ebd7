"""Power: which difference n runs a set can show, and how many runs a difference needs.

For two sets of n runs each whose metric is about normal with one SD, compared two-sidedly in a family of
`tests` that Holm corrects. Holm's first and hardest step is at alpha / tests, so that is the level planned
with: the result is never too hopeful. Welch's t test has then the power of Student's (equal n, equal SD).
Mann-Whitney's U on normal values needs pi / 3 times its runs (Hodges and Lehmann, 1956: asymptotic
relative efficiency 3 / pi), and never fewer than let its exact p reach the level at all."""

from __future__ import annotations

import math
from bisect import bisect_left
from enum import StrEnum

from scipy import stats
from statsmodels.stats.power import TTestIndPower

from analysis.results.model import ALPHA
from analysis.stats.statistics import runs_needed, smallest_p

POWER = 0.8
RANK_EFFICIENCY = 3 / math.pi
LARGEST_EFFECT = 1e3  # standard deviations; no power is asked for beyond
MOST_RUNS = 10_000_000


class Test(StrEnum):
    """Which test is planned for."""

    __test__ = False  # not for pytest

    WELCH = "welch"
    RANKS = "mann-whitney"


def power(n: int, effect: float, tests: int, test: Test = Test.RANKS, alpha: float = ALPHA) -> float:
    """The probability that n runs a set show a difference of `effect` standard deviations."""
    if n < 2 or (test is Test.RANKS and tests * smallest_p(n, n) > alpha):
        return 0.0
    size = n * RANK_EFFICIENCY if test is Test.RANKS else float(n)
    exact = float(TTestIndPower().power(effect, size, alpha / tests, ratio=1, alternative="two-sided"))
    # The library's series for the noncentral t fails far out: NaN, or a little below 0.
    return exact if 0 <= exact <= 1 else _by_normal(effect, size, alpha / tests)


def _by_normal(effect: float, size: float, level: float) -> float:
    """The normal approximation of the noncentral t (Johnson and Welch, 1940)."""
    freedom = 2 * size - 2
    critical = float(stats.t.isf(level / 2, freedom))
    shifted = critical * (1 - 1 / (4 * freedom)) - effect * math.sqrt(size / 2)
    return float(stats.norm.sf(shifted / math.sqrt(1 + critical**2 / (2 * freedom))))


def detectable(
    n: int, sd: float, tests: int, test: Test = Test.RANKS, alpha: float = ALPHA, wanted: float = POWER
) -> float | None:
    """The smallest difference that n runs a set show with the wanted power; None where no difference
    is large enough for so few runs. Without variance it is 0: any difference is seen at once."""
    if sd == 0:
        return 0.0
    low, high = 0.0, 1.0
    while power(n, high, tests, test, alpha) < wanted:
        low, high = high, 2 * high
        if high > LARGEST_EFFECT:
            return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if power(n, middle, tests, test, alpha) >= wanted else (middle, high)
    return high * sd


def runs_for(
    difference: float,
    sd: float,
    tests: int,
    test: Test = Test.RANKS,
    alpha: float = ALPHA,
    wanted: float = POWER,
) -> int | None:
    """The fewest runs a set that show a difference with the wanted power; None for more than ten
    million. Without variance one run a set shows it. Raises ValueError unless `difference` > 0."""
    if not difference > 0:
        raise ValueError("a difference to plan for must be larger than 0")
    if sd == 0:
        return 1
    effect = difference / sd
    fewest = runs_needed(tests, alpha) if test is Test.RANKS else 2
    if power(fewest, effect, tests, test, alpha) >= wanted:
        return fewest
    low, high = fewest, 2 * fewest
    while power(high, effect, tests, test, alpha) < wanted:
        low, high = high, 2 * high
        if high > MOST_RUNS:
            return None
    reached = range(low + 1, high + 1)  # no further: the exact p of many runs takes long
    return reached[bisect_left(reached, True, key=lambda n: power(n, effect, tests, test, alpha) >= wanted)]
