"""A hypervisor host at work for sweeps: takes orders for runs, executes each once, and hands over what came
of it. Knows nothing of how orders arrive.

A finished run is kept here, in a store of the host's own, until the sweep confirms that it has it. So a run
is not computed again when the sweep, or what lies between, is restarted: an order for a run that is under way
waits for it, and one for a run that is done is answered at once."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.load.failures import EVIDENCE
from guest.datasets import datasets
from guest.machine import fingerprint
from guest.records.codec import seal
from guest.records.run import LOG, Message, RunSpec
from orchestrator.cores.leases import host_cores
from orchestrator.engine.attempts import Attempts
from orchestrator.errors import GuestError, PrerequisiteError, StoreError, UsageError, VbstudyError, for_each
from orchestrator.files import write_durably
from orchestrator.fleet.orders import FailedAttempt, Order, Receipt
from orchestrator.fleet.slots import Slots
from orchestrator.guests.provision import ORDERED, fetch_datasets
from orchestrator.inventory import guest_spec
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.schema import Study

IDLE_S = 60.0
STOP_POLL_S = 0.2
SEND_EVERY_S = 1.0
MOST_NUMBERS, LONGEST_NAME = 32, 80  # of a message
Tell = Callable[[str, dict[str, Any]], None]
"""(key of the study, what happens)"""


@dataclass(frozen=True, slots=True)
class _OpenStudy:
    """A study whose runs are ordered here."""

    text: str  # as it was ordered, with the hashes of its projects
    study: Study
    store: Store  # finished runs, until they are delivered


@dataclass(eq=False, slots=True)
class _UnderWay:
    """An order that is executed here."""

    key: str
    opened: bool = False  # its study is made ready
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self, *_: object) -> None:
        """Raises GuestError where it is to end."""
        if self.stop.is_set():
            raise GuestError("was stopped")


@dataclass(frozen=True, slots=True)
class _Outcome:
    failures: tuple[FailedAttempt, ...] = ()
    trouble: tuple[str, str, str] | None = None  # as that of the receipt
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Flight:
    spec: RunSpec
    landed: Future[_Outcome]


class Host:
    """`provider` is the kind of guests that are made here; "" leaves that to the study. Raises UsageError
    when another worker has the folder."""

    def __init__(self, folder: Path, provider: str = "") -> None:
        self.cores = host_cores()
        self.provider = provider
        self.tell: Tell = lambda key, event: None  # noqa: ARG005
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        try:
            self._held.enter_context(Store(folder).lock("vbstudy worker"))
        except UsageError as error:
            raise UsageError(
                f"{error.message} (one worker is enough for a machine; another needs its own --folder)"
            ) from None
        self._slots = Slots(folder, self.cores, self._waiting)
        self._remove_orphaned_guests()
        self._studies: dict[str, _OpenStudy] = {}
        self._under_way: list[_UnderWay] = []
        self._flights: dict[tuple[str, str], _Flight] = {}
        self._lock = threading.Lock()
        self._opening = threading.Lock()  # held while a study is made ready, which may take long
        self._closed = threading.Event()
        threading.Thread(target=self._put_idle_guests_to_rest, daemon=True).start()

    def _remove_orphaned_guests(self) -> None:
        """Guests that a killed worker left, of studies that may never be ordered again, and the folders of
        studies without a finished run. What cannot be removed now is when the study is ordered."""
        for path in list(self._folder.glob(f"*/{ORDERED}")):
            with contextlib.suppress(VbstudyError, ValueError, OSError):
                study = Study.model_validate_json(path.read_text(encoding="utf-8"))
                self._slots.destroy_former(path.parent.name, study)

    # ---- what the sweep asks -----------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        cpu = fingerprint.cpu()
        return {
            "host": os.uname().nodename,
            "provider": self.provider,
            "cpu": f"{cpu['model']} ({cpu['vendor']})",
        }

    def at_hand(self, key: str) -> list[str]:
        """Runs of a study that are under way here, or finished and not delivered yet."""
        with self._lock:
            flying = [run for owner, run in self._flights if owner == key]
        kept = [record.spec.run_id for record in Store(self._folder / key).records()]
        return list(dict.fromkeys([*flying, *kept]))

    def perform(self, order: Order) -> Receipt:
        """Executes one run with its retries, unless it is under way or done already. Returns when it is
        over; raises nothing that a sweep should know of."""
        host, under_way = os.uname().nodename, _UnderWay(order.key)
        with self._lock:
            if self._closed.is_set():
                return Receipt(host=host, trouble=("GuestError", "its worker ends", ""))
            self._under_way.append(under_way)
        try:
            self.delivered(order.key, order.delivered)
            opened = self._open(order, under_way)  # point: order prepared
            return self._receipt(order, opened, self._once(order, opened, under_way.stop))
        except Exception as error:  # noqa: BLE001  (of whatever kind, it is this host's alone)
            if under_way.stop.is_set():  # ended by us
                return Receipt(host=host, stopped=True)
            return Receipt(host=host, trouble=_trouble(error))
        finally:
            with self._lock:
                self._under_way.remove(under_way)

    def delivered(self, key: str, runs: Iterable[str]) -> None:
        for run in runs:
            Store(self._folder / key).drop(run)

    def stop(self, key: str) -> None:
        """Ends all orders of a study, and returns when they have ended."""
        self._end_orders(lambda each: each.key == key)
        self._slots.rest(key)

    def _end_orders(self, which: Callable[[_UnderWay], bool]) -> None:
        while True:
            with self._lock:
                ending = [each for each in self._under_way if which(each)]
            if not ending:
                return
            for each in ending:
                each.stop.set()
            for_each(self._slots.stop, {each.key for each in ending})
            time.sleep(STOP_POLL_S)

    def rest(self, key: str) -> None:
        """The sweep has gone: guests are stopped, and made again no sooner than they are needed."""
        self._slots.rest(key)

    def end(self) -> None:
        """Ends all runs, removes all guests. Undelivered runs stay for the next worker."""
        with self._lock:
            self._closed.set()
        try:
            try:
                self._end_orders(lambda _: True)
            finally:
                self._slots.destroy("")
            self._remove_orphaned_guests()
        finally:
            self._held.close()

    # ---- one run -----------------------------------------------------------------------------

    def _open(self, order: Order, under_way: _UnderWay) -> _OpenStudy:
        """Raises GuestError where the order is stopped meanwhile."""
        if order.agent_sha256 != self._slots.agent.sha256:
            raise PrerequisiteError("has another version of vbstudy than the sweep; install the same")
        with self._opening:
            under_way.check()
            opened = self._studies.get(order.key)
            sent = {name: hashlib.sha256(data).hexdigest() for name, data in order.projects.items()}
            text = f"{order.study} {json.dumps(sent)}"
            if opened is None or opened.text != text:
                opened = self._studies[order.key] = self._made_ready(order, text, under_way)
            under_way.opened = True
            return opened

    def _made_ready(self, order: Order, text: str, under_way: _UnderWay) -> _OpenStudy:
        # What a sweep that was killed had asked for, before the study was changed.
        self._end_orders(lambda each: each.key == order.key and each.opened)
        self._studies.pop(order.key, None)
        self._slots.destroy(order.key)
        study = Study.model_validate_json(order.study)
        kind = study.provider.kind
        if self.provider not in ("", kind):
            raise PrerequisiteError(
                f"makes guests with {self.provider}, but the study needs {kind}: "
                f"start `vbstudy worker --provider {kind}` there"
            )
        store = Store(self._folder / order.key)
        self._slots.destroy_former(order.key, study)
        store.directory.mkdir(parents=True, exist_ok=True)
        write_durably(store.directory / ORDERED, order.study)
        store.clear_incoming()
        # The study's own folder belongs to the machine of the sweep.
        fetch_datasets(study, store, under_way.check, datasets.default_folder())
        snapshots.accept(order.projects, study, store)
        under_way.check()
        return _OpenStudy(text=text, study=study, store=store)

    def _once(self, order: Order, opened: _OpenStudy, stop: threading.Event) -> _Outcome:
        """Joins the run when it is under way."""
        key = order.key, order.spec.run_id
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    flight = self._flights[key] = _Flight(order.spec, Future())
                    break
            outcome = flight.landed.result()
            if flight.spec == order.spec:
                return outcome
        try:
            outcome = _Outcome() if self._is_kept(order, opened) else self._run(order, opened, stop)
            flight.landed.set_result(outcome)
        except BaseException as error:
            flight.landed.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._flights[key]
        return outcome

    def _is_kept(self, order: Order, opened: _OpenStudy) -> bool:
        if not opened.store.has(order.spec):
            return False
        with contextlib.suppress(DamagedRunError, VbstudyError):  # what cannot be trusted is computed again
            if opened.store.check(order.spec).agent_sha256 == order.agent_sha256:
                return True
        opened.store.drop(order.spec.run_id)
        return False

    def _run(self, order: Order, opened: _OpenStudy, stop: threading.Event) -> _Outcome:
        spec = order.spec
        reports = _Reports(order.key, self.tell_now, opened.store)
        wanted = guest_spec(spec.threads.cpus, spec.cpu_model)
        attempts = Attempts(opened.study, opened.store, self._slots.agent, stop, reports)
        trouble = None
        try:
            with self._slots.warm(order.key, opened.study, opened.store, wanted, stop) as slot:
                if slot is not None:
                    reports.slot = {"guest": slot.lease.holder, "cores": list(slot.lease.cores)}
                    attempts.run_with_retries(slot, spec)
        except Exception as error:  # noqa: BLE001  (the attempts that failed before are handed over with it)
            if not stop.is_set():  # else ended by us
                trouble = _trouble(error)
        return _Outcome(failures=tuple(reports.failures), trouble=trouble, stopped=stop.is_set())

    def _waiting(self, key: str, why: str) -> None:
        self.tell_now(key, {"host": os.uname().nodename, "waiting": why})

    def tell_now(self, key: str, event: dict[str, Any]) -> None:
        self.tell(key, event)  # to whoever listens by now

    def _receipt(self, order: Order, opened: _OpenStudy, outcome: _Outcome) -> Receipt:
        host = os.uname().nodename
        if outcome.trouble is not None or not opened.store.has(order.spec):
            failures, trouble = outcome.failures, outcome.trouble
            return Receipt(host=host, failures=failures, trouble=trouble, stopped=outcome.stopped)
        folder = opened.store.folder(order.spec)
        kept = opened.store.check(order.spec)
        record, files = seal(kept), {}
        incoming = _handed_over(order, folder, kept.result.artifacts)
        if not incoming:
            files = {name: (folder / name).read_bytes() for name in kept.result.artifacts}
        # point: receipt given
        return Receipt(host=host, record=record, incoming=incoming, files=files, failures=outcome.failures)

    def _put_idle_guests_to_rest(self) -> None:
        while not self._closed.wait(IDLE_S / 4):
            self._slots.rest("", IDLE_S)


def _trouble(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, VbstudyError):
        return type(error).__name__, error.message, error.evidence
    return "GuestError", f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


def _handed_over(order: Order, folder: Path, names: Iterable[str]) -> str:
    """The folder in the study's store that has a run's files now; "" where this host does not see that store,
    works under another account, whose files the sweep could not move, or cannot write there."""
    store = Store(Path(order.directory))
    with contextlib.suppress(OSError, StoreError):
        if order.token and store.has_token(order.token):
            if store.collected(order.token).stat().st_uid != os.geteuid():
                return ""
            target = store.new_incoming()
            for name in names:
                shutil.copyfile(folder / name, target / name)  # point: file handed over
            return target.name
    return ""


class _Reports:
    """Sends the sweep a run's progress, and collects its failed attempts. The scheduler keeps a thousand
    events: it gets few and small ones, also of a guest that sends a flood of messages."""

    def __init__(self, key: str, tell: Tell, store: Store) -> None:
        self.failures: list[FailedAttempt] = []
        self.slot: dict[str, Any] = {}  # guest and cores: guests of the same size have the same name
        self._key = key
        self._tell = tell
        self._store = store
        self._unsent: dict[str, dict[str, Any]] = {}  # the newest event of each kind
        self._send_at = 0.0

    def started(self, guest: str, spec: RunSpec, cores: tuple[int, ...]) -> None:  # noqa: ARG002
        self._unsent.clear()  # of the attempt before
        self._event(spec.run_id, {})

    def message(self, guest: str, message: Message) -> None:  # noqa: ARG002
        """What comes too early waits for the next message; a run that goes on sends heartbeats."""
        self._unsent[message.kind] = {"kind": message.kind, "body": _numbers(message.body)}
        if time.monotonic() >= self._send_at:
            self._send_at = time.monotonic() + SEND_EVERY_S
            for event in self._unsent.values():
                self._event(message.run_id, event)
            self._unsent.clear()

    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None:  # noqa: ARG002
        error = json.loads((kept / EVIDENCE).read_text(encoding="utf-8"))
        log = (kept / LOG).read_bytes() if (kept / LOG).is_file() else b""
        attempt = len(self.failures) + 1
        self.failures.append(FailedAttempt(attempt=attempt, error=error, log=log, again=again))
        shutil.rmtree(kept)

    def _event(self, run_id: str, event: dict[str, Any]) -> None:
        self._tell(self._key, {"run": run_id, "host": os.uname().nodename, **self.slot, **event})


def _numbers(body: dict[str, Any]) -> dict[str, int | float]:
    """Those of a message that are shown."""
    numbers = ((name, value) for name, value in body.items() if isinstance(value, int | float))
    return dict(itertools.islice((each for each in numbers if len(each[0]) <= LONGEST_NAME), MOST_NUMBERS))
