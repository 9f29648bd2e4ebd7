"""Runs on the guests that `vbstudy provision` made: one thread a guest."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Collection, Sequence

from guest.machine import fingerprint
from guest.records.run import RunSpec
from orchestrator.agent import archive
from orchestrator.cores.leases import CoreLeases, Lease, host_cores
from orchestrator.cores.parallel import Job, ParallelJobs
from orchestrator.engine import Observer, Summary
from orchestrator.engine.attempts import Attempts, Slot
from orchestrator.errors import VbstudyError
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, Inventory, guest_for
from orchestrator.providers import Elsewhere, Provider, machine_of
from orchestrator.store import recordings
from orchestrator.store.index import Checked
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.schema import Study


class LocalEngine:
    """One thread a guest; each leases its cores, runs its queue, and leaves."""

    def __init__(self, study: Study, store: Store, provider: Provider, inventory: Inventory) -> None:
        self._study = study
        self._store = store
        self._provider = provider
        self._guests = inventory.by_name()
        self._agent = archive.build()
        self._vendor = fingerprint.cpu()["vendor"]
        self._lock = threading.Lock()  # of the summary

    def has_guest(self, name: str) -> bool:
        return name in self._guests

    def run(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        self._stop_idle({guest_for(spec) for spec in specs})
        snapshots.prepare(self._study, self._store)  # point: snapshots prepared
        ready, waiting = recordings.in_order(specs, self._store)
        self._run_in_parallel(ready, observer, summary, checked)
        failed = set(summary.failed)
        for spec, recorder in waiting:
            if recorder in failed:
                self._give_up(spec, recorder, observer, summary)
        recorded = [spec for spec, recorder in waiting if recorder not in failed]
        self._run_in_parallel(recorded, observer, summary, checked)

    def _run_in_parallel(
        self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked
    ) -> None:
        """Raises the first infrastructure error, or KeyboardInterrupt, after every guest has stopped."""
        queues: dict[str, list[RunSpec]] = {}
        for spec in specs:
            queues.setdefault(guest_for(spec), []).append(spec)
        parallel_jobs = ParallelJobs(self._provider.stop)
        attempts = Attempts(
            self._study.engine,
            self._store,
            self._provider.name,
            self._agent,
            parallel_jobs.stop,
            observer,
            checked,
        )
        leases: dict[str, CoreLeases] = {}  # by the machine whose cores they are
        jobs = []
        for guest in self._guests.values():
            if guest.spec.name not in queues:
                continue
            machine = guest.observed.machine
            if machine not in leases:
                leases[machine] = self._leases(guest, observer)
            queue = functools.partial(
                self._drain_queue, guest, queues[guest.spec.name], leases[machine], attempts,
                observer, summary, parallel_jobs.stop,
            )  # fmt: skip
            jobs.append(Job(guest=guest.spec, leases=leases[machine], work=queue))
        parallel_jobs.run(jobs)

    def _leases(self, guest: Guest, observer: Observer) -> CoreLeases:
        seen = guest.observed
        here = tuple(core for core in host_cores() if core in seen.machine_cores) or host_cores()
        return CoreLeases.of(
            self._study.engine,
            seen.machine_cores if seen.machine else here,
            machine_of(self._provider, guest.spec),
            waiting=observer.waiting,
        )

    def _drain_queue(
        self,
        guest: Guest,
        queue: Sequence[RunSpec],
        leases: CoreLeases,
        attempts: Attempts,
        observer: Observer,
        summary: Summary,
        stop: threading.Event,
        lease: Lease,
    ) -> None:
        session = Session(
            self._study, self._store, self._provider, guest, lease.cores, self._agent, self._vendor
        )
        slot = Slot(guest=guest, session=session, lease=lease, leases=leases)
        try:
            for spec in queue:
                result = attempts.run_with_retries(slot, spec)
                if result is not None:
                    with self._lock:
                        summary.done_now += 1
                    observer.finished(spec, result)  # point: run counted
                elif not stop.is_set():
                    with self._lock:
                        summary.failed.append(spec.run_id)
                if stop.is_set():
                    return
        finally:
            session.close()

    def _stop_idle(self, busy: Collection[str]) -> None:
        """Guests of this machine without runs: a killed orchestrator may have left them running."""
        if not isinstance(self._provider, Elsewhere):
            for name, guest in self._guests.items():
                if name not in busy:
                    with contextlib.suppress(VbstudyError):  # what cannot be stopped is not needed, either
                        self._provider.stop(guest.spec)

    def _give_up(self, spec: RunSpec, recorder: str, observer: Observer, summary: Summary) -> None:
        why = f"not run: its random numbers were to be recorded by {recorder}, which failed"
        error = {"kind": "NoRecording", "message": why, "traceback": ""}
        kept = self._store.keep_failure(spec, 1, self._store.new_incoming(), error)
        summary.failed.append(spec.run_id)
        observer.failed(spec, why, kept, again=False)
