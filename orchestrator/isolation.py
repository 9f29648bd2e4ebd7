"""How alone a run was: who ran beside it, what they shared, and what disturbed it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from guest.records import Isolation, RunResult
from orchestrator import topology
from orchestrator.executor import RunFailedError
from orchestrator.topology import Cores, Topology

SWAPPED_MIB = 16.0  # every machine moves a page now and then


def isolation(
    result: RunResult,
    cores: tuple[int, ...],
    neighbours: Mapping[str, Cores],
    where: Topology,
    *,
    oversubscribed: bool,
    cpuset: str,
    disturbed_above: float,
) -> Isolation:
    """`neighbours` are the other guests and studies that held cores of the same machine meanwhile."""
    shares = {name: topology.shared(where, cores, theirs) for name, theirs in sorted(neighbours.items())}
    return Isolation(
        oversubscribed=oversubscribed,
        host_cores=cores,
        cpuset=cpuset,
        neighbours=tuple(shares),
        shares={name: what for name, what in shares.items() if what},
        disturbed=disturbances(result, disturbed_above),
    )


def disturbances(result: RunResult, limit: float) -> tuple[str, ...]:
    """What others did to a run, a phrase each: `limit` cores or more that they kept from it; heat and
    swapping count in any amount."""
    told = result.conditions
    stolen = told.get("steal_s", 0.0) / result.timings.wall_s if result.timings.wall_s > 0 else 0.0
    found = []
    if (result.load_by_others or 0.0) >= limit:
        found.append(f"others kept {result.load_by_others:.2f} of its cores busy")
    if stolen >= limit:
        found.append(f"the hypervisor below took {stolen:.2f} of its cores")
    if told.get("throttled", 0.0) > 0:
        found.append(f"its cores were slowed {told['throttled']:.0f} times because of heat")
    if told.get("swapped_mib", 0.0) >= SWAPPED_MIB:
        found.append(f"{told['swapped_mib']:.0f} MiB were swapped")
    return tuple(found)


def require_undisturbed(seen: Isolation) -> None:
    """Raises RunFailedError, by which the run is redone."""
    if seen.disturbed:
        raise RunFailedError("Disturbed", "; ".join(seen.disturbed))
