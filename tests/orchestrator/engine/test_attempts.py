"""What becomes of a guest between two attempts at a run."""

import os
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from guest.records.codec import seal
from guest.records.run import Message, machine_id
from orchestrator.agent.executor import RunFailedError, RunLostError
from orchestrator.cores import topology
from orchestrator.engine.attempts import Attempts, Slot
from orchestrator.errors import GuestError, ProtocolError
from orchestrator.inventory import Guest, Observation, guest_spec
from orchestrator.store import store as stores
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests import factories

STUDY = schema.parse('[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')


class Session:
    def __init__(self, error):
        self._error, self.closed = error, 0

    def executor(self):
        return self

    def execute(self, *_):
        raise self._error

    def host_snapshot(self):
        return None

    def close(self):
        self.closed += 1


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (RunFailedError("Timeout", "not done within timeout_s = 1"), False),  # the guest ended it
        (RunLostError("Timeout", "not done within engine.timeout_s = 1"), True),
        (RunLostError("Lost", "silent"), True),
        (ProtocolError("garbage"), True),
        (GuestError("gone"), True),
    ],
)
def test_a_guest_in_which_a_failed_run_may_go_on_is_restarted_for_the_next_attempt(tmp_path, error, closed):
    reports = SimpleNamespace(started=lambda *_: None, message=lambda *_: None, failed=lambda *_, again: None)
    session = Session(error)
    slot = Slot(
        guest=SimpleNamespace(spec=SimpleNamespace(name="cpus-2")),
        session=session,
        lease=SimpleNamespace(cores=(0, 1), holder="cpus-2"),
        leases=SimpleNamespace(holders=dict),
    )
    attempts = Attempts(STUDY, Store(tmp_path), None, threading.Event(), reports)
    assert attempts.run_with_retries(slot, factories.spec()) is None
    assert session.closed == 2 * closed


def test_neighbours_that_come_and_go_during_a_run_are_those_of_its_heartbeats(tmp_path):
    cores = dict(enumerate(topology.from_files(range(4), {}).values()))
    leased = {"cpus-1": frozenset({0})}
    heard = []

    def execute(spec, folder, on_message, numbers):
        for name, kind, core in (("a", "heartbeat", 1), ("a", "heartbeat", 2), ("b", "epoch", 3)):
            leased[name] = frozenset({core})
            on_message(Message(kind=kind, run_id=spec.run_id, body={}))
            del leased[name]
        return factories.result(factories.fill(folder))

    reports = SimpleNamespace(message=lambda guest, message: heard.append(message.kind))
    observed = Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1.0, details={})
    slot = Slot(
        guest=Guest(spec=guest_spec(1), observed=observed, created_at="now"),
        session=Session(None),
        lease=SimpleNamespace(cores=(0,), holder="cpus-1"),
        leases=SimpleNamespace(holders=lambda: dict(leased), topology=cores),
    )
    executor = SimpleNamespace(execute=execute, context=SimpleNamespace(is_oversubscribed=lambda spec: False))
    agent = SimpleNamespace(sha256="a" * 64)
    attempts = Attempts(STUDY, Store(tmp_path), agent, threading.Event(), reports)
    record = attempts._run_once(slot, executor, factories.spec(1), Counter(), tmp_path)
    assert record.isolation.neighbours == ("a",)
    assert heard == ["heartbeat", "heartbeat", "epoch"]


class Succeeding(Session):
    """Once its errors are over."""

    context = SimpleNamespace(is_oversubscribed=lambda _: False)

    def __init__(self, *errors):
        super().__init__(None)
        self._errors = list(errors)

    def execute(self, spec, folder, *_):
        if self._errors:
            raise self._errors.pop(0)
        return factories.result(factories.fill(folder))


def slot_of(session, machine=""):
    observed = Observation(
        provider_cpus=2, guest_cpus=2, oversubscribed=False, start_s=1.0, details={}, machine=machine
    )
    return Slot(
        guest=Guest(spec=guest_spec(2), observed=observed, created_at="now"),
        session=session,
        lease=SimpleNamespace(cores=(0, 1), holder="cpus-2"),
        leases=SimpleNamespace(holders=dict, topology={}),
    )


def published(folder, session, machine=""):
    """The record of a run with its retries."""
    store, spec = Store(folder), factories.spec()
    reports = SimpleNamespace(started=lambda *_: None, message=lambda *_: None, failed=lambda *_, again: None)
    study = STUDY.model_copy(update={"engine": STUDY.engine.model_copy(update={"retries": 3})})
    attempts = Attempts(study, store, SimpleNamespace(sha256="a"), threading.Event(), reports)
    assert attempts.run_with_retries(slot_of(session, machine), spec) is not None
    return store.check(spec)


@pytest.mark.parametrize("machine", ["", "me@node1.example:22"])
def test_a_record_names_no_machine(tmp_path, machine):
    record = published(tmp_path, Succeeding(), machine)
    assert (machine or os.uname().nodename) not in seal(record)
    assert record.guest["host"] == machine_id(record.spec.study_id, machine or os.uname().nodename)


def test_a_record_counts_the_attempts_of_its_sweep_whatever_the_clock_was_before(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_stamp", lambda: "29991231T235959000000-aaaaaa")
        store = Store(tmp_path)
        store.keep_failure(factories.spec(), 1, store.new_incoming(), {"kind": "of an earlier sweep"})
    errors = [RunFailedError("RuntimeError", "no"), GuestError("gone"), RunFailedError("RuntimeError", "no")]
    record = published(tmp_path, Succeeding(*errors))
    assert (record.attempt, record.failures) == (4, {"RuntimeError": 2, "GuestError": 1})


def test_a_kind_of_error_that_no_record_takes_is_counted_as_unknown(tmp_path):
    errors = [RunFailedError(kind, "no") for kind in ("\u932f" * 80, "Runtime\u00a0Error")]
    assert published(tmp_path, Succeeding(*errors)).failures == {"unknown": 2}
