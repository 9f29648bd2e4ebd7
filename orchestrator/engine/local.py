"""Runs on the guests that `vbstudy provision` made: one thread a guest."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Collection, Sequence

from guest import fingerprint
from guest.records import RunSpec
from orchestrator import agent_archive, projects, recordings
from orchestrator.checked import Checked
from orchestrator.engine import Observer, Summary
from orchestrator.engine.attempts import Attempts
from orchestrator.errors import VbstudyError
from orchestrator.guests import Guest, Inventory, guest_for
from orchestrator.providers import Elsewhere, Provider, machine_of
from orchestrator.scheduler import CoreLeases, Lease, host_cores
from orchestrator.session import Session
from orchestrator.side_by_side import Job, SideBySide
from orchestrator.store import Store
from orchestrator.study import Study


class LocalEngine:
    def __init__(self, study: Study, store: Store, provider: Provider, inventory: Inventory) -> None:
        self._study = study
        self._store = store
        self._provider = provider
        self._guests = inventory.by_name()

    def has_guest(self, name: str) -> bool:
        return name in self._guests

    def work(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        self._stop_idle({guest_for(spec) for spec in specs})
        projects.prepare(self._study, self._store)
        ready, waiting = recordings.in_order(specs, self._store)
        self._work(ready, observer, summary, checked)
        failed = set(summary.failed)
        for spec, recorder in waiting:
            if recorder in failed:
                self._give_up(spec, recorder, observer, summary)
        self._work([spec for spec, recorder in waiting if recorder not in failed], observer, summary, checked)

    def _work(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        crew = Crew(self._study, self._store, self._provider, observer, summary, checked)
        queues: dict[str, list[RunSpec]] = {}
        for spec in specs:
            queues.setdefault(guest_for(spec), []).append(spec)
        crew.work([(guest, queues[name]) for name, guest in self._guests.items() if name in queues])

    def _stop_idle(self, busy: Collection[str]) -> None:
        """Guests of this machine without runs: a killed orchestrator may have left them at work."""
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


class Crew:
    """One thread a guest; each leases its cores, works through its queue, and leaves."""

    def __init__(
        self,
        study: Study,
        store: Store,
        provider: Provider,
        observer: Observer,
        summary: Summary,
        checked: Checked,
    ) -> None:
        self._study = study
        self._store = store
        self._provider = provider
        self._observer = observer
        self._summary = summary
        self._agent = agent_archive.build()
        self._leases: dict[str, CoreLeases] = {}  # by the machine whose cores they are
        self._side_by_side = SideBySide(provider.stop)
        self._stop = self._side_by_side.stop
        self._attempts = Attempts(study.engine, store, provider.name, self._agent, self._stop, checked)
        self._lock = threading.Lock()
        self._vendor = fingerprint.cpu()["vendor"]

    def work(self, queues: list[tuple[Guest, list[RunSpec]]]) -> None:
        """Returns when all queues are empty. Raises the first infrastructure error, or
        KeyboardInterrupt, after every guest has stopped."""
        for guest, _ in queues:
            seen = guest.observed
            here = tuple(core for core in host_cores() if core in seen.machine_cores) or host_cores()
            cores = seen.machine_cores if seen.machine else here
            if seen.machine not in self._leases:
                self._leases[seen.machine] = CoreLeases.of(
                    self._study.engine,
                    cores,
                    machine_of(self._provider, guest.spec),
                    waiting=self._observer.waiting,
                )
        self._side_by_side.work(
            [
                Job(
                    guest=guest.spec,
                    leases=self._leases[guest.observed.machine],
                    work=functools.partial(self._work_through, guest, queue),
                )
                for guest, queue in queues
            ]
        )

    def _work_through(self, guest: Guest, queue: list[RunSpec], lease: Lease) -> None:
        session = Session(
            self._study, self._store, self._provider, guest, lease.cores, self._agent, self._vendor
        )
        leases = self._leases[guest.observed.machine]
        try:
            for spec in queue:
                result = self._attempts.run(guest, session, spec, lease, leases, self._observer)
                if result is not None:
                    with self._lock:
                        self._summary.done_now += 1
                    self._observer.finished(spec, result)
                elif not self._stop.is_set():
                    with self._lock:
                        self._summary.failed.append(spec.run_id)
                if self._stop.is_set():
                    return
        finally:
            session.close()
