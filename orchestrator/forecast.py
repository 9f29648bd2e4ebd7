"""What a sweep will take, told before it starts: runs, hours, disk, and what its runs can show. Pure: from
planned specs and stored runs to numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from guest.records import RunRecord, RunSpec
from orchestrator.guests import guest_for

Basis = Literal["this set", "other sets of the workload", "nothing yet"]
Detectable = Callable[[int, float, int], float | None]
"""(runs a set, SD, tests in the family) -> the smallest difference that shows, or None"""
Needed = Callable[[float, float, int], int | None]
"""(difference, SD, tests in the family) -> the runs a set that show it, or None"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a stored run took. `run_s` runs from handing it out to publishing it, but for the import of the
    framework, on which the first run of each warm worker waits: in a few runs it would weigh too much."""

    spec: RunSpec
    run_s: float
    size_bytes: int
    values: dict[tuple[str, str], float]  # by (metric, view)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetForecast:
    """One experiment set. `run_s` is the mean of n_measured runs, `hours` of those to do; None: unknown."""

    set_id: str
    planned: int
    to_do: int
    basis: Basis
    n_measured: int
    run_s: float | None
    run_s_sd: float | None
    run_bytes: float | None
    hours: float | None
    size_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyForecast:
    """What a family of tests (workload, variant, view; all its metrics) can show in one metric.
    `n` is the number of runs in its smallest set when all are done, `n_sd` how many runs the SD is from."""

    workload: str
    variant: str
    view: str
    metric: str
    tests: int
    n: int
    sd: float | None
    n_sd: int
    detectable_u: float | None
    detectable_welch: float | None
    needed_u: int | None
    needed_welch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The whole. `hours` is one guest at a time with `hours_low` to `hours_high` about 95 % sure;
    `hours_at_best` with guests side by side on `cores` cores. `difference` is what `needed_*` is for."""

    sets: tuple[SetForecast, ...]
    families: tuple[FamilyForecast, ...]
    runs: int
    to_do: int
    hours: float | None
    hours_low: float | None
    hours_high: float | None
    hours_at_best: float | None
    cores: int
    size_bytes: float | None
    free_bytes: int
    difference: float


def measured(record: RunRecord, record_bytes: int) -> Measured:
    """What is used of a stored run."""
    began, ended = (datetime.fromisoformat(text) for text in (record.started_at, record.finished_at))
    result, took_s = record.result, (ended - began).total_seconds()
    times = result.timings
    if times.warm and took_s - times.wall_s >= times.import_s:
        took_s -= times.import_s
    return Measured(
        spec=record.spec,
        run_s=took_s,
        size_bytes=record_bytes + sum(artifact.size_bytes for artifact in result.artifacts.values()),
        values={
            (metric, view): value
            for view, scores in (("last", result.last), ("selected", result.selected))
            for metric, value in scores.items()
        },
    )


def forecast(
    specs: Sequence[RunSpec],
    stored: Sequence[Measured],
    *,
    views: Sequence[str],
    cores: int,
    side_by_side: bool,
    free_bytes: int,
    difference: float,
    sd: float | None,
    u: tuple[Detectable, Needed],
    welch: tuple[Detectable, Needed],
) -> Forecast:
    """`sd`: in place of the stored runs' own. `u`, `welch`: how the two tests are planned."""
    done = {run.spec.run_id for run in stored}
    sets = {set_id: list(group) for set_id, group in _grouped(specs).items()}
    told = tuple(_set(set_id, group, stored, done) for set_id, group in sets.items())
    hours = _total([s.hours for s in told])
    spread = _spread_hours(told) if hours is not None else None
    families: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in specs:
        families.setdefault(_key(spec), []).append(spec)
    return Forecast(
        sets=told,
        families=tuple(
            _family(
                members, [r for r in stored if _key(r.spec) == key], view, metric, difference, sd, u, welch
            )
            for key, members in families.items()
            for metric in members[0].workload.metric_names
            for view in (views if members[0].workload.project is None else views[:1])
        ),
        runs=len(specs),
        to_do=sum(s.to_do for s in told),
        hours=hours,
        hours_low=None if hours is None or spread is None else max(0.0, hours - spread),
        hours_high=None if hours is None or spread is None else hours + spread,
        hours_at_best=_at_best(told, sets, cores) if side_by_side and hours is not None else hours,
        cores=cores,
        size_bytes=_total([s.size_bytes for s in told]),
        free_bytes=free_bytes,
        difference=difference,
    )


# ---- time and disk -----------------------------------------------------------------------------


