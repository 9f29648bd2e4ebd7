"""Runs on the guests that `vbstudy provision` made, in the order of the plan: block by block, all runs of a
block that a guest has in one turn."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from guest.records.run import RunResult, RunSpec
from orchestrator.agent import archive
from orchestrator.cores.leases import CoreLeases, Lease, host_memory_mib
from orchestrator.cores.parallel import Job, ParallelJobs
from orchestrator.engine import Observer, Summary
from orchestrator.engine.attempts import Attempts, Slot
from orchestrator.engine.open_guests import OpenGuests
from orchestrator.errors import VbstudyError
from orchestrator.guests.provision import require_datasets
from orchestrator.guests.session import MAX_WORKERS, Session
from orchestrator.inventory import Guest, Inventory, guest_for
from orchestrator.providers import Elsewhere, Provider, cores_of, machine_of
from orchestrator.store import recordings
from orchestrator.store.index import Checked
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.schema import Study

IDLE_WORKER_MIB = 512  # what a warm worker that waits holds of this machine's memory
SHARE_OF_MEMORY = 0.75  # that guests may have together


class LocalEngine:
    """Turns start in the order of the plan, as many side by side as there are cores for."""

    def __init__(self, study: Study, store: Store, provider: Provider, inventory: Inventory) -> None:
        self._study = study
        self._store = store
        self._provider = provider
        self._guests = inventory.by_name()
        self._agent = archive.build()

    def has_guest(self, name: str) -> bool:
        return name in self._guests

    def run(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        require_datasets(self._study, self._store)
        self._stop_idle({guest_for(spec) for spec in specs})
        snapshots.prepare(self._study, self._store)  # point: snapshots prepared
        parallel_jobs = ParallelJobs(self._provider.stop, observer.waiting)
        attempts = Attempts(self._study, self._store, self._agent, parallel_jobs.stop, observer, checked)
        guests = OpenGuests(self._session, self._guests_at_once())
        turns = _Turns(attempts=attempts, guests=guests, observer=observer, summary=summary)
        leases: dict[str, CoreLeases] = {}  # by the machine whose cores they are
        jobs = []
        left = [list(turn) for _, turn in itertools.groupby(specs, lambda s: (s.repetition, guest_for(s)))]
        last = {guest_for(turn[0]): number for number, turn in enumerate(left)}
        for number, turn in enumerate(left):
            guest = self._guests[guest_for(turn[0])]
            machine = guest.observed.machine
            if machine not in leases:
                leases[machine] = self._leases(guest, observer)
            work = functools.partial(
                turns.work, guest, turn, leases[machine], last[guest.spec.name] == number
            )
            jobs.append(Job(guest=guest.spec, leases=leases[machine], work=work))
        try:
            parallel_jobs.run(jobs)
        finally:
            guests.close_idle()

    def _session(self, guest: Guest, cores: tuple[int, ...]) -> Session:
        return Session(self._study, self._store, self._provider, guest, cores, self._agent)

    def _guests_at_once(self) -> int:
        """How many this machine has the memory for; of other machines nothing is known, nor kept back."""
        if isinstance(self._provider, Elsewhere):
            return len(self._guests)
        memory_mib = self._study.guest_memory_mib or MAX_WORKERS * IDLE_WORKER_MIB
        return max(1, int(SHARE_OF_MEMORY * host_memory_mib() / memory_mib))

    def _leases(self, guest: Guest, observer: Observer) -> CoreLeases:
        return CoreLeases(
            cores_of(self._provider, guest),
            machine_of(self._provider, guest.spec),
            settings=self._study.engine,
            waiting=observer.waiting,
        )

    def _stop_idle(self, busy: Collection[str]) -> None:
        """Guests of this machine without runs: a killed orchestrator may have left them running."""
        if not isinstance(self._provider, Elsewhere):
            for name, guest in self._guests.items():
                if name not in busy:
                    with contextlib.suppress(VbstudyError):  # what cannot be stopped is not needed, either
                        self._provider.stop(guest.spec)


@dataclass(slots=True, kw_only=True)
class _Turns:
    """What guests do while they have cores. Used by one thread a guest."""

    attempts: Attempts
    guests: OpenGuests
    observer: Observer
    summary: Summary
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _recording: dict[recordings.Numbers, threading.Lock] = field(default_factory=dict)

    def work(
        self, guest: Guest, turn: Sequence[RunSpec], leases: CoreLeases, is_last: bool, lease: Lease
    ) -> None:
        """A guest's runs of a block. It stays up unless this was the last, or something went wrong."""
        session = self.guests.take(guest, lease)
        slot = Slot(guest=guest, session=session, lease=lease, leases=leases)
        stop, comes_back = self.attempts.stop, False
        try:
            for spec in turn:
                result = self._run(slot, spec)
                if result is not None:
                    with self._counting:
                        self.summary.done_now += 1
                    self.observer.finished(spec, result)  # point: run counted
                elif not stop.is_set():
                    with self._counting:
                        self.summary.failed.append(spec.run_id)
                if stop.is_set():
                    return
            comes_back = not is_last
        finally:
            if comes_back:
                self.guests.leave(session)
            else:
                self.guests.close(session)

    def _run(self, slot: Slot, spec: RunSpec) -> RunResult | None:
        """Of the runs that draw the same recorded numbers, the first one records them while others wait."""
        if spec.workload.replays:
            with self._counting:
                recording = self._recording.setdefault(recordings.numbers(spec), threading.Lock())
            with recording:
                if recordings.find(self.attempts.store, spec) is None:
                    return self.attempts.run_with_retries(slot, spec)
        return self.attempts.run_with_retries(slot, spec)
