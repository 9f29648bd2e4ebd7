"""Runs cases and judges them by what the product promises."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests.analysis.simulated.cases import CASES, Case, Promise
from tests.analysis.simulated.sources import SOURCES

PRINTED = 0.02  # of the studies; what is stated more rarely is not judged
# Lowest and highest rate. To reject less often than promised is no lie.
LIMITS = {Promise.COVERS: (0.92, 0.97), Promise.REJECTS: (0.0, 0.06), Promise.FINDS: (0.77, 1.0)}
SHARED = "sets that share blocks differ less than the independent ones that are supposed"
# Intervals that may cover more than 97 %, of a case and a source.
WIDE = {
    ("failure rate", "failing"): "numbers of failures are whole",
    ("difference of means", "blocks"): SHARED,
    ("ratio of times", "blocks"): SHARED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`stated` of `studies` made a statement; in `rate` of these it held (or the test rejected)."""

    case: str
    promise: Promise
    source: str
    n: int
    studies: int
    stated: int
    rate: float

    @property
    def printed(self) -> bool:
        return self.stated > PRINTED * self.studies

    def kept(self, errors: float = 0.0) -> bool:
        """Whether the promise is kept, up to so many standard errors of the simulation."""
        low, high = LIMITS[self.promise]
        if (self.case, self.source) in WIDE:
            high = 1.0
        slack = [errors * math.sqrt(bound * (1 - bound) / max(1, self.stated)) for bound in (low, high)]
        return not self.printed or low - slack[0] <= self.rate <= high + slack[1]


def simulate(name: str, source: str, n: int, studies: int) -> Result:
    """One case; the same numbers give the same result."""
    case: Case = CASES[name]
    studies = max(20, studies // case.cost)
    rng = np.random.default_rng([sum(name.encode()), sum(source.encode()), n])
    found = [case.trial(rng, SOURCES[source], n) for _ in range(studies)]
    stated = [each for each in found if each is not None]
    return Result(
        case=name,
        promise=case.promise,
        source=source,
        n=n,
        studies=studies,
        stated=len(stated),
        rate=float(np.mean(stated)) if stated else math.nan,
    )
