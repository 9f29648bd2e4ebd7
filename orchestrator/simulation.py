"""What a fleet of hosts would take for a plan: the decisions of `Packing`, with the times that runs are
expected to take in place of runs. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.packing import Packing, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """One run to do. `group` is its experiment set: runs that are alike."""

    run: str
    group: str
    needs: Room
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Hosts that are alike."""

    hosts: int
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    run: str
    host: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`bound_s` is what no schedule can be shorter than: the longest run, and all core-seconds over all
    cores. `utilisation` is the share of core-seconds in which a run held the core, from the first start to
    the last end. `impossible` are groups that need more memory than a host has, which are left out."""

    fleet: Fleet
    starts: tuple[Start, ...]
    makespan_s: float
    bound_s: float
    utilisation: float
    impossible: tuple[str, ...]

    @property
    def core_hours(self) -> float:
        """All cores of the fleet for the whole time: what is paid for."""
        return self.fleet.hosts * self.fleet.room.cpus * self.makespan_s / 3600


def simulate(runs: Iterable[ExpectedRun], fleet: Fleet) -> Simulated:
    """Runs the plan on the fleet, event by event. A guest wider than a host takes all of its cores, as in a
    sweep. Every time is exact: there is no start of guests, no dispatch, no transfer."""
    packing = Packing()
    expected: dict[str, ExpectedRun] = {}
    impossible: dict[str, None] = {}
    for run in runs:
        if run.needs.memory_mib > fleet.room.memory_mib:
            impossible[run.group] = None
            continue
        expected[run.run] = run
        packing.add(run.group, run.run, run.needs, run.run_s)
    for number in range(fleet.hosts):
        packing.add_host(f"host-{number + 1:04d}", fleet.room)
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
    cores = fleet.hosts * fleet.room.cpus
    core_s = sum(
        (fleet.room.cpus if run.needs.whole else min(run.needs.cpus, fleet.room.cpus)) * run.run_s
        for run in expected.values()
    )
    longest_s = max((run.run_s for run in expected.values()), default=0.0)
    return Simulated(
        fleet=fleet,
        starts=tuple(starts),
        makespan_s=at_s,
        bound_s=max(longest_s, core_s / cores),
        utilisation=core_s / (cores * at_s) if at_s else 0.0,
        impossible=tuple(impossible),
    )
