"""A sweep on many hosts as seen from its own end: which hosts take part, what runs where, what came of it."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from distributed import Client

from guest.records.codec import RecordError
from guest.records.printable import counted
from guest.records.run import LOG, RECORD, RunRecord, RunSpec, decode_record
from orchestrator.engine import Observer, Summary
from orchestrator.engine.packing import Packing, Room
from orchestrator.errors import (
    GuestError,
    PrerequisiteError,
    ProtocolError,
    StoreError,
    UsageError,
    VbstudyError,
)
from orchestrator.fleet import tasks
from orchestrator.fleet.dispatch import ASK_TIMEOUT_S, Dispatch, Landed, SchedulerLostError, ask
from orchestrator.fleet.orders import FailedAttempt, Receipt, decode_receipt
from orchestrator.forecast.model import stored_run
from orchestrator.store.index import Checked
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable, JobQueueTable
from orchestrator.study.schema import Study
from orchestrator.text import Say

PATIENCE_S = 15.0  # with hosts none of which can be used, and no other that may be soon
ASK_AGAIN_S, ASK_AGAIN_TIMEOUT_S = 300.0, 5.0  # for a host that did not answer
MAX_LOST = 3  # times that its host dies, or its bytes come damaged, before a run is taken for the reason
MEASURED = 20  # runs of a set that are read to know how long they take
TROUBLES = {kind.__name__: kind for kind in (GuestError, PrerequisiteError, StoreError, UsageError)}


@dataclass(slots=True)
class Fleet:
    """Used by one thread."""

    study: Study
    store: Store
    key: str
    observer: Observer
    summary: Summary
    checked: Checked
    notify: Say
    packing: Packing = field(default_factory=Packing)
    specs: dict[str, RunSpec] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)  # runs that are done, or have failed
    _delivered: dict[str, list[str]] = field(default_factory=dict)  # by host: runs that it need not keep
    _unfit: dict[str, VbstudyError] = field(default_factory=dict)  # by host: why it gets no runs
    _silent: dict[str, float] = field(default_factory=dict)  # by unfit host: when it is asked again
    _away: int = 0  # hosts that took part, and may come back
    _lost: Counter[str] = field(default_factory=Counter)
    _cpus: set[str] = field(default_factory=set)
    _idle_since: float = field(default_factory=time.monotonic)

    def expect(self, specs: Sequence[RunSpec]) -> None:
        """The runs to do, with the mean time of some stored runs like them."""
        expected_s: dict[str, float | None] = {}
        for set_id in {spec.set_id for spec in specs}:
            times = [stored_run(record, 0).run_s for record in self.store.records(set_id, MEASURED)]
            expected_s[set_id] = statistics.fmean(times) if times else None
        for spec in specs:
            self.specs[spec.run_id] = spec
            needs = Room(
                cpus=max(spec.threads.cpus, self.study.engine.reserve),
                memory_mib=self.study.guest_memory_mib,
                whole=not self.study.engine.side_by_side,
            )
            self.packing.add(spec.set_id, spec.run_id, needs, expected_s[spec.set_id], block=spec.repetition)

    def run(self, client: Client, dispatch: Dispatch) -> None:
        """Returns when all is done. Raises SchedulerLostError, and the first error that keeps the remaining
        runs from being executed."""

        def found(host: str, room: Room) -> None:
            self._found(client, dispatch, host, room)

        try:
            while self.packing.waiting() or dispatch.busy():
                for landed in dispatch.step(found, self._host_lost):
                    self._take(landed)
                self._forget_unlisted(dispatch.listed)
                self._require_hosts(dispatch.busy())
        except SchedulerLostError:
            self._away += len(self.packing.open_hosts())
            dispatch.give_up()
            self._forget_unlisted(frozenset())
            self._idle_since = time.monotonic()
            raise

    def take_delivered(self, host: str) -> tuple[str, ...]:
        """For telling the host."""
        return tuple(self._delivered.pop(host, ()))

    # ---- hosts -------------------------------------------------------------------------------

    def _found(self, client: Client, dispatch: Dispatch, host: str, room: Room) -> None:
        """A host takes part when it can; first of all it gets the runs that it has at hand."""
        again = host in self._unfit
        if again and time.monotonic() < self._silent.get(host, math.inf):
            return
        wanted = self.study.provider.kind
        timeout_s = ASK_AGAIN_TIMEOUT_S if again else ASK_TIMEOUT_S  # nothing is handed out meanwhile
        try:
            described = ask(client, tasks.describe, host=host, timeout_s=timeout_s)
            at_hand = [] if "trouble" in described else ask(client, tasks.at_hand, self.key, host=host)
        except Exception as error:  # noqa: BLE001  (whatever is raised there, or on the way)
            self._refuse(
                host, GuestError(f"host {host}: does not describe itself: {error!r}"), " until it answers"
            )
            self._silent[host] = time.monotonic() + ASK_AGAIN_S
            return
        self._unfit.pop(host, None)
        self._silent.pop(host, None)
        self._away = max(0, self._away - (not again))
        trouble = described.get("trouble", "")
        if not trouble and not room.cpus:
            trouble = "offers no resource `vcpu`"
        if not trouble and described["provider"] not in ("", wanted):
            trouble = (
                f"makes guests with {described['provider']}, but the study needs {wanted}: "
                f"start `vbstudy worker --provider {wanted}` there"
            )
        if trouble:
            self._refuse(host, PrerequisiteError(f"host {host}: {trouble}"))
            return
        cores = counted(room.cpus, "core")
        self.notify(f"host {described['host']} ({host}): {cores}, {described['cpu']}")
        widest = max((spec.threads.cpus for spec in self.specs.values()), default=0)
        if widest > room.cpus:
            self.notify(
                f"guests with more than {cores} are oversubscribed there; they go there if no host has more"
            )
        if self._cpus and described["cpu"] not in self._cpus:
            self.notify("its CPU differs from those of other hosts; its models may differ for that reason")
        self._cpus.add(described["cpu"])
        self.packing.add_host(host, room)  # point: host found
        for run in at_hand:
            if (self.store.runs / run / RECORD).is_file():
                self._delivered.setdefault(host, []).append(run)
            elif run in self.specs and self.packing.assign(host, run):
                dispatch.hand_out(run, host)

    def _host_lost(self, host: str, runs: list[str]) -> None:
        again = f"; {counted(len(runs), 'run')} to be handed out again" if runs else ""
        self.notify(f"host {host} is lost{again}")
        self._delivered.pop(host, None)
        self._away += host not in self._unfit
        for run in runs:
            self._lose(run, f"its host {host} was lost while it ran")

    def _refuse(self, host: str, error: VbstudyError, until: str = "") -> None:
        if host not in self._unfit:  # the runs that it has been given come back one by one
            self.notify(f"{error.message}; it gets no more runs{until}")
        self._unfit[host] = error

    def _forget_unlisted(self, listed: frozenset[str]) -> None:
        """A worker that comes back has another address."""
        for host in self._unfit.keys() - listed:
            del self._unfit[host]
            self._silent.pop(host, None)

    def _require_hosts(self, busy: bool) -> None:
        """Raises when the waiting runs wait for nothing."""
        if busy or not self.packing.waiting():
            self._idle_since = time.monotonic()
            return
        idle_s, settings = time.monotonic() - self._idle_since, self.study.engine
        patience_s = max(PATIENCE_S, settings.workers_wait_s if self._away or self._silent else 0)
        if self.packing.open_hosts() and idle_s > patience_s:
            raise GuestError(
                "what is left to run needs more memory than any host offers: see memory_mib of [provider], "
                "and of the workers"
            )
        if self._unfit and idle_s > patience_s:
            raise next(iter(self._unfit.values()))
        if idle_s > settings.workers_wait_s:
            waited = f"engine.workers_wait_s = {settings.workers_wait_s:g}"
            raise GuestError(f"no worker came within {waited}: {_todo(settings)}")

    # ---- runs --------------------------------------------------------------------------------

    def _take(self, landed: Landed) -> None:
        """Publishes what came of a run, or has it done again."""
        spec = self.specs[landed.run]
        receipt = None if landed.error else decode_receipt(landed.value)  # point: receipt read
        for failure in receipt.failures if receipt else ():
            self._keep(spec, failure)
        trouble = self._trouble(landed, receipt)
        if trouble is not None:
            self.packing.close_host(landed.host)
            self.packing.put_back(landed.run)
            self._refuse(landed.host, trouble)
            return
        assert receipt is not None  # noqa: S101  (there is one where there is no error)
        if not receipt.record:
            if receipt.failures and not receipt.stopped:
                self._fail(spec.run_id)
            else:
                self.packing.put_back(landed.run)
            return
        try:
            record = self._publish(spec, receipt)
        except (DamagedRunError, RecordError, ProtocolError) as error:
            self.packing.put_back(landed.run)
            self._lose(landed.run, f"what came from host {landed.host} was damaged: {error}")
            return
        self.packing.learn(spec.set_id, stored_run(record, 0).run_s)
        self._delivered.setdefault(landed.host, []).append(spec.run_id)  # point: delivery noted
        self.summary.done_now += 1
        self.over.add(spec.run_id)
        self.observer.finished(spec, record.result)

    def _trouble(self, landed: Landed, receipt: Receipt | None) -> VbstudyError | None:
        """What keeps the host from executing runs."""
        if receipt is None:
            return GuestError(f"host {landed.host}: {landed.error}")
        if receipt.trouble is None:
            return None
        kind, message, evidence = receipt.trouble
        return TROUBLES.get(kind, GuestError)(f"host {receipt.host}: {message}", evidence=evidence)

    def _publish(self, spec: RunSpec, receipt: Receipt) -> RunRecord:
        """Every byte is checked against the record's hashes, however it came."""
        record = decode_record(receipt.record)
        if record.spec.comparable != spec.comparable:
            raise ProtocolError(f"it is run {record.spec.run_id} of another plan")
        names = record.result.artifacts
        odd = spec.workload.unexpected_artifacts(names)
        if odd:
            raise ProtocolError(f"its manifest is wrong about {odd[0]!r:.80}")
        if receipt.incoming:
            folder = self.store.collected(receipt.incoming)  # point: receipt files found
        else:
            folder = self.store.new_incoming({name: receipt.files.get(name, b"") for name in names})
        if self.store.publish(folder, record):
            self.checked.add(spec, self.checked.state(spec))  # point: host run indexed
        return record

    def _keep(self, spec: RunSpec, failure: FailedAttempt) -> None:
        folder = self.store.new_incoming({LOG: failure.log} if failure.log else {})
        kept = self.store.keep_failure(spec, failure.attempt, folder, failure.error)
        reason = f"{failure.error.get('kind')}: {failure.error.get('message')}"
        self.observer.failed(spec, reason, kept, again=failure.again)

    def _lose(self, run: str, reason: str) -> None:
        """A waiting run that was lost on its way; too often, and it has failed."""
        self._lost[run] += 1
        again = self._lost[run] < MAX_LOST
        spec, folder = self.specs[run], self.store.new_incoming()
        error = {"kind": "Lost", "message": reason, "traceback": ""}
        kept = self.store.keep_failure(spec, self._lost[run], folder, error)
        self.observer.failed(spec, f"Lost: {reason}", kept, again=again)
        if not again:
            self.packing.withdraw(run)
            self._fail(run)

    def _fail(self, run: str) -> None:
        self.summary.failed.append(run)
        self.over.add(run)


def _todo(settings: EngineTable) -> str:
    """Where no worker comes."""
    match settings.cluster:
        case None if settings.scheduler:
            return "start `vbstudy worker SCHEDULER` on the hosts"
        case JobQueueTable(queue=queue):
            return (
                f"`squeue` shows the jobs in {queue or 'the default queue'} that wait (raise that key); "
                "of those that have ended, slurm-NUMBER.out has the reason"
            )
    return "those of the cluster have ended; sweep again"
