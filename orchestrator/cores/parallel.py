"""Guests at work at the same time, a thread each, on cores of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.cores.leases import CoreLeases, Lease
from orchestrator.errors import GuestError
from orchestrator.inventory import GuestSpec

POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done with one guest while it holds cores of the machine that it is on."""

    guest: GuestSpec
    leases: CoreLeases
    work: Callable[[Lease], None]


class ParallelJobs:
    """Runs jobs. `stop_guest` ends what runs in a guest, whoever waits for it."""

    def __init__(self, stop_guest: Callable[[GuestSpec], None]) -> None:
        self.stop = threading.Event()
        """Set when all are to come to their end."""
        self._stop_guest = stop_guest
        self._running: set[str] = set()
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Job]) -> None:
        """Returns when all are done. Raises the first infrastructure error, or KeyboardInterrupt, after
        every guest has stopped."""
        threads = [threading.Thread(target=self._guard, args=(job,), name=job.guest.name) for job in jobs]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and not self.stop.is_set():
                    thread.join(POLL_S)
        finally:
            self.stop.set()
            while any(thread.is_alive() for thread in threads):
                self._end_running(jobs)
                time.sleep(POLL_S)
        if self._errors:
            raise self._errors[0]

    def _end_running(self, jobs: Sequence[Job]) -> None:
        """Ends what still runs in guests, so that the threads that follow it come to their end."""
        for job in jobs:
            with self._lock:
                running = job.guest.name in self._running
            if running:
                self._stop_guest(job.guest)

    def _guard(self, job: Job) -> None:
        try:
            lease = job.leases.lease(job.guest.name, job.guest.cpus, self.stop)
            if lease is not None:
                with lease:  # point: cores leased
                    self._work(job, lease)
        except BaseException as error:  # noqa: BLE001  (handed to the main thread, which raises it)
            if not self.stop.is_set():
                self._errors.append(error)
            if not isinstance(error, GuestError):  # the other guests may go on without this one
                self.stop.set()

    def _work(self, job: Job, lease: Lease) -> None:
        with self._lock:
            self._running.add(job.guest.name)
        try:
            job.work(lease)
        finally:
            with self._lock:
                self._running.discard(job.guest.name)  # point: cores freed
