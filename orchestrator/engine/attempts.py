"""One run on one guest with its retries: from handing it out to publishing it."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analysis.load.failures import error_kind
from guest.records.run import SCHEMA_VERSION, Message, RunRecord, RunResult, RunSpec, machine_id
from orchestrator.agent.archive import AgentArchive
from orchestrator.agent.executor import Executor, RunFailedError, RunLostError
from orchestrator.cores import load
from orchestrator.cores.leases import CoreLeases, Lease
from orchestrator.cores.topology import Cores
from orchestrator.engine import Reports
from orchestrator.errors import GuestError, ProtocolError, StoreError, VbstudyError
from orchestrator.guests.isolation import isolation, require_uncontended
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest
from orchestrator.store import recordings
from orchestrator.store.index import Checked
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store, now
from orchestrator.study.plan import run_order
from orchestrator.study.schema import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A guest at work on the cores that it leased."""

    guest: Guest
    session: Session
    lease: Lease
    leases: CoreLeases  # of the machine that it is on


@dataclass(frozen=True, slots=True)
class Attempts:
    """Used by one thread a guest. Published runs are added to `checked`; a store that keeps runs for another
    one has none."""

    study: Study
    store: Store
    agent: AgentArchive
    stop: threading.Event
    reports: Reports
    checked: Checked | None = None

    def run_with_retries(self, slot: Slot, spec: RunSpec) -> RunResult | None:
        """Publishes the run. None when it failed as often as it may, or when `stop` was set. A guest that
        was lost is started again for the next attempt; one that cannot be started is not this run's
        failure, and raises."""
        attempts = self.study.engine.retries + 1
        failed: Counter[str] = Counter()  # by kind of error, in this sweep: a cause that was mended is gone
        for attempt in range(1, attempts + 1):
            if self.stop.is_set():
                return None
            executor = slot.session.executor()
            folder = self.store.new_incoming()  # point: attempt begun
            self.reports.started(slot.guest.spec.name, spec, slot.lease.cores)  # point: attempt reported
            try:
                record = self._run_once(slot, executor, spec, failed, folder)  # point: record made
                if self.study.engine.redo_contended and attempt < attempts:
                    require_uncontended(record.isolation)
                if self.store.publish(folder, record) and self.checked is not None:  # point: run published
                    self.checked.add(spec, self.checked.state(spec))
            except (RunFailedError, ProtocolError, GuestError, DamagedRunError) as error:
                if self.stop.is_set():  # ended by us, not by itself
                    shutil.rmtree(folder, ignore_errors=True)
                    return None
                kept = self.store.keep_failure(spec, attempt, folder, _evidence(error))
                failed[error_kind(kept)] += 1
                # point: failure reported
                self.reports.failed(spec, str(error), kept, again=attempt < attempts)
                if _lost(error):
                    slot.session.close()  # point: lost guest closed
            except StoreError:
                shutil.rmtree(folder, ignore_errors=True)  # frees space on a full disk
                raise
            else:
                return record.result
        return None

    def _run_once(
        self, slot: Slot, executor: Executor, spec: RunSpec, failed: Counter[str], folder: Path
    ) -> RunRecord:
        """One attempt, after those that `failed`; its files in `folder`."""
        guest, session, lease = slot.guest, slot.session, slot.lease
        neighbours: dict[str, Cores] = {}

        def look_around() -> None:
            for name, cores in slot.leases.holders().items():
                neighbours[name] = neighbours.get(name, frozenset()) | cores

        def hear(message: Message) -> None:
            if message.kind == "heartbeat":  # who comes and goes between the first look and the last
                look_around()
            self.reports.message(guest.spec.name, message)

        look_around()
        started_at, before = now(), session.host_snapshot()
        numbers = recordings.find(self.store, spec)
        result = executor.execute(spec, folder, hear, numbers)
        host = load.between(before, session.host_snapshot())
        look_around()
        neighbours.pop(lease.holder, None)
        observed = guest.observed
        # point: isolation measured
        seen = isolation(
            result,
            host,
            lease.cores,
            neighbours,
            slot.leases.topology,
            oversubscribed=executor.context.is_oversubscribed(spec),
            cpuset=str(observed.details.get("cpuset", "")),
            contended_above=self.study.engine.contended_above,
        )
        return RunRecord(
            schema_version=SCHEMA_VERSION,
            spec=spec,
            status="done",
            result=result,
            isolation=seen,
            guest={
                "name": guest.spec.name,
                "provider": self.study.provider.kind,
                "cpus": guest.spec.cpus,
                "observed": {"provider": observed.provider_cpus, "guest": observed.guest_cpus},
                "host": machine_id(spec.study_id, observed.machine or os.uname().nodename),
                **{k: observed.details[k] for k in ("accelerator", "cpu_model") if k in observed.details},
            },
            agent_sha256=self.agent.sha256,
            attempt=failed.total() + 1,
            started_at=started_at,
            finished_at=now(),
            order=run_order(self.study, spec),
            failures=dict(failed),
        )


def _lost(error: Exception) -> bool:
    """Whether the guest itself is in doubt, not only the run: processes of it may go on, and the bytes of a
    damaged run came from it."""
    return isinstance(error, RunLostError | GuestError | ProtocolError | DamagedRunError)


def _evidence(error: Exception) -> dict[str, str]:
    if isinstance(error, RunFailedError):
        return error.error
    evidence = error.evidence if isinstance(error, VbstudyError) else ""
    return {"kind": type(error).__name__, "message": str(error), "traceback": evidence}