def _set(set_id: str, specs: list[RunSpec], stored: Sequence[Measured], done: set[str]) -> SetForecast:
    own = [run for run in stored if run.spec.set_id == set_id]
    like = own or [run for run in stored if run.spec.workload.name == specs[0].workload.name]
    to_do = sum(spec.run_id not in done for spec in specs)
    run_s = statistics.fmean(run.run_s for run in like) if like else None
    size = statistics.fmean(run.size_bytes for run in like) if like else None
    return SetForecast(
        set_id=set_id,
        planned=len(specs),
        to_do=to_do,
        basis="this set" if own else "other sets of the workload" if like else "nothing yet",
        n_measured=len(like),
        run_s=run_s,
        run_s_sd=statistics.stdev(run.run_s for run in like) if len(like) > 1 else None,
        run_bytes=size,
        hours=0.0 if to_do == 0 else None if run_s is None else to_do * run_s / 3600,
        size_bytes=0.0 if to_do == 0 else None if size is None else to_do * size,
    )


def _spread_hours(sets: Iterable[SetForecast]) -> float | None:
    """1.96 standard errors of the total: the runs to do vary (n s^2), and so does the mean they are
    foretold from (n^2 s^2 / k). None when a set has one measured run only."""
    variance = 0.0
    for s in sets:
        if s.to_do:
            if s.run_s_sd is None:
                return None
            variance += (s.to_do + s.to_do**2 / s.n_measured) * s.run_s_sd**2
    return 1.96 * math.sqrt(variance) / 3600


def _at_best(told: Sequence[SetForecast], sets: dict[str, list[RunSpec]], cores: int) -> float:
    """No schedule is shorter than its busiest guest, nor than all its core-hours over the cores."""
    by_guest: dict[str, float] = {}
    core_hours = 0.0
    for s in told:
        spec = sets[s.set_id][0]
        by_guest[guest_for(spec)] = by_guest.get(guest_for(spec), 0.0) + (s.hours or 0.0)
        core_hours += (s.hours or 0.0) * min(spec.threads.cpus, cores)
    return max(*by_guest.values(), core_hours / cores)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# ---- power -------------------------------------------------------------------------------------


def _family(
    members: list[RunSpec],
    stored: list[Measured],
    view: str,
    metric: str,
    difference: float,
    sd: float | None,
    u: tuple[Detectable, Needed],
    welch: tuple[Detectable, Needed],
) -> FamilyForecast:
    sets = _grouped(members)
    tests = math.comb(len(sets), 2) * len(members[0].workload.metric_names)
    n = min(len(group) for group in sets.values())
    own, n_sd = pooled_sd(_values(stored, metric, view))
    used = own if sd is None else sd
    possible = used is not None and tests > 0

    def smallest(plan: tuple[Detectable, Needed]) -> float | None:
        return plan[0](n, used, tests) if possible and used is not None else None

    def fewest(plan: tuple[Detectable, Needed]) -> int | None:
        return plan[1](difference, used, tests) if possible and used is not None else None

    return FamilyForecast(
        workload=_workload(members[0]),
        variant=members[0].variant.value,
        view=view,
        metric=metric,
        tests=tests,
        n=n,
        sd=used,
        n_sd=n_sd if sd is None else 0,
        detectable_u=smallest(u),
        detectable_welch=smallest(welch),
        needed_u=fewest(u),
        needed_welch=fewest(welch),
    )


def pooled_sd(sets: Iterable[Sequence[float]]) -> tuple[float | None, int]:
    """The SD within sets, pooled by their degrees of freedom, and the number of runs it is from. None
    where no set has two finite values. Equal values give exactly 0."""
    squares, freedom, runs = 0.0, 0, 0
    for values in sets:
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) > 1:
            squares += statistics.variance(finite) * (len(finite) - 1)
            freedom += len(finite) - 1
            runs += len(finite)
    return (math.sqrt(squares / freedom), runs) if freedom else (None, 0)


def _values(stored: Iterable[Measured], metric: str, view: str) -> list[list[float]]:
    sets: dict[str, list[float]] = {}
    for run in stored:
        if (metric, view) in run.values:
            sets.setdefault(run.spec.set_id, []).append(run.values[metric, view])
    return list(sets.values())


def _grouped(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.set_id, []).append(spec)
    return groups


def _workload(spec: RunSpec) -> str:
    """As the analysis names it: CPU models are families of their own."""
    return f"{spec.workload.name}@{spec.cpu_model}" if spec.cpu_model else spec.workload.name


def _key(spec: RunSpec) -> tuple[str, str]:
    return _workload(spec), spec.variant.value
