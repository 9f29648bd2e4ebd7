"""Which cores of this machine belong together: the hyper-threads of a physical core, the cores below one
last-level cache, those of one memory node. And the choice of cores for a guest. Pure, but for `read`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from guest.records.printable import counted
from orchestrator.cores.cpuset import parse_cores

SYSTEM = Path("/sys/devices/system")
FILES = (
    "node/node*/cpulist",
    "cpu/cpu*/topology/thread_siblings_list",
    "cpu/cpu*/cache/index*/shared_cpu_list",
)
"""In which the kernel describes it."""

Cores = frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """With which cores, itself among them, a core shares what."""

    core: Cores  # the hyper-threads of its physical core
    cache: Cores  # its last-level cache
    node: Cores  # its memory node


Topology = Mapping[int, Domains]
"""By the number of the core, as the kernel counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`cores` are for the guest to use, in this order; all of `held` are kept from others."""

    cores: tuple[int, ...]
    held: Cores


def read(cores: Iterable[int], system: Path = SYSTEM) -> Topology:
    """What the kernel reports about these cores of this machine."""
    paths = [path for pattern in FILES for path in system.glob(pattern)]
    return from_files(cores, {str(path.relative_to(system)): path.read_text() for path in paths})


def from_files(cores: Iterable[int], files: Mapping[str, str]) -> Topology:
    """From the texts of FILES by their paths. Where they say nothing, a core is taken to be a physical one,
    and all of them to share their cache and memory."""
    everyone = frozenset(cores)
    nodes = [_cores(files[path]) for path in sorted(files) if path.startswith("node/")]
    caches: dict[str, list[str]] = {}
    for path in filter(lambda path: "/cache/" in path, files):
        caches.setdefault(path.split("/")[1], []).append(path)
    found = {}
    for core in sorted(everyone):
        node = next((node for node in nodes if core in node), everyone)
        last = max(caches.get(f"cpu{core}", []), key=_cache_index, default="")
        found[core] = Domains(
            core=_cores(files.get(f"cpu/cpu{core}/topology/thread_siblings_list", "")) | {core},
            cache=_cores(files[last]) | {core} if last else node,
            node=node,
        )
    return found


def choose(
    free: Collection[int], topology: Topology, count: int, *, hyper_threads: bool = True
) -> Choice | None:
    """Cores for a guest with `count` virtual CPUs, or None while there are not enough.

    A physical core is never given to two guests. With `hyper_threads` its threads count as cores,
    otherwise each virtual CPU gets a physical core, as long as there are that many. A guest that fits
    into a memory node gets cores of one node, and those of one cache where it can; of the nodes and
    caches with room the fullest, which leaves the others whole. A guest that needs more cores than there
    are gets all."""
    there = frozenset(topology)
    physical = list(dict.fromkeys(topology[core].core & there for core in sorted(there)))
    if not hyper_threads and len(physical) < count:
        hyper_threads = True
    whole = [group for group in physical if group <= set(free)]
    if _width(physical, hyper_threads) <= count:
        return _of(physical, count, hyper_threads) if whole == physical else None
    nodes, caches = (_split(whole, topology, domain) for domain in ("node", "cache"))
    fits_a_node = any(
        _width(groups, hyper_threads) >= count for groups in _split(physical, topology, "node").values()
    )
    for domain in (caches, nodes) if fits_a_node else (caches, nodes, {there: whole}):
        roomy = [groups for groups in domain.values() if _width(groups, hyper_threads) >= count]
        if roomy:
            return _of(min(roomy, key=lambda groups: _width(groups, hyper_threads)), count, hyper_threads)
    return None


def shared(topology: Topology, ours: Collection[int], theirs: Collection[int]) -> str:
    """The closest thing that two guests share: "core", "cache", "node" or ""."""
    for domain in ("core", "cache", "node"):
        if any(getattr(topology[core], domain) & set(theirs) for core in ours if core in topology):
            return domain
    return ""


def describe(topology: Topology) -> str:
    """`8 cores: 4 physical x 2 threads, 2 caches, 1 memory node`"""
    physical, caches, nodes = (
        len({getattr(domains, domain) for domains in topology.values()})
        for domain in ("core", "cache", "node")
    )
    threads = len(topology) / physical
    by = f" x {threads:g} threads" if threads > 1 else ""
    return (
        f"{counted(len(topology), 'core')}: {physical} physical{by}, {counted(caches, 'last-level cache')}, "
        f"{counted(nodes, 'memory node')}"
    )


def _split(physical: list[Cores], topology: Topology, domain: str) -> dict[Cores, list[Cores]]:
    """Physical cores by the domain that they are in."""
    groups: dict[Cores, list[Cores]] = {}
    for group in physical:
        groups.setdefault(getattr(topology[min(group)], domain), []).append(group)
    return groups


def _width(physical: list[Cores], hyper_threads: bool) -> int:
    return sum(map(len, physical)) if hyper_threads else len(physical)


def _of(physical: list[Cores], count: int, hyper_threads: bool) -> Choice:
    """The first `count` cores of these physical ones."""
    cores: list[int] = []
    held: set[int] = set()
    for group in physical:
        if len(cores) >= count:
            break
        cores += sorted(group) if hyper_threads else [min(group)]
        held |= group
    return Choice(cores=tuple(cores[:count]), held=frozenset(held))


def _cores(text: str) -> Cores:
    try:
        return frozenset(parse_cores(text))
    except ValueError:
        return frozenset()


def _cache_index(path: str) -> int:
    """Of cpu/cpu0/cache/index3/shared_cpu_list; caches are numbered from the core outwards."""
    digits = path.split("/")[3].removeprefix("index")
    return int(digits) if digits.isdecimal() and len(digits) < 9 else -1
