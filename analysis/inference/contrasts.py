"""Two thread settings as they are compared, everywhere: in tests, effects, equivalence, power and findings.

pairs     where both settings have runs of the same random numbers, several of them (crossed seeds, replayed
          projects): the difference of one seed is one observation. Copies count once, and what a
          seed gives more than once counts with its mean
two sets  else: each run that is no copy of another is one observation, or each seed where several seeds gave
          several models each (`analysis.stats.observations`)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.load.study import View, by_threads
from analysis.stats import paired, power, statistics
from analysis.stats.effects import Equivalence, cliffs, hedges_g, tost
from analysis.stats.observations import observed, values_by_seed
from analysis.stats.power import Test
from analysis.stats.ranks import brunner_munzel
from analysis.stats.statistics import Bounds, Comparison, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The observations `x` of thread setting `a` and `y` of `b`; of one length, and matched, where `matched`.
    `n_a` and `n_b` are the runs that they come from."""

    a: str
    b: str
    x: np.ndarray
    y: np.ndarray
    n_a: int
    n_b: int
    matched: bool

    @property
    def differences(self) -> np.ndarray:
        """Of matched pairs, a - b."""
        return np.asarray(self.x - self.y)

    def test(self) -> Comparison:
        """Do the two differ? Sign flips of pairs; Brunner and Munzel's test of two sets."""
        return paired.sign_flips(self.differences) if self.matched else brunner_munzel(self.x, self.y)

    def bounds(self, confidence: float = 0.95) -> Bounds:
        """Of the difference of the means, a - b."""
        if self.matched:
            return paired.bounds(self.differences, confidence)
        return statistics.welch_bounds(self.x, self.y, confidence)

    @property
    def difference(self) -> float | None:
        """Of the means, a - b; None where one has no observation."""
        return float(self.x.mean() - self.y.mean()) if len(self.x) and len(self.y) else None

    def effect(self, confidence: float = 0.95) -> Estimate:
        """In standard deviations: of the differences of pairs, or within the sets."""
        if self.matched:
            return paired.standardised(self.differences, confidence)
        return hedges_g(self.x, self.y, confidence)

    def delta(self, confidence: float = 0.95) -> Estimate:
        """Cliff's delta; of pairs that within them, without an interval."""
        if not self.matched:
            return cliffs(self.x, self.y, confidence)
        return Estimate(value=float(np.sign(self.differences).mean()), n=len(self.x))

    def same(self, margin: float, confidence: float = 0.95) -> Equivalence:
        """Are the means nearer than the margin?"""
        if self.matched:
            return paired.tost_pairs(self.differences, margin, confidence)
        return tost(self.x, self.y, margin, confidence)

    def sd(self) -> float | None:
        """What differences are measured in: the SD of the differences, or that within the sets."""
        if self.matched:
            return float(self.differences.std(ddof=1)) if len(self.x) > 1 else None
        return statistics.pooled_sd([self.x, self.y])[0]

    def detectable(self, tests: int) -> float | None:
        """The smallest difference that so many observations show with 80 % power, one of `tests` that
        Holm corrects; None where none is large enough."""
        sd, n = self.sd(), min(len(self.x), len(self.y))
        if not sd or n < 2:
            return None
        return power.detectable(n, sd, tests, Test.SIGN_FLIPS if self.matched else Test.RANKS)

    def runs_needed(self, difference: float, tests: int) -> int | None:
        """The runs of each setting that show a difference with 80 % power, one of `tests` that Holm corrects;
        None where the SD is not known, or where it is seeds that are lacking."""
        sd = self.sd()
        return power.runs_for(difference, sd, tests) if sd and not self.matched else None


def contrasts(runs: pd.DataFrame, view: View, metric: str) -> Iterator[Contrast]:
    """Every two thread settings of one workload and variant."""
    for (a, first), (b, second) in combinations(by_threads(runs).items(), 2):
        both = pd.concat([first, second])
        shared = set(first.seeds_used) & set(second.seeds_used)
        pairs = values_by_seed(both[both.seeds_used.isin(shared)], view, metric).dropna()
        matched = len(pairs) > 1
        if matched:
            x, y = pairs[a].to_numpy(), pairs[b].to_numpy()
        else:
            x, y = (observed(each, view, metric).values for each in (first, second))
        yield Contrast(a=a, b=b, x=x, y=y, n_a=len(first), n_b=len(second), matched=matched)
