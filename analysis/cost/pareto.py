"""Time and test performance as two objectives (implication I4 of Xiao et al., ISSRE 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.cost.times import exclusions
from analysis.load.study import StudyData, View, by_threads
from analysis.stats import statistics
from analysis.stats.observations import observed
from analysis.stats.statistics import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thread setting: mean wall time in seconds, mean test metric, each with n and interval.
    `excluded` says why its time is excluded from comparisons; such a point is never on the front."""

    threads: str
    wall_s: Estimate
    score: Estimate
    excluded: str
    on_front: bool


def compared_variant(study: StudyData, workload: str) -> str:
    """The variant in which thread counts are weighed: free seeds where there are any, for one seed's
    accuracy says little of a thread count."""
    variants = list(study.runs_of(workload).variant.unique())
    return next((v for v in ("default", "fixed-seed") if v in variants), str(variants[0]))


def pareto(study: StudyData, workload: str, view: View) -> tuple[Point, ...]:
    """All thread settings of `compared_variant`; on the front are those that no other beats in both
    means, among the settings with comparable times. Scores are of the distinct runs that did not fail. A
    metric of a project's own has no front: whether a larger value is better is not known."""
    sets = by_threads(study.runs_of(workload, variant=compared_variant(study, workload)))
    metric = study.primary(workload)[0]
    seconds, within = statistics.NOT_NEGATIVE, statistics.bounds_of(metric)
    times = {name: statistics.mean(s.wall_s.to_numpy(), within=seconds) for name, s in sets.items()}
    scores = {name: observed(s, view, metric).mean(within=within) for name, s in sets.items()}
    reasons = exclusions(sets)
    fit = {
        name: (time, score)
        for name in sets
        if within is not None
        and not reasons[name]
        and (time := times[name].value) is not None
        and (score := scores[name].value) is not None
    }
    return tuple(
        Point(
            threads=name,
            wall_s=times[name],
            score=scores[name],
            excluded=reasons[name],
            on_front=name in fit and not any(_beats(other, fit[name]) for other in fit.values()),
        )
        for name in sets
    )


def _beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether a is no slower and no worse than b, and better in one."""
    return a[0] <= b[0] and a[1] >= b[1] and a != b
