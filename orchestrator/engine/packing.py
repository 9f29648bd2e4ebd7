"""Which run starts next, and on which host: the longest first, as many side by side as a host has room for.

Runs come in groups that are alike (experiment sets). The engine of many hosts decides by this while it
sweeps, and `vbstudy plan` when it estimates the time of a fleet. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a host has, or a run takes. `whole`: at least so many cores, and the whole host for itself."""

    cpus: int
    memory_mib: int = 0
    whole: bool = False


@dataclass(slots=True)
class _Group:
    needs: Room
    place: int  # in the order of the plan
    expected_s: float
    measured_s: float = 0.0  # the sum over n_measured runs
    n_measured: int = 0
    waiting: deque[str] = field(default_factory=deque)

    def rank(self) -> tuple[float, int, int]:
        """The longest first. The square root of the width counts too: the widest are the hardest to fit in
        later, and in simulations this came closer to the bound than length or core-seconds alone."""
        return -self.expected_s * math.sqrt(self.needs.cpus), -self.needs.cpus, self.place


@dataclass(slots=True)
class _Host:
    has: Room
    cpus: int  # free
    memory_mib: int  # free
    running: dict[str, Room] = field(default_factory=dict)  # what each run took
    closed: bool = False


class Packing:
    """Runs are named by their ids. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}  # by run
        self._ranked: list[str] = []  # groups with waiting runs
        self._hosts: dict[str, _Host] = {}
        self._open: set[str] = set()  # hosts on which another run may fit
        self._widest = 0

    # ---- what there is -----------------------------------------------------------------------

    def add(self, group: str, run: str, needs: Room, expected_s: float | None = None) -> None:
        """A run that waits. `expected_s` counts for the first of its group; unknown is the longest."""
        if group not in self._groups:
            expected_s = math.inf if expected_s is None else expected_s
            self._groups[group] = _Group(needs=needs, place=len(self._groups), expected_s=expected_s)
        self._group_of[run] = group
        self._groups[group].waiting.append(run)
        self._enlist(group)

    def learn(self, group: str, run_s: float) -> None:
        """What a run of the group has taken now counts in place of what was expected."""
        known = self._groups[group]
        known.measured_s += run_s
        known.n_measured += 1
        known.expected_s = known.measured_s / known.n_measured
        self._rank()

    def add_host(self, host: str, has: Room) -> None:
        self._hosts[host] = _Host(has=has, cpus=has.cpus, memory_mib=has.memory_mib)
        self._hosts_changed()

    def drop_host(self, host: str) -> None:
        """The host is gone; the runs that it had wait again."""
        lost = self._hosts.pop(host)
        self._open.discard(host)
        for run in reversed(lost.running):
            self.put_back(run)
        self._hosts_changed()

    def close_host(self, host: str) -> None:
        """Nothing more is started there; what runs there may end."""
        self._hosts[host].closed = True

    def withdraw(self, run: str) -> None:
        """A waiting run is given up."""
        group = self._group_of[run]
        self._groups[group].waiting.remove(run)
        if not self._groups[group].waiting:
            self._ranked.remove(group)

    def hosts(self) -> list[str]:
        return list(self._hosts)

    def open_hosts(self) -> list[str]:
        return [name for name, host in self._hosts.items() if not host.closed]

    def waiting(self) -> int:
        return sum(len(self._groups[name].waiting) for name in self._ranked)

    def takes(self, host: str, run: str) -> Room:
        """What a run takes of the host that it is on."""
        return self._hosts[host].running[run]

    # ---- decisions ---------------------------------------------------------------------------

    def start(self) -> Iterator[tuple[str, str]]:
        """Runs that start now with their hosts, one after the other: the longest run that fits, on the host
        with the most room, and so on until nothing fits. Each counts as running when it is yielded."""
        while self._open and self._ranked:
            name = max(self._open, key=lambda host: (self._hosts[host].cpus, host))
            group = self._fitting(self._hosts[name])
            if group is None:
                self._open.discard(name)
                continue
            run = self._groups[group].waiting.popleft()
            self._occupy(name, group, run)
            yield run, name

    def assign(self, host: str, run: str) -> bool:
        """Starts a waiting run on a host that has it at hand, whether there is room or not. False when it
        does not wait."""
        group = self._group_of[run]
        try:
            self._groups[group].waiting.remove(run)
        except ValueError:
            return False
        self._occupy(host, group, run)
        return True

    def ended(self, host: str, run: str) -> None:
        """The run left its host, and nothing more is known of it."""
        took = self._hosts[host].running.pop(run)
        self._hosts[host].cpus += took.cpus
        self._hosts[host].memory_mib += took.memory_mib
        self._open.add(host)

    def put_back(self, run: str) -> None:
        """A run that has ended waits again."""
        group = self._group_of[run]
        self._groups[group].waiting.appendleft(run)
        self._enlist(group)

    def _fitting(self, host: _Host) -> str | None:
        if host.closed or host.cpus <= 0:
            return None
        for name in self._ranked:
            needs = self._taken(host, self._groups[name].needs)
            if needs.cpus <= host.cpus and needs.memory_mib <= host.memory_mib:
                return name
        return None

    def _taken(self, host: _Host, needs: Room) -> Room:
        """A guest wider than any host gets all cores of one of the widest."""
        if min(needs.cpus, self._widest) > host.has.cpus:
            return needs
        cpus = host.has.cpus if needs.whole else min(needs.cpus, self._widest)
        return Room(cpus=cpus, memory_mib=needs.memory_mib)

    def _occupy(self, name: str, group: str, run: str) -> None:
        host = self._hosts[name]
        needs = self._taken(host, self._groups[group].needs)
        if needs.cpus > host.has.cpus:  # of a run that it had at hand already
            needs = host.has
        host.cpus -= needs.cpus
        host.memory_mib -= needs.memory_mib
        host.running[run] = needs
        if not self._groups[group].waiting:
            self._ranked.remove(group)

    def _enlist(self, group: str) -> None:
        """After a run was put into the group."""
        if len(self._groups[group].waiting) == 1:
            self._ranked.append(group)
            self._rank()
        self._open.update(self._hosts)

    def _rank(self) -> None:
        self._ranked.sort(key=lambda name: self._groups[name].rank())

    def _hosts_changed(self) -> None:
        self._widest = max((host.has.cpus for host in self._hosts.values()), default=0)
        self._open.update(self._hosts)
