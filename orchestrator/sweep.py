"""The pipeline: plan - store -> schedule -> run -> collect."""

from __future__ import annotations

import functools
import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from guest import fingerprint
from guest.records import SCHEMA_VERSION, Isolation, Message, RunRecord, RunResult, RunSpec
from orchestrator import agent_archive, projects
from orchestrator.agent_archive import AgentArchive
from orchestrator.checked import Checked, opened
from orchestrator.errors import GuestError, ProtocolError, StoreError, UsageError, VbstudyError
from orchestrator.executor import Executor, RunFailedError
from orchestrator.guests import Guest, Inventory, guest_for
from orchestrator.isolation import isolation, require_undisturbed
from orchestrator.plan import plan
from orchestrator.providers import Provider
from orchestrator.resume import resume
from orchestrator.scheduler import CoreLeases, Lease, host_cores
from orchestrator.session import Session
from orchestrator.side_by_side import Job, SideBySide
from orchestrator.store import DamagedRunError, Store, now
from orchestrator.study import Study


class Observer(Protocol):
    """Who is told what happens; called from several threads."""

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None: ...
    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None: ...
    def waiting(self, why: str) -> None: ...
    def started(self, guest: Guest, spec: RunSpec, cores: tuple[int, ...]) -> None: ...
    def message(self, guest: Guest, message: Message) -> None: ...
    def finished(self, spec: RunSpec, result: RunResult) -> None: ...
    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None: ...


@dataclass(slots=True)
class Summary:
    """What a sweep did."""

    planned: int = 0
    done_before: int = 0
    done_now: int = 0
    failed: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    without_guest: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0


def sweep(
    study: Study,
    store: Store,
    provider: Provider,
    inventory: Inventory,
    observer: Observer,
    repetitions: int | None = None,
) -> Summary:
    """Runs what is planned and not in the store. The caller holds the study's lock.
    KeyboardInterrupt stops all guests cleanly and passes on."""
    return run_specs(plan(study, repetitions), study, store, provider, inventory, observer)


