"""How much the thread count changes a metric, relative to the seed: of crossed designs, in which the same
seeds were used on every thread count (`seeds = 10`; also projects that replay one recording on several).

The model of a value on thread count t with seed s, one value a cell (copies count once, other repetitions
with their mean):

    y[s, t] = mean + seed[s] + threads[t] + interaction[s, t]

with seed and interaction random (variances S and I) and the thread counts fixed: they are those of the study,
not drawn from many. In statsmodels: MixedLM("y ~ C(threads)", groups=seed). Every seed is on every thread
count, so that its REML estimates are those of the two-way analysis of variance, which needs no iteration.
With s seeds, t thread counts, and M the mean squares of seeds, threads and interaction:

    SD between thread counts, at one seed:    sqrt(T + I),  T = sum of (threads[t] - mean)^2 / (t - 1)
                                              estimated by  sqrt(M_threads / s + M_interaction (1 - 1/s))
    SD between seeds, on one thread count:    sqrt(S + I)
                                              estimated by  sqrt(M_seeds / t + M_interaction (1 - 1/t))

Their ratio is that of two root mean square differences: between two thread counts at one seed, and between
two seeds on one thread count. At 1, changing the number of threads changes the metric as much as changing the
seed.

The intervals are generalized confidence intervals (Weerahandi 1993): I and t S + I are drawn as M df /
chi2(df), and the noncentrality of M_threads by inverting its distribution. Metrics have steps: I has no
more degrees of freedom than there are values that lie apart from their seed's others; where fewer than SHOWN
seeds show a difference, the lower bound is 0, and without any there is no interval. The degrees of freedom of
seeds and of the interaction are fewer where the values' kurtosis is larger than that of normal ones
(`statistics.effective`). tests/analysis/simulated measures the ratio's coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from analysis.load.study import StudyData, shared_seeds
from analysis.results.model import VIEWS_NOTE, WHERE, Kind, Table, col, cols, count, interval
from analysis.stats.observations import values_by_seed
from analysis.stats.statistics import effective

FEWEST = 3  # seeds, for an interval
SHOWN = 4  # seeds whose thread counts differ; of fewer, a lower bound would be that of the metric's steps
DRAWN = 2_000
SEED = 1
TAILS = (0.025, 0.975)
LARGE = 300.0  # above it the noncentrality is known up to 6 %, and its inversion slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a crossed design says: two SDs and their ratio, with the bounds of those that have any."""

    threads: float
    seeds: float
    ratio: float | None
    bounds: dict[str, tuple[float, float]]
    why: str = ""

    def cells(self) -> dict[str, Any]:
        row: dict[str, Any] = {"sd_threads": self.threads, "sd_seeds": self.seeds, "ratio": self.ratio}
        for name in list(row):
            row[f"{name}_low"], row[f"{name}_high"] = self.bounds.get(name, (None, None))
        return row | {"remark": self.why}


def split(values: np.ndarray, *, copies: bool | None = False) -> Parts:
    """`values` (seeds, thread counts), all finite, at least two of each. `copies`: the models of a seed are
    bitwise equal on all thread counts; None: not recorded."""
    s, t = values.shape
    by_seed, by_threads = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    rest = values - by_seed - by_threads + values.mean()
    of_seeds = t * float(by_seed.var(ddof=1))
    of_threads = s * float(by_threads.var(ddof=1))
    of_rest = float((rest**2).sum()) / ((s - 1) * (t - 1))
    differing = int((np.ptp(values, axis=1) > 0).sum())
    if not differing:
        of_threads = of_rest = 0.0  # without what rounding left
    threads = of_threads / s + of_rest * (1 - 1 / s)
    seeds = of_seeds / t + of_rest * (1 - 1 / t)
    if np.ptp(values, axis=0).max() == 0:
        return Parts(
            threads=threads**0.5, seeds=0.0, ratio=None, bounds={}, why="the seeds give equal values"
        )
    ratio = (threads / seeds) ** 0.5
    bounds: dict[str, tuple[float, float]] = {}
    if copies:
        bounds, why = {"ratio": (0.0, 0.0), "sd_threads": (0.0, 0.0)}, "bitwise equal for each seed"
    elif not differing:
        why = "no interval: the models differ, the metric does not show it"
        if copies is None:
            why = "no interval: weights are not recorded, and the metric shows no difference"
    elif s < FEWEST:
        why = f"no interval: needs {FEWEST} seeds"
    elif of_rest <= 1e-12 * threads:
        why = "no interval: the same difference for all seeds"
    else:
        # No more degrees of freedom than values that lie apart from their seed's others.
        apart = sum(t - int(np.unique(row, return_counts=True)[1].max()) for row in values)
        freedom = (
            effective(s - 1, by_seed.ravel()),
            effective(min((s - 1) * (t - 1), apart), rest.ravel()),
        )
        why, bounds = "", _bounds(of_seeds, of_threads, of_rest, s, t, freedom)
        if differing < min(SHOWN, s):
            why = f"the metric differs for {differing} of {s} seeds"
            bounds |= {name: (0.0, bounds[name][1]) for name in ("sd_threads", "ratio")}
    return Parts(threads=threads**0.5, seeds=seeds**0.5, ratio=ratio, bounds=bounds, why=why)


