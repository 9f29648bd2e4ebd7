"""What becomes of a guest between two attempts at a run."""

import threading
from types import SimpleNamespace

import pytest

from orchestrator.agent.executor import RunFailedError, RunLostError
from orchestrator.engine.attempts import Attempts, Slot
from orchestrator.errors import GuestError, ProtocolError
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
