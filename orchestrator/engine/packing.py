"""Which run starts next, and on which host: block by block, in a block the longest first, as many side by
side as a host has room for.

Runs come in groups that are alike (experiment sets), of which a block has one run each. For the first run
that fits nowhere yet a host is kept free of later blocks: what is easier to fit in would otherwise run first,
and thread count and time were confounded. The engine of many hosts decides by this while it sweeps, and
`vbstudy plan` when it estimates the time of a fleet. Pure."""

from __future__ import annotations

import bisect
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
    waiting: deque[tuple[int, str]] = field(default_factory=deque)  # (block, run)

    @property
    def block(self) -> int:
        """Of its next run."""
        return self.waiting[0][0]

    def rank(self) -> tuple[int, float, int, int]:
        """By blocks, the longest first. The square root of the width counts too: the widest are the hardest
        to fit in later, and in simulations this came closer to the bound than length or core-seconds
        alone."""
        return self.block, -self.expected_s * math.sqrt(self.needs.cpus), -self.needs.cpus, self.place


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
        self._of: dict[str, tuple[str, int]] = {}  # group and block, by run
        self._ranked: list[str] = []  # groups with waiting runs
        self._hosts: dict[str, _Host] = {}
        self._open: set[str] = set()  # hosts on which another run may fit
        self._widest = 0
        self._block = 0  # the earliest with a waiting run

    # ---- what there is -----------------------------------------------------------------------

    def add(
        self, group: str, run: str, needs: Room, expected_s: float | None = None, *, block: int = 1
    ) -> None:
        """A run that waits, none of its group for a later block. `expected_s` counts for the first of its
        group; unknown is the longest."""
        if group not in self._groups:
            expected_s = math.inf if expected_s is None else expected_s
            self._groups[group] = _Group(needs=needs, place=len(self._groups), expected_s=expected_s)
        self._of[run] = group, block
        self._groups[group].waiting.append((block, run))
        if len(self._groups[group].waiting) == 1:
            self._changed(group)
        self._open.update(self._hosts)

    def learn(self, group: str, run_s: float) -> None:
        """What a run of the group has taken now counts in place of what was expected."""
        known = self._groups[group]
        known.measured_s += run_s
        known.n_measured += 1
        known.expected_s = known.measured_s / known.n_measured
        self._ranked.sort(key=lambda name: self._groups[name].rank())

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
        group, block = self._of[run]
        self._groups[group].waiting.remove((block, run))
        self._changed(group)

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
        """Runs that start now with their hosts, one after the other: the first run that fits, on the host
        with the most room, and so on until nothing fits. Each counts as running when it is yielded."""
        while self._open and self._ranked:
            name = max(self._open, key=self._free)
            group = self._fitting(name)
            if group is None:
                self._open.discard(name)
                continue
            _, run = self._groups[group].waiting.popleft()
            self._occupy(name, group, run)
            yield run, name

    def assign(self, host: str, run: str) -> bool:
        """Starts a waiting run on a host that has it at hand, whether there is room or not. False when it
        does not wait."""
        group, block = self._of[run]
        try:
            self._groups[group].waiting.remove((block, run))
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
        group, block = self._of[run]
        waiting = self._groups[group].waiting
        bisect.insort_left(waiting, (block, run), key=lambda waits: waits[0])
        self._changed(group)
        self._open.update(self._hosts)

    def _fitting(self, name: str) -> str | None:
        """The first group with a run for this host. A run that fits nowhere yet has a host kept free for it,
        on which nothing of a later block starts."""
        host = self._hosts[name]
        if host.closed or host.cpus <= 0:
            return None
        first = self._groups[self._ranked[0]]
        is_kept: bool | None = None
        for each in self._ranked:
            group = self._groups[each]
            if group.block > first.block and is_kept is None:
                is_kept = self._kept_for(first.needs) == name
            if group.block > first.block and is_kept:
                return None
            if _fits(self._taken(host, group.needs), Room(cpus=host.cpus, memory_mib=host.memory_mib)):
                return each
        return None

    def _kept_for(self, needs: Room) -> str | None:
        """Of the hosts that are large enough, the one with the most room."""
        roomy = [
            name
            for name, host in self._hosts.items()
            if not host.closed and _fits(self._taken(host, needs), host.has)
        ]
        return max(roomy, key=self._free, default=None)

    def _free(self, name: str) -> tuple[int, str]:
        return self._hosts[name].cpus, name

    def _taken(self, host: _Host, needs: Room) -> Room:
        """A guest wider than any host gets all cores of one of the widest."""
        if min(needs.cpus, self._widest) > host.has.cpus:
            return needs
        cpus = host.has.cpus if needs.whole else min(needs.cpus, self._widest)
        return Room(cpus=cpus, memory_mib=needs.memory_mib)

    def _occupy(self, name: str, group: str, run: str) -> None:
        host = self._hosts[name]
        needs = self._taken(host, self._groups[group].needs)
        if not _fits(needs, host.has):  # of a run that it had at hand already
            needs = host.has
        host.cpus -= needs.cpus
        host.memory_mib -= needs.memory_mib
        host.running[run] = needs
        self._changed(group)

    def _changed(self, group: str) -> None:
        """After a run was put into the group or taken out of it."""
        if group in self._ranked:
            self._ranked.remove(group)
        if self._groups[group].waiting:
            bisect.insort(self._ranked, group, key=lambda name: self._groups[name].rank())
        block = self._groups[self._ranked[0]].block if self._ranked else 0
        if block != self._block:  # runs that were held back may start
            self._block = block
            self._open.update(self._hosts)

    def _hosts_changed(self) -> None:
        self._widest = max((host.has.cpus for host in self._hosts.values()), default=0)
        self._open.update(self._hosts)


def _fits(needs: Room, room: Room) -> bool:
    return needs.cpus <= room.cpus and needs.memory_mib <= room.memory_mib
