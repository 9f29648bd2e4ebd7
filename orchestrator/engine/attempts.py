"""One run on one guest with its retries: from handing it out to publishing it."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Protocol

from guest.records import SCHEMA_VERSION, Isolation, Message, RunRecord, RunResult, RunSpec
from orchestrator import host_load, recordings
from orchestrator.agent_archive import AgentArchive
from orchestrator.checked import Checked
from orchestrator.errors import GuestError, ProtocolError, StoreError, VbstudyError
from orchestrator.executor import Executor, RunFailedError
from orchestrator.guests import Guest
from orchestrator.isolation import isolation, require_undisturbed
from orchestrator.scheduler import CoreLeases, Lease
from orchestrator.session import Session
from orchestrator.store import DamagedRunError, Store, now
from orchestrator.study_engine import EngineTable


class Reports(Protocol):
    """Who is told of the attempts; an Observer is one."""

    def started(self, guest: Guest, spec: RunSpec, cores: tuple[int, ...]) -> None: ...
    def message(self, guest: Guest, message: Message) -> None: ...
    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None: ...


class Attempts:
    """Used by one thread a guest."""

    def __init__(
        self,
        settings: EngineTable,
        store: Store,
        provider: str,
        agent: AgentArchive,
        stop: threading.Event,
        checked: Checked | None = None,
    ) -> None:
        """`checked` learns of published runs; a store that reads them again as it hands them on has none."""
        self._settings = settings
        self._store = store
        self._provider = provider
        self._agent = agent
        self._stop = stop
        self._checked = checked

    def run(
        self,
        guest: Guest,
        session: Session,
        spec: RunSpec,
        lease: Lease,
        leases: CoreLeases,
        reports: Reports,
    ) -> RunResult | None:
        """Publishes the run. None when it failed as often as it may, or when `stop` was set. A guest that
        was lost is started anew for the next attempt; one that cannot be started is not this run's
        failure, and raises."""
        attempts = self._settings.retries + 1
        for attempt in range(1, attempts + 1):
            if self._stop.is_set():
                return None
            executor = session.executor()
            folder = self._store.new_incoming()
            reports.started(guest, spec, lease.cores)
            try:
                result, seen, started_at = self._execute(
                    guest, session, executor, spec, lease, leases, folder, reports
                )
                if self._settings.redo_disturbed and attempt < attempts:
                    require_undisturbed(seen)
                record = self._record(guest, spec, result, seen, attempt, started_at)
                if self._store.publish(folder, record) and self._checked is not None:
                    self._checked.add(spec, self._checked.state(spec))
            except (RunFailedError, ProtocolError, GuestError, DamagedRunError) as error:
                if self._stop.is_set():  # ended by us, not by itself
                    shutil.rmtree(folder, ignore_errors=True)
                    return None
                kept = self._store.keep_failure(spec, attempt, folder, _evidence(error))
                reports.failed(spec, str(error), kept, again=attempt < attempts)
                if _lost(error):
                    session.close()
            except StoreError:
                shutil.rmtree(folder, ignore_errors=True)  # gives a full disk its room back
                raise
            else:
                return result
        return None

    def _execute(
        self,
        guest: Guest,
        session: Session,
        executor: Executor,
        spec: RunSpec,
        lease: Lease,
        leases: CoreLeases,
        folder: Path,
        reports: Reports,
    ) -> tuple[RunResult, Isolation, str]:
        """One attempt, its files in `folder`, with how alone it was and when it started."""
        neighbours = leases.holders()
        started_at, before = now(), session.look()
        numbers = recordings.find(self._store, spec)
        result = executor.execute(spec, folder, lambda message: reports.message(guest, message), numbers)
        host = host_load.between(before, session.look())
        neighbours |= leases.holders()
        neighbours.pop(lease.holder, None)
        seen = isolation(
            result,
            host,
            lease.cores,
            neighbours,
            leases.topology,
            oversubscribed=executor.is_oversubscribed(spec),
            cpuset=str(guest.observed.details.get("cpuset", "")),
            disturbed_above=self._settings.disturbed_above,
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
                "provider": self._provider,
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
