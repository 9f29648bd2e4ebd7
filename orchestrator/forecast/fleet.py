"""What a fleet of hosts will take for what is left of a study: makespan and utilisation. The decisions are
those of `Packing`, with the times that runs are expected to take in place of runs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from guest.records.run import RunSpec
from orchestrator.engine.packing import Packing, Room
from orchestrator.errors import UsageError
from orchestrator.forecast.model import Forecast, SetForecast
from orchestrator.study.schema import Study

DRAWS = 39  # a further one lies between their lowest and their highest with a probability of 38 in 40: 95 %
DRAWN = 250_000  # runs x (hosts + 64), which is about the work of a simulation: all draws take about 10 s


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetForecast:
    """`hours` is from the first start to the last end, with `hours_low` to `hours_high` about 95 % sure as
    far as the runs' times vary; None: the time of a run is unknown (of a set in `unknown`), or for the
    interval its SD, or the plan is too large to simulate it often. `bound_hours` is what no schedule can be
    shorter than. `n_measured` runs are what the times are from."""

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

    @property
    def too_large(self) -> bool:
        """For repeated simulations, which the interval needs."""
        return self.runs * (min(self.hosts, self.runs) + 64) > DRAWN


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
    needed = {spec.set_id for spec in to_do}
    sets = {s.set_id: s for s in forecast.sets if s.set_id in needed}
    unknown = tuple(name for name, s in sets.items() if s.run_s is None)
    others = {_workload(s): s.n_measured for s in sets.values() if s.basis.startswith("other")}
    own = [s for s in sets.values() if s.basis == "this condition" and _workload(s) not in others]
    fleet = FleetForecast(
        hosts=hosts,
        cores=cores,
        memory_mib=memory_mib,
        runs=len(to_do),
        n_measured=sum(others.values()) + sum(s.n_measured for s in own),
        unknown=unknown,
    )
    if unknown:
        return fleet
    memory = study.guest_memory_mib if memory_mib is not None else 0
    runs = [
        ExpectedRun(
            run=spec.run_id,
            group=spec.set_id,
            needs=Room(
                cpus=max(spec.threads.cpus, study.engine.reserve),
                memory_mib=memory,
                whole=not study.engine.side_by_side,
            ),
            run_s=sets[spec.set_id].run_s or 0.0,
            block=spec.repetition,
        )
        for spec in to_do
    ]
    room = Room(cpus=cores, memory_mib=memory_mib or 0)
    simulated = simulate(runs, hosts, room)
    if simulated.impossible:
        raise UsageError(
            f"--memory-mib {memory_mib}: a guest of this study needs {memory} (provider.memory_mib); no host "
            "has room for one"
        )
    low = high = None
    spread = all(s.run_s_sd is not None for s in sets.values())
    if spread and not fleet.too_large:
        drawn = sorted(
            (simulate(runs, hosts, room, took_s) for took_s in _draws(runs, sets)),
            key=lambda each: each.makespan_s,
        )
        low, simulated, high = drawn[0].makespan_s, drawn[DRAWS // 2], drawn[-1].makespan_s
    return replace(
        fleet,
        hours=simulated.makespan_s / 3600,
        hours_low=None if low is None else low / 3600,
        hours_high=None if high is None else high / 3600,
        bound_hours=simulated.bound_s / 3600,
        utilisation=simulated.utilisation,
        core_hours=simulated.core_hours,
    )


def _workload(s: SetForecast) -> str:
    return s.set_id.partition("/")[0]


def _draws(runs: Sequence[ExpectedRun], sets: Mapping[str, SetForecast]) -> Iterator[dict[str, float]]:
    """What each run may take: normal times around a mean and with an SD that are themselves as uncertain as
    the measured runs leave them. On many hosts the longest runs decide, so the whole does not vary as the sum
    does. Conditions that share their measured runs err together."""
    rng = np.random.default_rng(1)
    for _ in range(DRAWS):
        drawn: dict[tuple[float, float, int], tuple[float, float]] = {}
        by_set = {}
        for name, s in sets.items():
            mean_s, sd_s, n = s.run_s or 0.0, s.run_s_sd or 0.0, s.n_measured
            if (mean_s, sd_s, n) not in drawn:
                sd = sd_s * math.sqrt((n - 1) / rng.chisquare(n - 1))
                drawn[mean_s, sd_s, n] = rng.normal(mean_s, sd / math.sqrt(n)), sd
            by_set[name] = drawn[mean_s, sd_s, n]
        yield {run.run: max(0.0, rng.normal(*by_set[run.group])) for run in runs}


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


def simulate(
    runs: Iterable[ExpectedRun], hosts: int, room: Room, took_s: Mapping[str, float] | None = None
) -> Simulated:
    """Runs the plan on hosts that are alike, event by event. A guest wider than a host takes all its cores,
    as in a sweep. Runs take what is expected of them, or `took_s`. There is no start of guests, no dispatch,
    no transfer."""
    packing = Packing()
    expected: dict[str, ExpectedRun] = {}
    impossible: dict[str, None] = {}
    for run in runs:
        if run.needs.memory_mib > room.memory_mib:
            impossible[run.group] = None
            continue
        expected[run.run] = run
        packing.add(run.group, run.run, run.needs, run.run_s, block=run.block)
    if took_s is None:
        took_s = {name: run.run_s for name, run in expected.items()}
    for number in range(min(hosts, len(expected))):  # more would be idle
        packing.add_host(f"host-{number + 1:04d}", room)
    starts: list[Start] = []
    ends: list[tuple[float, str, str]] = []  # a heap of (when, run, host)
    at_s = 0.0
    while True:
        for name, host in packing.start():
            starts.append(Start(run=name, host=host, at_s=at_s))
            heapq.heappush(ends, (at_s + took_s[name], name, host))
        if not ends:
            break
        at_s = ends[0][0]
        while ends and ends[0][0] == at_s:
            _, name, host = heapq.heappop(ends)
            packing.ended(host, name)
    cores = hosts * room.cpus
    core_s = sum(
        (room.cpus if run.needs.whole else min(run.needs.cpus, room.cpus)) * took_s[name]
        for name, run in expected.items()
    )
    longest_s = max((took_s[name] for name in expected), default=0.0)
    return Simulated(
        starts=tuple(starts),
        makespan_s=at_s,
        bound_s=max(longest_s, core_s / cores),
        utilisation=core_s / (cores * at_s) if at_s else 0.0,
        core_hours=cores * at_s / 3600,
        impossible=tuple(impossible),
    )
