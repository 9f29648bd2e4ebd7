"""Guests at work at the same time, a thread each, on cores of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.cores.leases import CoreLeases, Lease
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.inventory import GuestSpec
from orchestrator.text import Say

POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done with one guest while it holds cores of the machine that it is on."""

    guest: GuestSpec
    leases: CoreLeases
    work: Callable[[Lease], None]


class ParallelJobs:
    """Runs jobs. `stop_guest` ends what runs in a guest, whoever waits for it; `waiting` is called
    once for a guest that cannot be stopped."""

    def __init__(self, stop_guest: Callable[[GuestSpec], None], waiting: Say | None = None) -> None:
        self.stop = threading.Event()
        """Set when all are to come to their end."""
        self._stop_guest = stop_guest
        self._waiting = waiting
        self._unstopped: set[str] = set()  # guests that were reported
        self._running: dict[str, GuestSpec] = {}
        self._failed: set[str] = set()  # guests that get no further job
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Job]) -> None:
        """Starts the jobs of each machine in their order: one starts when all before it have, its guest is
        done with the one before, and there are cores for it. Returns when all are done. Raises the first
        infrastructure error, or KeyboardInterrupt, after every guest has stopped."""
        machines: dict[CoreLeases, list[Job]] = {}
        for job in jobs:
            machines.setdefault(job.leases, []).append(job)
        # Not by `Thread.join`: after an interrupt there, Python 3.11 takes a running thread for an ended one.
        ends = [threading.Event() for _ in machines]
        threads = [
            threading.Thread(target=self._start_in_order, args=(each, end))
            for each, end in zip(machines.values(), ends, strict=True)
        ]
        try:
            for thread in threads:
                thread.start()
            for end in ends:
                while not self.stop.is_set() and not end.wait(POLL_S):
                    pass
        finally:
            self.stop.set()
            while not all(end.is_set() for thread, end in zip(threads, ends, strict=True) if thread.ident):
                with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: the guests still end first
                    self._end_running()
                    time.sleep(POLL_S)
        if self._errors:
            raise self._errors[0]

    def _start_in_order(self, jobs: Sequence[Job], end: threading.Event) -> None:
        """The jobs of one machine; `end` is set when all have ended."""
        try:
            self._start(jobs)
        finally:
            end.set()

    def _start(self, jobs: Sequence[Job]) -> None:
        at_work: dict[str, threading.Thread] = {}  # by guest
        for job in jobs:
            name = job.guest.name
            if name in at_work:
                at_work.pop(name).join()
            if self.stop.is_set():
                break
            if name in self._failed:
                continue
            try:
                lease = job.leases.lease(name, job.guest.cpus, self.stop)
            except BaseException as error:  # noqa: BLE001  (handed to the main thread, which raises it)
                self._fail(job, error)
                continue
            if lease is None:
                break
            thread = threading.Thread(target=self._guard, args=(job, lease), name=name)
            try:
                thread.start()
            except RuntimeError as error:
                with lease:
                    what = f"{name}: {error}; `ulimit -u`, or a container's limit, allows no more threads"
                    self._fail(job, PrerequisiteError(what))
                continue
            at_work[name] = thread
        for thread in at_work.values():
            thread.join()

    def _end_running(self) -> None:
        """Ends what still runs in guests, so that the threads that follow it come to their end. What runs in
        one that cannot be stopped is waited for."""
        with self._lock:
            running = list(self._running.values())
        for guest in running:
            try:
                self._stop_guest(guest)
            except Exception as error:  # noqa: BLE001  (others are stopped, whatever keeps this one up)
                if self._waiting and guest.name not in self._unstopped:
                    self._waiting(f"guest {guest.name} cannot be stopped, its work goes on: {error}")
                self._unstopped.add(guest.name)

    def _guard(self, job: Job, lease: Lease) -> None:
        try:
            with lease:  # point: cores leased
                self._work(job, lease)
        except BaseException as error:  # noqa: BLE001  (handed to the main thread, which raises it)
            self._fail(job, error)

    def _fail(self, job: Job, error: BaseException) -> None:
        if not self.stop.is_set():
            self._errors.append(error)
        self._failed.add(job.guest.name)
        if not isinstance(error, GuestError):  # the other guests may go on without this one
            self.stop.set()

    def _work(self, job: Job, lease: Lease) -> None:
        with self._lock:
            self._running[job.guest.name] = job.guest
        try:
            job.work(lease)
        finally:
            with self._lock:
                del self._running[job.guest.name]  # point: cores freed