def _bounds(
    of_seeds: float, of_threads: float, of_rest: float, s: int, t: int, freedom: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    """Generalized 95 % bounds of both SDs and of their ratio, from the mean squares; `freedom` is that of
    seeds and of the rest."""
    rng = np.random.default_rng(SEED)
    between = of_seeds * freedom[0] / rng.chisquare(freedom[0], DRAWN)
    rest = of_rest * freedom[1] / rng.chisquare(freedom[1], DRAWN)
    # (t - 1) M_threads / I is noncentral chi-square; its noncentrality is s (t - 1) T / I.
    seen, p = (t - 1) * of_threads / rest, rng.uniform(size=DRAWN)
    cut = np.minimum(seen, LARGE)
    some = p < special.chndtr(cut, t - 1, 0.0)
    noncentrality = np.zeros(DRAWN)
    noncentrality[some] = special.chndtrinc(cut[some], t - 1, p[some])
    noncentrality *= np.maximum(seen / LARGE, 1.0)
    threads = noncentrality * rest / (s * (t - 1)) + rest
    seeds = between / t + rest * (1 - 1 / t)
    each = {"sd_threads": threads, "sd_seeds": seeds, "ratio": threads / seeds}
    found = {name: np.sqrt(np.quantile(drawn, TAILS)) for name, drawn in each.items()}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def seeds(study: StudyData) -> Table:
    """The SD between thread counts at one seed, relative to that between seeds, of every crossed design."""
    return Table.of(
        list(_rows(study)),
        *WHERE,
        *cols("view", "metric"),
        count("n", "seeds"),
        count("settings", "thread counts"),
        interval("sd_threads", "SD between thread counts"),
        interval("sd_seeds", "SD between seeds"),
        interval("ratio", "threads / seeds", Kind.RATIO),
        col("remark"),
        name="seeds",
        title="How much the thread count changes the metric, relative to the seed",
        note="Crossed designs: the same seeds on every thread count. SD between thread counts at one seed, "
        "systematic and random; SD between seeds on one thread count. At a ratio of 1, changing the number "
        "of threads changes the metric as much as changing the seed. Generalized 95 % intervals (Weerahandi "
        "1993, with the kurtosis of the values) for these thread counts and seeds drawn from many. Copies "
        "count once. " + VIEWS_NOTE,
        hidden=["left_out"],
    )


def _rows(study: StudyData) -> Iterator[dict[str, Any]]:
    for head, view, runs in study.by_view():
        shared = pd.concat([runs.iloc[:0], *shared_seeds(runs)])
        if shared.seeds_used.nunique() < 2:
            continue
        for metric in study.metrics[head["workload"]]:
            values = values_by_seed(shared, view, metric)
            whole = values.dropna()
            if len(whole) < 2:
                continue
            kept = shared[shared.seeds_used.isin(whole.index)]
            hashes = kept.groupby("seeds_used")[view.sha256("weights")]
            known = bool(hashes.count().sum() == len(kept))
            copies = bool((hashes.nunique() == 1).all()) if known else None
            yield (
                head
                | {"metric": metric, "n": len(whole), "settings": whole.shape[1]}
                | split(whole.to_numpy(), copies=copies).cells()
                | {"left_out": len(values) - len(whole)}
            )
