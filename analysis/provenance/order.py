"""Whether the time of execution is confounded with the thread count, and whether runs drifted over the blocks
of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from analysis.load.runs import Problem
from analysis.load.study import StudyData, View, by_threads, when
from analysis.results.model import ALPHA
from analysis.stats import statistics

SEPARATE = 0.9  # share of pairs of runs; with a run of each in every block it is at most 0.75
FEWEST_BLOCKS = 5  # with fewer, no order of the blocks is unlikely enough


def order_reservations(study: StudyData) -> Iterator[Problem]:
    """Of thread counts that are confounded with time, and of drift."""
    yield from _not_interleaved(study)
    yield from _drift(study)


def _not_interleaved(study: StudyData) -> Iterator[Problem]:
    for workload, variant, runs in study.experiments():
        spans = {name: (_when(s.started_at), _when(s.finished_at)) for name, s in by_threads(runs).items()}
        separate = [
            (a, b) for a, b in itertools.combinations(spans, 2) if _one_after_the_other(spans[a], spans[b])
        ]
        if not separate:
            continue
        pairs = ", ".join(f"{a} | {b}" for a, b in separate)
        also = "" if runs.seeds_fixed.all() else " and, with free seeds, in metrics"
        yield Problem(
            path=f"runs/{workload}/{variant}",
            what=f"the runs of threads {pairs} were executed one thread count after the other: "
            f"differences in times{also} are confounded with the time of execution",
            todo="thread counts that are swept together are interleaved; repeat them in a study of their own",
            skipped=False,
        )


def _one_after_the_other(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether nearly all runs of one had ended before those of the other began; of (starts, ends)."""
    if min(len(a[0]), len(b[0])) < 2:
        return False
    return max(_share_before(a[1], b[0]), _share_before(b[1], a[0])) >= SEPARATE


def _share_before(ends: np.ndarray, starts: np.ndarray) -> float:
    """The share of pairs of an end and a start in which the end comes first."""
    return float(np.searchsorted(np.sort(ends), starts, side="right").mean()) / len(ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What changed from the first block to the last, with its interval (Theil and Sen) and Kendall's tau."""

    change: float
    low: float
    high: float
    tau: float
    p: float
    blocks: int


def drift(runs: pd.DataFrame, values: pd.Series) -> Drift | None:
    """Over the blocks of a workload's runs: of the values less the means of their conditions, averaged over
    a block, which is one observation. None without blocks, with too few, without change, or where all blocks
    began at one time."""
    if (runs.block == 0).any() or runs.block.nunique() < FEWEST_BLOCKS:
        return None
    residuals = values - values.groupby(runs.set_id).transform("mean")
    by_block = pd.DataFrame({"when": _when(runs.started_at), "value": residuals}, index=runs.index)
    means = by_block.groupby(runs.block).mean().dropna()
    if len(means) < FEWEST_BLOCKS or any(map(statistics.is_constant, means.to_numpy().T)):
        return None
    tested = stats.kendalltau(means.when, means.value)
    slope = stats.theilslopes(means.value, means.when, alpha=1 - ALPHA)
    span = float(means.when.max() - means.when.min())
    return Drift(
        change=slope.slope * span,
        low=slope.low_slope * span,
        high=slope.high_slope * span,
        tau=float(tested.statistic),
        p=float(tested.pvalue),
        blocks=len(means),
    )


def _drift(study: StudyData) -> Iterator[Problem]:
    """Times and the first metric of each workload; one family of tests."""
    found: list[tuple[str, str, Drift]] = []
    for workload, runs in study.runs.groupby("workload", sort=False):
        metric = study.metrics[str(workload)][0]
        for what, values in (
            ("", np.log(runs.wall_s.where(runs.wall_s > 0))),
            (metric, runs[View.LAST.metric(metric)]),
        ):
            known = drift(runs, values)
            if known is not None:
                found.append((str(workload), what, known))
    for (workload, metric, known), p in zip(
        found, statistics.holm([known.p for *_, known in found]), strict=True
    ):
        if p is not None and p < ALPHA:
            yield Problem(
                path=f"runs/{workload}",
                what=_text(metric, known, p),
                todo="its runs are interleaved, and times are compared within blocks; look for heat, and "
                "for load by others",
                skipped=False,
            )


def _text(metric: str, known: Drift, p: float) -> str:
    if metric:
        change = f"{metric} changed by {known.change:+.2g}"
        bounds = f"{known.low:+.2g} to {known.high:+.2g}"
    else:
        change = f"runs got {'slower' if known.change > 0 else 'faster'} by {np.expm1(known.change):+.1%}"
        bounds = f"{np.expm1(known.low):+.1%} to {np.expm1(known.high):+.1%}"
    return (
        f"{change} from the first block to the last (95 % interval {bounds}; Kendall's tau {known.tau:.2f}, "
        f"Holm's p = {p:.2g}, n = {known.blocks} blocks)"
    )


def _when(times: pd.Series) -> np.ndarray:
    """Seconds since 1970."""
    return (when(times) - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
