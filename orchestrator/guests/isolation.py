"""Isolation of a run: co-located guests, the cores they shared, and contention. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from guest.records.run import Isolation, RunResult
from orchestrator.agent.executor import RunFailedError
from orchestrator.cores import topology
from orchestrator.cores.topology import Cores, Topology

SWAPPED_MIB = 16.0  # every machine moves a page now and then


def isolation(
    result: RunResult,
    host: Mapping[str, float],
    cores: tuple[int, ...],
    neighbours: Mapping[str, Cores],
    where: Topology,
    *,
    oversubscribed: bool,
    cpuset: str,
    contended_above: float,
) -> Isolation:
    """`host` is what the machine below a virtual one saw of its cores, or nothing. `neighbours` are the other
    guests and studies that held cores of the same machine meanwhile."""
    shares = {name: topology.shared(where, cores, theirs) for name, theirs in sorted(neighbours.items())}
    return Isolation(
        oversubscribed=oversubscribed,
        host_cores=cores,
        cpuset=cpuset,
        neighbours=tuple(shares),
        shares={name: what for name, what in shares.items() if what},
        contended=contentions(result, host, contended_above),
        host=dict(host),
    )


def contentions(result: RunResult, host: Mapping[str, float], limit: float) -> tuple[str, ...]:
    """What others did to a run, a phrase each, as its guest saw it and as the machine below did: `limit`
    cores or more that they kept from it; heat and swapping count in any amount."""
    inside = result.conditions | {
        "wall_s": result.timings.wall_s,
        "load_by_others": result.load_by_others or 0.0,
    }
    return (*_seen(inside, "", limit), *_seen(host, "on the host, ", limit))


def _seen(seen: Mapping[str, float], where: str, limit: float) -> Iterator[str]:
    wall_s, load = seen.get("wall_s", 0.0), seen.get("load_by_others", 0.0)
    stolen, held = (seen.get(name, 0.0) / wall_s if wall_s > 0 else 0.0 for name in ("steal_s", "quota_s"))
    if load >= limit:
        yield f"{where}others kept {load:.2f} of its cores busy"
    if stolen >= limit:
        yield f"{where}the hypervisor below took {stolen:.2f} of its cores"
    if held >= limit:
        yield f"{where}a CPU quota (of a container or cgroup) held back {held:.2f} of its cores"
    if seen.get("throttled", 0.0) > 0:
        yield f"{where}its cores were slowed {seen['throttled']:.0f} times because of heat"
    if seen.get("swapped_mib", 0.0) >= SWAPPED_MIB:
        yield f"{where}{seen['swapped_mib']:.0f} MiB were swapped"


def require_uncontended(seen: Isolation) -> None:
    """Raises RunFailedError, by which the run is redone."""
    if seen.contended:
        raise RunFailedError("Contended", "; ".join(seen.contended))
