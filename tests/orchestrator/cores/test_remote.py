"""Cores of a machine behind a real sshd, which is this one."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from orchestrator.cores import remote, topology
from orchestrator.cores.leases import CoreLeases, host_cores
from orchestrator.cores.locks import FOLDER, CoreLocks
from orchestrator.cores.remote import RemoteCores
from orchestrator.errors import GuestError
from orchestrator.transport.keys import StudyKeys
from orchestrator.transport.ssh import SshConnection
from tests.processes import ends, wait_until

pytestmark = pytest.mark.needs("sshd")
NEVER = threading.Event()
STOPPED = threading.Event()
STOPPED.set()
CORE = min(host_cores())


@pytest.fixture
def machine(server, tmp_path):
    """One for each orchestrator that a test has."""
    made = []

    def make(python: str = sys.executable) -> RemoteCores:
        keys = StudyKeys(tmp_path / "keys", tmp_path / "known_hosts")
        target = server.target(keys, patience_s=3)
        made.append(RemoteCores(lambda: SshConnection(target, str(tmp_path), python)))
        return made[-1]

    yield make
    for each in made:
        each.release(host_cores())


def holder() -> int:
    """The process that holds the core."""
    return CoreLocks().holders({CORE})[CORE]


def end_holder() -> None:
    process = holder()
    os.kill(process, signal.SIGKILL)
    assert ends(process)


def test_two_orchestrators_never_have_the_same_core_and_each_knows_of_the_other(machine):
    told = []
    first = CoreLeases((CORE,), machine())
    second = CoreLeases((CORE,), machine(), waiting=told.append)
    with first.lease("a", 1, NEVER) as lease:
        assert lease.cores == (CORE,)
        assert second.lease("b", 1, STOPPED) is None
        assert second.holders() == {f"process {holder()}": {CORE}}
        assert first.holders() == {"a": {CORE}}
    with second.lease("b", 1, NEVER) as lease:
        assert lease.cores == (CORE,)


def test_sweeps_over_ssh_and_sweeps_on_the_machine_itself_keep_apart(machine):
    there, here = CoreLeases((CORE,), machine()), CoreLeases((CORE,))
    with there.lease("a", 1, NEVER):
        assert here.lease("b", 1, STOPPED) is None
    with here.lease("b", 1, NEVER):
        assert there.lease("a", 1, STOPPED) is None
        assert there.holders() == {f"process {os.getpid()}": {CORE}}


def test_nothing_runs_there_once_nothing_is_held(machine):
    with CoreLeases((CORE,), machine()).lease("a", 1, NEVER):
        process = holder()
    assert process != os.getpid()
    assert ends(process)


def test_a_pipe_in_the_place_of_a_lock_there_is_told(machine):
    lock = Path(os.environ[FOLDER]) / f"core-{CORE}"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    try:
        with pytest.raises(GuestError, match=rf"cores cannot be leased: .*core-{CORE}: not a plain file"):
            CoreLeases((CORE,), machine()).lease("a", 1, NEVER)
    finally:
        lock.unlink()


def test_cores_of_an_orchestrator_that_is_lost_are_free(machine, server):
    leases = CoreLeases((CORE,), machine())
    with leases.lease("a", 1, NEVER):
        process = holder()
        server.kill()
        assert ends(process)
        here = CoreLocks()
        assert here.take({CORE}) == set()
        here.release({CORE})
        server.start()


def test_after_a_lost_session_the_cores_are_taken_again_as_far_as_others_have_not(machine, server):
    leases = CoreLeases((CORE,), machine())
    with leases.lease("a", 1, NEVER):
        others = CoreLocks()
        end_holder()
        assert leases.holders() == {"a": {CORE}}
        assert others.take({CORE}) == {CORE}, "they are held again"
        end_holder()
        assert others.take({CORE}) == set()
        assert leases.holders() == {"a": {CORE}, f"process {os.getpid()}": {CORE}}
        others.release({CORE})


def test_a_lost_session_is_made_anew_without_being_asked_and_none_after_the_last_core(machine, monkeypatch):
    monkeypatch.setattr(remote, "PING_S", 0.1)
    leases = CoreLeases((CORE,), machine())
    with leases.lease("a", 1, NEVER):
        first = holder()
        end_holder()
        deadline = time.monotonic() + 120
        while CORE not in CoreLocks().holders({CORE}):
            assert time.monotonic() < deadline
        assert holder() != first
    wait_until(lambda: CORE not in CoreLocks().holders({CORE}))
    time.sleep(0.5)
    assert CoreLocks().holders({CORE}) == {}


@pytest.mark.skipif(len(host_cores()) < 2, reason="one core is held while another is asked for")
def test_who_releases_does_not_wait_for_the_answer_to_another_thread(machine):
    there, other = machine(), max(host_cores())
    assert there.take({CORE}) == set()
    process, got = holder(), []
    os.kill(process, signal.SIGSTOP)
    taker = threading.Thread(target=lambda: got.append(there.take({other})))
    releaser = threading.Thread(target=there.release, args=({CORE},))
    try:
        taker.start()
        wait_until(lambda: there._turn.locked())
        releaser.start()
        releaser.join(120)
        assert not releaser.is_alive()
    finally:
        os.kill(process, signal.SIGCONT)
        taker.join(120)
        releaser.join(120)
    assert got == [set()]
    here = CoreLocks()
    assert here.take({CORE}) == set(), "it was released after the answer"
    assert here.take({other}) == {other}
    here.take(())
    here.release({CORE})


def test_the_topology_of_the_machine_is_what_its_kernel_says(machine):
    there = machine()
    assert there.topology(host_cores()) == topology.read(host_cores())
    there.release(())


def test_a_machine_on_which_that_does_not_work_is_named_with_what_it_says(machine):
    with pytest.raises(
        GuestError, match=r"127\.0\.0\.1:\d+: cores cannot be leased there: exit status"
    ) as raised:
        CoreLeases((CORE,), machine("/nowhere/python3")).lease("a", 1, NEVER)
    assert "/nowhere/python3" in raised.value.evidence
    with pytest.raises(GuestError, match="protocol error: not JSON"):
        CoreLeases((CORE,), machine("echo")).lease("a", 1, NEVER)
