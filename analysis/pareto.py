"""Time and effectiveness as two objectives (implication I4 of Xiao et al., ISSRE 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from analysis import statistics
from analysis.load import Study, View, by_threads
from analysis.statistics import Estimate
from analysis.times import unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thread setting: mean wall time in seconds, mean test metric, each with n and interval.
    `unfit` says why its time supports no conclusion; such a point is never on the front."""

    threads: str
    wall_s: Estimate
    score: Estimate
    unfit: str
    on_front: bool


def compared_variant(study: Study, workload: str) -> str:
    """The variant in which thread counts are weighed: free seeds where there are any, for one seed's
    accuracy says little of a thread count."""
    variants = list(study.runs[study.runs.workload == workload].variant.unique())
    return next((v for v in ("default", "fixed-seed") if v in variants), str(variants[0]))


def pareto(study: Study, workload: str, view: View) -> tuple[Point, ...]:
    """All thread settings of `compared_variant`; on the front are those that no other beats in both
    means, among the settings whose times are fit to conclude from."""
    runs = study.runs[study.runs.workload == workload]
    sets = by_threads(runs[runs.variant == compared_variant(study, workload)])
    column = view.metric(study.metrics[workload][0])
    times = {name: statistics.mean(s.wall_s.to_numpy()) for name, s in sets.items()}
    scores = {name: statistics.mean(s[column].to_numpy()) for name, s in sets.items()}
    reasons = {name: unfit(s) for name, s in sets.items()}
    fit = {
        name: (time, score)
        for name in sets
        if not reasons[name]
        and (time := times[name].value) is not None
        and (score := scores[name].value) is not None
    }
    return tuple(
        Point(
            threads=name,
            wall_s=times[name],
            score=scores[name],
            unfit=reasons[name],
            on_front=name in fit and not any(_beats(other, fit[name]) for other in fit.values()),
        )
        for name in sets
    )


def _beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether a is no slower and no worse than b, and better in one."""
    return a[0] <= b[0] and a[1] >= b[1] and a != b
