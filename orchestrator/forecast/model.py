"""What a sweep will take, estimated before it starts: runs, hours, disk, and the power of its tests."""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from analysis.load.runs import workload_text
from guest.machine import threads
from guest.records.run import RECORD, Framework, RunRecord, RunSpec, Seeds
from orchestrator.cores.leases import host_cores
from orchestrator.inventory import guest_for
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.providers import SshTable
from orchestrator.study.schema import ModelSelection, Study

Basis = Literal["this condition", "other conditions of the workload", "nothing yet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a stored run took. `run_s` runs from handing it out to publishing it, without the import of
    the framework, which the first run of each warm worker waits for and which would distort small samples:
    `import_s`, 0 for a run of no warm worker."""

    spec: RunSpec
    run_s: float
    size_bytes: int
    values: dict[tuple[str, str], float]  # by (metric, view)
    import_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetForecast:
    """One condition. `run_s` is the mean of n_measured runs, `hours` of those to do, with the
    import of the framework where they are the first to need a warm worker; None: unknown."""

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
    """The power of a family of tests (workload, variant, view; all its metrics) in one metric.
    `n` is the number of runs in its smallest condition when all are done, `n_sd` that of the SD, `sd_low` to
    `sd_high` its 95 % interval for normal runs. Of an SD of 0 nothing follows. Where the
    same several seeds are on all thread counts (`matched`), n and `needed_*` are seeds, and the SD is that of
    differences at one seed."""

    workload: str
    variant: str
    view: str
    metric: str
    tests: int
    n: int
    matched: bool
    sd: float | None
    sd_low: float | None
    sd_high: float | None
    n_sd: int
    detectable_u: float | None
    detectable_welch: float | None
    needed_u: int | None
    needed_welch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The whole. `hours` is one guest at a time with `hours_low` to `hours_high` about 95 % sure;
    `hours_at_best` with guests side by side on `cores` cores (0 where they are on many
    hosts). `difference` is what `needed_*` is for."""

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


def stored_run(record: RunRecord, record_bytes: int) -> StoredRun:
    """What is used of a stored run."""
    began, ended = (datetime.fromisoformat(text) for text in (record.started_at, record.finished_at))
    result, took_s = record.result, (ended - began).total_seconds()
    times = result.timings
    if times.warm and took_s - times.wall_s >= times.import_s:
        took_s -= times.import_s
    return StoredRun(
        spec=record.spec,
        run_s=took_s,
        size_bytes=record_bytes + sum(artifact.size_bytes for artifact in result.artifacts.values()),
        values={
            (metric, view): value
            for view, scores in (("last", result.last), ("selected", result.selected))
            for metric, value in scores.items()
        },
        import_s=times.import_s if times.warm else 0.0,
    )


def estimate(study: Study, store: Store, runs: int | None, difference: float, sd: float | None) -> Forecast:
    """For the study on the machines that it names, from the runs in its store."""
    stored = [
        stored_run(record, (store.folder(record.spec) / RECORD).stat().st_size) for record in store.records()
    ]
    return forecast(
        plan(study, runs),
        stored,
        views=views(study.model_selection),
        cores=guest_cores(study),
        side_by_side=study.engine.side_by_side,
        free_bytes=shutil.disk_usage(store.directory).free,
        difference=difference,
        sd=sd,
    )


def guest_cores(study: Study) -> int:
    """How many cores its guests share; 0 where they are on many hosts, which a sweep finds."""
    if study.engine.kind != "local":
        return 0
    if isinstance(study.provider, SshTable):
        return sum(host.cpus for host in study.provider.hosts)
    return len(host_cores())


def views(selection: ModelSelection) -> tuple[str, ...]:
    """The names of the models that a study evaluates."""
    return ("last", "selected") if selection is ModelSelection.BOTH else (selection.value,)


def _place(spec: RunSpec) -> tuple[Any, ...]:
    """In tables of conditions; runs are planned in random order."""
    threads = spec.threads
    counts = (threads.cpus, threads.intra_op, threads.inter_op)
    return workload_text(spec), list(type(spec.variant)).index(spec.variant), *counts


def forecast(
    specs: Sequence[RunSpec],
    stored: Sequence[StoredRun],
    *,
    views: Sequence[str],
    cores: int,
    side_by_side: bool,
    free_bytes: int,
    difference: float,
    sd: float | None,
) -> Forecast:
    """From planned and stored runs; those of other settings tell nothing. `sd` is used instead of that of the
    stored runs."""
    done = {run.spec.run_id for run in stored}
    imports_s = _imports_s((spec for spec in specs if spec.run_id not in done), stored)
    settings = {(spec.workload, spec.isa) for spec in specs}
    stored = [run for run in stored if (run.spec.workload, run.spec.isa) in settings]
    sets = dict(sorted(_grouped(specs).items(), key=lambda item: _place(item[1][0])))
    measured = [_measured(set_id, group, stored) for set_id, group in sets.items()]
    estimated = tuple(
        _set(set_id, group, like, done, imports_s.get(set_id, 0.0))
        for (set_id, group), like in zip(sets.items(), measured, strict=True)
    )
    hours = _total([s.hours for s in estimated])
    spread = _spread_hours(zip(estimated, measured, strict=True)) if hours is not None else None
    left = [(sets[s.set_id][0], s.hours or 0.0) for s in estimated]
    families: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in specs:
        families.setdefault(_key(spec), []).append(spec)
    return Forecast(
        sets=estimated,
        families=tuple(
            _family(members, [r for r in stored if _key(r.spec) == key], view, metric, difference, sd)
            for key, members in families.items()
            for metric in members[0].workload.metric_names
            for view in (views if members[0].workload.project is None else views[:1])
        ),
        runs=len(specs),
        to_do=sum(s.to_do for s in estimated),
        hours=hours,
        hours_low=None if hours is None or spread is None else max(0.0, hours - spread),
        hours_high=None if hours is None or spread is None else hours + spread,
        hours_at_best=at_best(left, cores) if side_by_side and cores and hours is not None else hours,
        cores=cores,
        size_bytes=_total([s.size_bytes for s in estimated]),
        free_bytes=free_bytes,
        difference=difference,
    )


# ---- time and disk -----------------------------------------------------------------------------


def _measured(set_id: str, specs: list[RunSpec], stored: Sequence[StoredRun]) -> list[StoredRun]:
    """The set's own runs, or those of other conditions of the workload."""
    own = [run for run in stored if run.spec.set_id == set_id]
    return own or [run for run in stored if run.spec.workload.name == specs[0].workload.name]


def _imports_s(to_do: Iterable[RunSpec], stored: Sequence[StoredRun]) -> dict[str, float]:
    """By condition, what warm workers take to import their frameworks: one for each guest and environment of
    runs to do (`threads.environment`), counted where the first of them is."""
    known: dict[Framework | None, list[float]] = {}
    for run in stored:
        if run.import_s:
            known.setdefault(run.spec.workload.framework, []).append(run.import_s)
    mean_s = {framework: statistics.fmean(each) for framework, each in known.items()}
    found, workers = defaultdict[str, float](float), set()
    for spec in to_do:
        framework = spec.workload.framework
        worker = guest_for(spec), framework, frozenset(threads.environment(spec, cpu_vendor="").items())
        if worker not in workers:
            workers.add(worker)
            found[spec.set_id] += mean_s.get(framework, 0.0)
    return found


def _set(
    set_id: str, specs: list[RunSpec], like: list[StoredRun], done: set[str], imports_s: float
) -> SetForecast:
    own = any(run.spec.set_id == set_id for run in like)
    to_do = sum(spec.run_id not in done for spec in specs)
    run_s = statistics.fmean(run.run_s for run in like) if like else None
    size = statistics.fmean(run.size_bytes for run in like) if like else None
    return SetForecast(
        set_id=set_id,
        planned=len(specs),
        to_do=to_do,
        basis="this condition" if own else "other conditions of the workload" if like else "nothing yet",
        n_measured=len(like),
        run_s=run_s,
        run_s_sd=statistics.stdev(run.run_s for run in like) if len(like) > 1 else None,
        run_bytes=size,
        hours=0.0 if to_do == 0 else None if run_s is None else (to_do * run_s + imports_s) / 3600,
        size_bytes=0.0 if to_do == 0 else None if size is None else to_do * size,
    )


def _spread_hours(sets: Iterable[tuple[SetForecast, Sequence[StoredRun]]]) -> float | None:
    """Half the 95 % interval of the total: the runs to do vary (n s^2), and so does the mean of the k runs
    that they are estimated from ((sum of n)^2 s^2 / k over all sets that share them), by Student's t with
    k - 1. None when a set has one measured run only."""
    from scipy.stats import t  # here: a sweep of a fleet needs no scipy

    variance = 0.0
    shares: dict[str, float] = defaultdict(float)  # of each measured run in the total
    for s, measured in sets:
        if s.to_do:
            if s.run_s_sd is None:
                return None
            sd = float(t.ppf(0.975, s.n_measured - 1)) * s.run_s_sd
            variance += s.to_do * sd**2
            for run in measured:
                shares[run.spec.run_id] += s.to_do * sd / s.n_measured
    return math.sqrt(variance + sum(share**2 for share in shares.values())) / 3600


def at_best(left: Iterable[tuple[RunSpec, float]], cores: int) -> float:
    """No schedule is shorter than its busiest guest, nor than all its core-time over the cores. `left` has a
    run of each condition, with the time of all that are to do."""
    by_guest, core_time = defaultdict[str, float](float), 0.0
    for spec, takes in left:
        by_guest[guest_for(spec)] += takes
        core_time += takes * min(spec.threads.cpus, cores)
    return max(*by_guest.values(), core_time / cores)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# ---- power -------------------------------------------------------------------------------------


def _family(
    members: list[RunSpec],
    stored: list[StoredRun],
    view: str,
    metric: str,
    difference: float,
    sd: float | None,
) -> FamilyForecast:
    # Imported here: a sweep of a fleet needs no scipy.
    from analysis.stats.power import Test, detectable, runs_for, sd_bounds
    from analysis.stats.statistics import pooled_sd

    sets = _grouped(members)
    tests = math.comb(len(sets), 2) * len(members[0].workload.metric_names)
    shared = set.intersection(*({spec.seeds for spec in group} for group in sets.values()))
    matched = members[0].variant.seeds_fixed and len(shared) > 1
    n = len(shared) if matched else min(len(group) for group in sets.values())
    own, freedom, n_sd = pooled_sd((_differences if matched else _values)(stored, metric, view))
    used = own if sd is None else sd
    by = (Test.SIGN_FLIPS, Test.PAIRED_T) if matched else (Test.RANKS, Test.WELCH)
    planned = [(used, test) for test in by if used and tests]
    smallest = [detectable(n, sd, tests, test) for sd, test in planned] or [None, None]
    fewest = [runs_for(difference, sd, tests, test) for sd, test in planned] or [None, None]
    # The differences of every two of k sets have (k - 1) (seeds - 1) degrees of freedom.
    per_set = 2 / len({run.spec.set_id for run in stored}) if matched and own else 1
    low, high = sd_bounds(own, freedom * per_set) if own and sd is None else (None, None)
    return FamilyForecast(
        workload=workload_text(members[0]),
        variant=members[0].variant.value,
        view=view,
        metric=metric,
        tests=tests,
        n=n,
        matched=matched,
        sd=used,
        sd_low=low,
        sd_high=high,
        n_sd=n_sd if sd is None else 0,
        detectable_u=smallest[0],
        detectable_welch=smallest[1],
        needed_u=fewest[0],
        needed_welch=fewest[1],
    )


def _values(stored: Iterable[StoredRun], metric: str, view: str) -> list[list[float]]:
    sets: dict[str, list[float]] = {}
    for run in stored:
        if (metric, view) in run.values:
            sets.setdefault(run.spec.set_id, []).append(run.values[metric, view])
    return list(sets.values())


def _differences(stored: Iterable[StoredRun], metric: str, view: str) -> list[list[float]]:
    """Of every two sets, at each seed that both have: repetitions of one count with their mean."""
    sets: dict[str, dict[Seeds, list[float]]] = {}
    for run in stored:
        if (metric, view) in run.values:
            seeds = sets.setdefault(run.spec.set_id, {})
            seeds.setdefault(run.spec.seeds, []).append(run.values[metric, view])
    return [
        [statistics.fmean(a[seed]) - statistics.fmean(b[seed]) for seed in a if seed in b]
        for a, b in itertools.combinations(sets.values(), 2)
    ]


def _grouped(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.set_id, []).append(spec)
    return groups


def _key(spec: RunSpec) -> tuple[str, str]:
    return workload_text(spec), spec.variant.value
