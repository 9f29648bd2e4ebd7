"""What a fleet of hosts will take for what is left of a study: makespan and utilisation. The decisions are
those of `Packing`, with the times that runs are expected to take in place of runs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from guest.records.run import RunSpec
from orchestrator.engine.packing import Packing, Room
from orchestrator.errors import UsageError
from orchestrator.forecast.model import Forecast
from orchestrator.study.schema import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetForecast:
    """`hours` is from the first start to the last end, with `hours_low` to `hours_high` about 95 % sure as
    far as the runs' times vary; None: the time of a run is unknown (of a set in `unknown`). `bound_hours` is
    what no schedule can be shorter than. `n_measured` runs are what the times are from."""

    hosts: int
    cores: int
    memory_mib: int | None
    runs: int
    n_measured: int
    hours: float | None = None
    hours_low: float | None = None
    hours_high: float | None = None
    bound_hours: float | None = None
    utilisation: float | None = None
    core_hours: float | None = None
    unknown: tuple[str, ...] = ()


def estimate(
    study: Study,
    to_do: Sequence[RunSpec],
    forecast: Forecast,
    *,
    hosts: int,
    cores: int,
    memory_mib: int | None,
) -> FleetForecast:
    """`to_do` are the planned runs that are not stored. Raises UsageError for guests that no host has the
    memory for."""
    run_s = {s.set_id: s.run_s for s in forecast.sets}
    unknown = tuple(dict.fromkeys(s.set_id for s in to_do if run_s[s.set_id] is None))
    fleet = FleetForecast(
        hosts=hosts,
        cores=cores,
        memory_mib=memory_mib,
        runs=len(to_do),
        n_measured=sum(s.n_measured for s in forecast.sets if s.basis == "this condition"),
        unknown=unknown,
    )
    if unknown:
        return fleet
    memory = study.guest_memory_mib if memory_mib is not None else 0
    simulated = simulate(
        (
            ExpectedRun(
                run=spec.run_id,
                group=spec.set_id,
                needs=Room(
                    cpus=max(spec.threads.cpus, study.engine.reserve),
                    memory_mib=memory,
                    whole=not study.engine.side_by_side,
                ),
                run_s=run_s[spec.set_id] or 0.0,
                block=spec.repetition,
            )
            for spec in to_do
        ),
        hosts,
        Room(cpus=cores, memory_mib=memory_mib or 0),
    )
    if simulated.impossible:
        raise UsageError(
            f"--memory-mib {memory_mib}: a guest of this study needs {memory} (provider.memory_mib); no host "
            "has room for one"
        )
    hours = simulated.makespan_s / 3600
    spread = None  # of the whole, as a share of it: that of the hours with one guest at a time
    if forecast.hours and forecast.hours_high is not None:
        spread = (forecast.hours_high - forecast.hours) / forecast.hours
    return replace(
        fleet,
        hours=hours,
        hours_low=None if spread is None else max(hours * (1 - spread), 0.0),
        hours_high=None if spread is None else hours * (1 + spread),
        bound_hours=simulated.bound_s / 3600,
        utilisation=simulated.utilisation,
        core_hours=simulated.core_hours,
    )


# ---- simulation ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """One run to do. `group` is its experiment set: runs that are alike, one in each block."""

    run: str
    group: str
    needs: Room
    run_s: float
    block: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    run: str
    host: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`bound_s` is what no schedule can be shorter than: the longest run, and all core-seconds over all
    cores. `utilisation` is the share of core-seconds in which a run held the core, from the first start to
    the last end; `core_hours` are all cores for the whole time. `impossible` are groups that need more memory
    than a host has, which are left out."""

    starts: tuple[Start, ...]
    makespan_s: float
    bound_s: float
    utilisation: float
    core_hours: float
    impossible: tuple[str, ...]


def simulate(runs: Iterable[ExpectedRun], hosts: int, room: Room) -> Simulated:
    """Runs the plan on hosts that are alike, event by event. A guest wider than a host takes all its cores,
    as in a sweep. Every time is exact: there is no start of guests, no dispatch, no transfer."""
    packing = Packing()
    expected: dict[str, ExpectedRun] = {}
    impossible: dict[str, None] = {}
    for run in runs:
        if run.needs.memory_mib > room.memory_mib:
            impossible[run.group] = None
            continue
        expected[run.run] = run
        packing.add(run.group, run.run, run.needs, run.run_s, block=run.block)
    for number in range(hosts):
        packing.add_host(f"host-{number + 1:04d}", room)
    starts: list[Start] = []
    ends: list[tuple[float, str, str]] = []  # a heap of (when, run, host)
    at_s = 0.0
    while True:
        for name, host in packing.start():
            starts.append(Start(run=name, host=host, at_s=at_s))
            heapq.heappush(ends, (at_s + expected[name].run_s, name, host))
        if not ends:
            break
        at_s = ends[0][0]
        while ends and ends[0][0] == at_s:
            _, name, host = heapq.heappop(ends)
            packing.ended(host, name)
    cores = hosts * room.cpus
    core_s = sum(
        (room.cpus if run.needs.whole else min(run.needs.cpus, room.cpus)) * run.run_s
        for run in expected.values()
    )
    longest_s = max((run.run_s for run in expected.values()), default=0.0)
    return Simulated(
        starts=tuple(starts),
        makespan_s=at_s,
        bound_s=max(longest_s, core_s / cores),
        utilisation=core_s / (cores * at_s) if at_s else 0.0,
        core_hours=cores * at_s / 3600,
        impossible=tuple(impossible),
    )
