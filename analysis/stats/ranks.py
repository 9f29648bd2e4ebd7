"""Two sets compared by ranks: do they differ in location, whatever their spread?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy import stats

from analysis.stats.statistics import (
    EXTREME,
    Comparison,
    cliffs_delta,
    finite,
    is_constant,
    numbers_drawn,
    smallest_p,
)

ENUMERATED = 20_000  # arrangements up to which all are looked at: eight runs a set; of more, some are drawn
BLOCK = 1 << 19  # values of the arrangements that are drawn at once, for the memory
PERMUTED = 100  # runs of both sets together, above which the t approximation is as good
FEW = 10  # runs of the smaller set, below which it is not
SEED = 1
SAME = 1e-9  # statistics that rounding alone tells apart


def brunner_munzel(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> Comparison:
    """Two-sided test of P(a < b) + P(a = b) / 2 = 1/2 (Brunner and Munzel 2000), which unlike
    Mann-Whitney's holds for sets of unequal spread. p is that of the studentised permutation test (Neubert
    and Brunner 2007): exact, also with ties, where the sets have one distribution. Values are
    observations: leave copies out before (`analysis.stats.observations`). Not tested below two values,
    and without any variance."""
    x, y = finite(a), finite(b)
    n, m = len(x), len(y)
    delta = cliffs_delta(x, y)
    u = None if delta is None else (delta + 1) / 2 * n * m

    def found(p: float | None, smallest: float | None, method: str) -> Comparison:
        return Comparison(n_a=n, n_b=m, u=u, p=p, smallest_p=smallest, delta=delta, method=method)

    if delta is None or min(n, m) < 2:
        return found(None, None, "fewer than two observations in a condition")
    if is_constant(x) and is_constant(y):
        return found(None, None, "both conditions constant, " + ("equal" if x[0] == y[0] else "unequal"))
    pooled = np.concatenate([x, y])
    ordered = np.sort(pooled)
    apart = ordered[n - 1] < ordered[n] or ordered[m - 1] < ordered[m]  # complete separation is possible
    if abs(delta) == 1:  # the two extreme arrangements, or one where ties leave but one
        p = smallest_p(n, m)
        return found(p, p, "exact permutation")
    if _many(n, m):
        p = float(stats.brunnermunzel(x, y).pvalue)
        return found(p, smallest_p(n, m) if apart else 0.0, "t approximation")
    ranks = np.sort(stats.rankdata(pooled))
    mine = abs(_statistics(ranks, (np.argsort(pooled) < n)[None, :])[0])
    for drawn in _numbers_drawn(n, m):
        null = _null(n, m, tuple(ranks), drawn)
        if (extreme := _extreme(null, mine)) >= EXTREME:
            break
    p = _share(extreme, drawn, len(null))
    least_p = smallest_p(n, m) if apart else _share(_extreme(null, float(null[-1])), drawn, len(null))
    return found(p, min(p, least_p), f"{drawn} permutations" if drawn else "exact permutation")


def critical_value(n: int, m: int, level: float) -> float:
    """The smallest |statistic| whose p is at most `level`, without ties; infinite where only complete
    separation reaches it."""
    if _many(n, m):
        return float(stats.t.isf(level / 2, n + m - 2))
    numbers = _numbers_drawn(n, m)
    drawn = next((each for each in numbers if level * (each + 1) >= EXTREME + 1), numbers[-1])
    null = _null(n, m, tuple(np.arange(1.0, n + m + 1)), drawn)
    allowed = math.floor(level * (drawn + 1) + SAME) - 1 if drawn else math.floor(level * len(null) + SAME)
    if allowed < 1:
        return math.inf
    values = null[-allowed:]
    smallest = float(values[0])
    # Of equal values all or none count.
    if allowed < len(null) and null[-allowed - 1] >= smallest - SAME:
        larger = values[values > smallest + SAME]
        return float(larger[0]) if len(larger) else math.inf
    return smallest


def statistics_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(D,) Brunner and Munzel's statistic of each row of `a` (D, n) and `b` (D, m) without ties."""
    n, m = a.shape[1], b.shape[1]
    above = b[:, None, :] < a[:, :, None]
    return _studentised(above.mean(axis=2), 1 - above.mean(axis=1), np.full(len(a), n), np.full(len(a), m))


def _many(n: int, m: int) -> bool:
    return n + m > PERMUTED and min(n, m) >= FEW


def _numbers_drawn(n: int, m: int) -> list[int]:
    """How many arrangements are drawn: as many as the first number, and the next where these are too few; 0
    for all there are."""
    return [0] if math.comb(n + m, n) <= ENUMERATED else numbers_drawn(n + m)


@lru_cache(maxsize=64)
def _null(n: int, m: int, ranks: tuple[float, ...], drawn: int) -> np.ndarray:
    """The sorted |statistics| of the arrangements of these ranks: all, or so many of them."""
    parts = _drawn(n, m, drawn) if drawn else [_all(n, m)]
    found = np.sort(np.concatenate([np.abs(_statistics(np.array(ranks), part)) for part in parts]))
    found.flags.writeable = False
    return found


def _drawn(n: int, m: int, drawn: int) -> Iterator[np.ndarray]:
    """(A, n + m) which values are the first set's, of arrangements that are `drawn` in all."""
    rng, rows = np.random.default_rng(SEED), max(1, BLOCK // (n + m))
    for start in range(0, drawn, rows):
        yield rng.random((min(rows, drawn - start), n + m)).argsort(axis=1) < n


@lru_cache(maxsize=16)
def _all(n: int, m: int) -> np.ndarray:
    """(A, n + m) which values are the first set's, of all arrangements."""
    chosen = np.array(list(combinations(range(n + m), n)))
    masks = np.zeros((len(chosen), n + m), bool)
    np.put_along_axis(masks, chosen, True, axis=1)
    return masks


def _statistics(ranks: np.ndarray, first: np.ndarray) -> np.ndarray:
    """(A,) the statistic of each arrangement (A, N) of the pooled values, by their sorted `ranks`."""
    start, end = (np.searchsorted(ranks, ranks, side) for side in ("left", "right"))
    count = np.pad(first.cumsum(axis=1), ((0, 0), (1, 0)))  # of the first set, among the lowest 0, 1, ...
    below = (count[:, start] + count[:, end]) / 2  # ties count half
    n, m = count[:, -1], len(ranks) - count[:, -1]
    placed = np.where(first, ((start + end) / 2 - below) / m[:, None], below / n[:, None])
    x = placed[first].reshape(len(first), -1)
    y = placed[~first].reshape(len(first), -1)
    return _studentised(x, y, n, m)


def _studentised(x: np.ndarray, y: np.ndarray, n: np.ndarray, m: np.ndarray) -> np.ndarray:
    """From the placements of each set's values: the share of the other set that lies below."""
    variance = x.var(axis=1, ddof=1) / n + y.var(axis=1, ddof=1) / m
    effect = np.round(x.mean(axis=1) - 0.5, 12)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = effect / np.sqrt(np.round(variance, 14))
    return np.asarray(np.where(effect == 0, 0.0, found))


def _extreme(null: np.ndarray, value: float) -> int:
    return len(null) - int(np.searchsorted(null, value - SAME))


def _share(extreme: int, drawn: int, of: int) -> float:
    return (extreme + 1) / (of + 1) if drawn else extreme / of  # the observed arrangement is one