def run_specs(
    specs: list[RunSpec],
    study: Study,
    store: Store,
    provider: Provider,
    inventory: Inventory,
    observer: Observer,
) -> Summary:
    """As `sweep`, for these runs."""
    began = time.perf_counter()
    store.clear_incoming()
    projects.prepare(study, store)
    guests = inventory.by_name()
    by_guest: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_guest.setdefault(guest_for(spec), []).append(spec)
    summary = Summary(planned=len(specs), without_guest=[name for name in by_guest if name not in guests])
    if summary.without_guest == list(by_guest):
        raise UsageError(f"there is no guest {_or(summary.without_guest)}; run `vbstudy provision`")
    with opened(store.checked_file, store.runs) as checked:
        found = resume(store, specs, checked)
        for spec, reason in found.damaged:
            summary.quarantined.append(spec.run_id)
            observer.quarantined(spec, reason, store.set_aside(spec, reason))
        summary.done_before = len(found.done)
        observer.planned(specs, found.done)
        finished = {spec.run_id for spec in found.done}
        queues = {name: [s for s in by_guest.get(name, ()) if s.run_id not in finished] for name in guests}
        crew = Crew(study, store, provider, observer, summary, checked)
        crew.work([(guests[name], queue) for name, queue in queues.items() if queue])
    summary.elapsed_s = time.perf_counter() - began
    return summary


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
        self._checked = checked
        self._agent: AgentArchive = agent_archive.build()
        self._leases: dict[str, CoreLeases] = {}  # by the machine whose cores they are
        self._side_by_side = SideBySide(provider.stop)
        self._stop = self._side_by_side.stop
        self._lock = threading.Lock()
        self._vendor = fingerprint.cpu()["vendor"]

    def work(self, queues: list[tuple[Guest, list[RunSpec]]]) -> None:
        """Returns when all queues are empty. Raises the first infrastructure error, or
        KeyboardInterrupt, after every guest has stopped."""
        for guest, _ in queues:
            seen = guest.observed
            here = tuple(core for core in host_cores() if core in seen.machine_cores) or host_cores()
            cores = seen.machine_cores if seen.machine else here
            engine = self._study.engine
            if seen.machine not in self._leases:
                self._leases[seen.machine] = CoreLeases(
                    cores,
                    here=not seen.machine,
                    side_by_side=engine.side_by_side,
                    hyper_threads=engine.hyper_threads,
                    reserve=engine.reserve,
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
        try:
            for spec in queue:
                self._run(guest, session, spec, lease)
                if self._stop.is_set():
                    return
        finally:
            session.close()

    def _run(self, guest: Guest, session: Session, spec: RunSpec, lease: Lease) -> None:
        """One run with its retries. A guest that was lost is started anew for the next attempt; one
        that cannot be started is not this run's failure, and ends the work on this guest."""
        attempts = self._study.engine.retries + 1
        for attempt in range(1, attempts + 1):
            executor = session.executor()
            folder = self._store.new_incoming()
            self._observer.started(guest, spec, lease.cores)
            try:
                result, seen, started_at = self._execute(guest, executor, spec, lease, folder)
                if self._study.engine.redo_disturbed and attempt < attempts:
                    require_undisturbed(seen)
                record = self._record(guest, spec, result, seen, attempt, started_at)
                if self._store.publish(folder, record):
                    self._checked.add(spec, self._checked.state(spec))
            except (RunFailedError, ProtocolError, GuestError, DamagedRunError) as error:
                if self._stop.is_set():  # ended by us, not by itself
                    shutil.rmtree(folder, ignore_errors=True)
                    return
                kept = self._store.keep_failure(spec, attempt, folder, _evidence(error))
                again = attempt < attempts
                self._observer.failed(spec, str(error), kept, again=again)
                if not again:
                    with self._lock:
                        self._summary.failed.append(spec.run_id)
                if _lost(error):
                    session.close()
            except StoreError:
                shutil.rmtree(folder, ignore_errors=True)  # gives a full disk its room back
                raise
            else:
                with self._lock:
                    self._summary.done_now += 1
                self._observer.finished(spec, result)
                return

    def _execute(
        self,
        guest: Guest,
        executor: Executor,
        spec: RunSpec,
        lease: Lease,
        folder: Path,
    ) -> tuple[RunResult, Isolation, str]:
        """One attempt, its files in `folder`, with how alone it was and when it started."""
        leases = self._leases[guest.observed.machine]
        neighbours = leases.holders()
        started_at = now()
        result = executor.execute(spec, folder, lambda message: self._observer.message(guest, message))
        neighbours |= leases.holders()
        neighbours.pop(guest.spec.name, None)
        seen = isolation(
            result,
            lease.cores,
            neighbours,
            leases.topology,
            oversubscribed=executor.is_oversubscribed(spec),
            cpuset=str(guest.observed.details.get("cpuset", "")),
            disturbed_above=self._study.engine.disturbed_above,
        )
        return result, seen, started_at

    def _record(
        self,
        guest: Guest,
        spec: RunSpec,
        result: RunResult,
        seen: Isolation,
        attempt: int,
        started_at: str,
    ) -> RunRecord:
        observed = guest.observed
        return RunRecord(
            schema_version=SCHEMA_VERSION,
            spec=spec,
            status="done",
            result=result,
            isolation=seen,
            guest={
                "name": guest.spec.name,
                "provider": self._provider.name,
                "cpus": guest.spec.cpus,
                "observed": {"provider": observed.provider_cpus, "guest": observed.guest_cpus},
                "host": observed.machine or os.uname().nodename,
                **{k: observed.details[k] for k in ("accelerator", "cpu_model") if k in observed.details},
            },
            agent_sha256=self._agent.sha256,
            attempt=attempt,
            started_at=started_at,
            finished_at=now(),
        )


def _lost(error: Exception) -> bool:
    """Whether the guest itself is in doubt, not only the run."""
    if isinstance(error, RunFailedError):
        return error.error["kind"] == "Lost"
    return isinstance(error, GuestError | DamagedRunError)  # the bytes of a damaged run came from it


def _evidence(error: Exception) -> dict[str, str]:
    if isinstance(error, RunFailedError):
        return error.error
    evidence = error.evidence if isinstance(error, VbstudyError) else ""
    return {"kind": type(error).__name__, "message": str(error), "traceback": evidence}


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
