"""Core leases: which guests may run at once, and on which cores of their machine. Two guests never share
a physical core, also not with those of other studies on that machine, wherever they are swept from."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from types import TracebackType
from typing import Protocol

from orchestrator.cores import topology
from orchestrator.cores.locks import CoreLocks, LockFolderError, Locks
from orchestrator.cores.topology import Choice, Cores, Topology
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.study.engine import EngineTable
from orchestrator.text import Say

POLL_S = 0.2
REPORT_AFTER_S = 2.0
DEFAULTS = EngineTable()


def host_cores() -> tuple[int, ...]:
    """The cores this process may use; a container may be given fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0)))


def host_memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


class MachineCores(Protocol):
    """The cores of one machine: their locks and their topology."""

    locks: Locks

    def topology(self, cores: tuple[int, ...]) -> Topology:
        """Of these cores."""


class LocalCores:
    def __init__(self) -> None:
        self.locks: Locks = CoreLocks()

    def topology(self, cores: tuple[int, ...]) -> Topology:
        return topology.read(cores)


class CoreLeases:
    """Leases cores, first come first served among those that fit: a waiting guest that needs more
    cores than are free holds back those behind it, also those of other processes on cores that it may use.
    So no guest starves: it waits for the leases that were there before it, and for others that wait.

    They are those of `machine`, or of this one. Its topology is respected, and what other processes lease
    there is left alone. `settings` are what the study asks for under `[engine]`; `waiting` is called once for
    a guest that waits because other processes hold too many."""

    def __init__(
        self,
        cores: tuple[int, ...],
        machine: MachineCores | None = None,
        *,
        settings: EngineTable = DEFAULTS,
        waiting: Say | None = None,
    ) -> None:
        self._machine = machine or LocalCores()
        self._locks = self._machine.locks
        self._cores = cores
        self._free = set(cores)
        self._settings = settings
        self._waiting = waiting
        self._queue: list[object] = []
        self._holders: dict[object, tuple[str, Cores]] = {}
        self._changed = threading.Condition()
        self._changes = 0

    @functools.cached_property
    def topology(self) -> Topology:
        """Asked for by who first needs it: a machine that does not answer fails its own guests only."""
        return self._machine.topology(self._cores)

    def lease(self, holder: str, count: int, stop: threading.Event) -> Lease | None:
        """Waits for `count` cores (all of them when it is more than there are). None when `stop`
        is set first."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
        choice = None
        try:
            choice = self._wait(holder, count, ticket, stop)
        finally:
            with self._changed:
                if choice is not None:
                    self._free -= choice.held
                    self._holders[ticket] = holder, choice.held
                self._queue.remove(ticket)
                self._notify()
        return None if choice is None else Lease(self, ticket, holder, choice.cores)

    def wait_for(self, holder: str, count: int) -> Lease:
        """The same, for as long as it takes."""
        lease = self.lease(holder, count, threading.Event())
        assert lease is not None  # noqa: S101  (nobody sets the event)
        return lease

    def _wait(self, holder: str, count: int, ticket: object, stop: threading.Event) -> Choice | None:
        """Only the first in the queue takes cores, so it needs no lock for that: others may release theirs
        while it waits for the answer of a machine behind SSH."""
        report_at, waits = time.monotonic() + REPORT_AFTER_S, False
        while True:
            with self._changed:
                changes, free, is_first = self._changes, set(self._free), self._queue[0] is ticket
            choice, others = self._take(free, count) if is_first else (None, set[int]())
            waits |= bool(others)
            if choice is not None or stop.is_set():
                if choice is None and waits:
                    with contextlib.suppress(GuestError):  # of a machine that does not answer
                        self._locks.take(())  # those behind it go on
                return choice
            if self._waiting and others and time.monotonic() > report_at:
                report_at = float("inf")
                self._waiting(f"guest {holder} waits for cores: {self._who(others)}")
            with self._changed:
                if self._changes == changes:
                    self._changed.wait(POLL_S)

    def holders(self) -> dict[str, Cores]:
        """Who holds cores now, and which: guests by their names, other processes by their numbers."""
        with self._changed:
            found = dict(self._holders.values())
        others: dict[str, set[int]] = {}
        for core, process in self._locks.holders(self.topology).items():
            others.setdefault(f"process {process}", set()).add(core)
        return found | {name: frozenset(cores) for name, cores in others.items()}

    def _take(self, free: set[int], count: int) -> tuple[Choice | None, set[int]]:
        """Cores for a guest, locked; or none yet, with those that other processes hold."""
        others = set[int]()
        while True:
            choice = self._choose(free, count)
            if choice is None:
                return choice, others
            try:
                taken = self._locks.take(self._physical(choice.held))
            except LockFolderError as error:
                raise PrerequisiteError(str(error)) from None
            if not taken:
                return choice, others
            others |= taken
            free = {core for core in free if not self.topology[core].core & taken}

    def _choose(self, free: set[int], count: int) -> Choice | None:
        asked = self._settings
        wanted = max(count, asked.reserve) if asked.side_by_side else len(self.topology)
        chosen = topology.choose(free, self.topology, wanted, hyper_threads=asked.hyper_threads)
        if chosen is None:
            return None
        # Those it uses are chosen among those that are held for it.
        used = topology.choose(chosen.held, self.topology, count, hyper_threads=asked.hyper_threads)
        return Choice(cores=(used or chosen).cores[:count], held=chosen.held)

    def _physical(self, cores: Cores) -> set[int]:
        """With the hyper-threads of these cores that are not for us to use."""
        return {thread for core in cores for thread in self.topology[core].core}

    def _who(self, others: set[int]) -> str:
        holders = set(self._locks.holders(others).values())
        by = ", ".join(f"process {process}" for process in sorted(holders)) or "others"
        return f"{by} on its machine leased {', '.join(map(str, sorted(others)))}"

    def _release(self, ticket: object) -> None:
        _, held = self._holders[ticket]
        self._locks.release(self._physical(held))
        with self._changed:
            del self._holders[ticket]
            self._free |= held
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()


class Lease:
    """Cores that a guest uses until the `with` block ends; more may be held for it."""

    def __init__(self, leases: CoreLeases, ticket: object, holder: str, cores: tuple[int, ...]) -> None:
        self.holder = holder
        self.cores = cores
        self._leases = leases
        self._ticket = ticket

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases._release(self._ticket)
