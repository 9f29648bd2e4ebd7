import fcntl
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cores import locks, topology
from orchestrator.cores.leases import CoreLeases
from orchestrator.inventory import Guest, Observation, guest_spec
from orchestrator.providers import cores_of, local
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.study.engine import EngineTable
from tests.processes import wait_until

NEVER = threading.Event()


class Elsewhere:
    """A machine that nobody else uses, and that tells nothing of its cores."""

    def __init__(self):
        self.locks = self

    def topology(self, cores):
        return topology.from_files(cores, {})

    def take(self, cores):
        return set()

    def release(self, cores):
        pass

    def holders(self, cores):
        return {}


def test_leases_are_disjoint_and_come_back():
    leases = CoreLeases((0, 1, 2, 3), Elsewhere())
    with leases.lease("a", 1, NEVER) as a, leases.lease("b", 2, NEVER) as b:
        assert not set(a.cores) & set(b.cores)
        assert leases.holders() == {"a": {0}, "b": {1, 2}}
    with leases.lease("c", 4, NEVER) as c:
        assert c.cores == (0, 1, 2, 3)
    assert leases.holders() == {}


def test_an_oversubscribed_guest_gets_every_core_for_itself():
    with CoreLeases((0, 1), Elsewhere()).lease("a", 8, NEVER) as lease:
        assert lease.cores == (0, 1)


def test_one_at_a_time_holds_all_cores_but_uses_only_its_own():
    leases = CoreLeases((0, 1), Elsewhere(), settings=EngineTable(side_by_side=False))
    stopped = threading.Event()
    stopped.set()
    with leases.lease("a", 1, NEVER) as lease:
        assert lease.cores == (0,)
        assert leases.lease("b", 1, stopped) is None


def test_a_waiting_guest_gives_up_when_the_sweep_stops():
    leases = CoreLeases((0,), Elsewhere())
    stop = threading.Event()
    with leases.lease("a", 1, NEVER):
        got = []
        waiter = threading.Thread(target=lambda: got.append(leases.lease("b", 1, stop)))
        waiter.start()
        stop.set()
        waiter.join(120)
        assert got == [None]
    with leases.lease("c", 1, NEVER) as lease:  # the one that gave up is not waited for
        assert lease.cores == (0,)


def test_a_machine_that_does_not_answer_a_waiting_guest_holds_up_nobody_who_releases():
    class Slow(Elsewhere):
        def __init__(self):
            super().__init__()
            self.asked, self.answers = threading.Event(), threading.Event()

        def take(self, cores):
            if 1 in cores:
                self.asked.set()
                assert self.answers.wait(120)
            return set()

    machine = Slow()
    leases = CoreLeases((0, 1), machine)
    got = []
    first = leases.lease("a", 1, NEVER)
    waiter = threading.Thread(target=lambda: got.append(leases.lease("b", 1, NEVER)))
    releaser = threading.Thread(target=first.__exit__, args=(None, None, None))
    try:
        waiter.start()
        assert machine.asked.wait(120)
        releaser.start()
        releaser.join(120)
        assert not releaser.is_alive()
        assert leases.holders() == {}
    finally:
        machine.answers.set()
        waiter.join(120)
        releaser.join(120)
    assert got[0].cores == (1,)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 4), st.booleans())
def test_no_core_is_ever_held_twice_and_everybody_is_served(counts, cores, side_by_side):
    leases = CoreLeases(tuple(range(cores)), Elsewhere(), settings=EngineTable(side_by_side=side_by_side))
    held: set[int] = set()
    clashes: list[int] = []
    served: list[int] = []
    lock = threading.Lock()

    def work(index: int, count: int) -> None:
        with leases.lease(str(index), count, NEVER) as lease:
            with lock:
                clashes.extend(held & set(lease.cores))
                held.update(lease.cores)
            with lock:
                held.difference_update(lease.cores)
                served.append(index)

    workers = [threading.Thread(target=work, args=pair) for pair in enumerate(counts)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert clashes == []
    assert sorted(served) == list(range(len(counts)))


def test_more_cores_are_held_than_used_where_a_reserve_is_asked_for():
    leases = CoreLeases(tuple(range(4)), Elsewhere(), settings=EngineTable(reserve=3))
    stopped = threading.Event()
    stopped.set()
    with leases.lease("a", 1, NEVER) as lease:
        assert lease.cores == (0,)
        assert leases.holders() == {"a": {0, 1, 2}}
        assert leases.lease("b", 1, stopped) is None


OTHER = """
import sys, threading
from orchestrator.cores.leases import CoreLeases
with CoreLeases((int(sys.argv[1]),)).lease("other", 1, threading.Event()):
    print("leased", flush=True)
    sys.stdin.read()
"""


def test_cores_that_another_process_leased_are_waited_for_until_it_dies():
    (core, *_) = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-c", OTHER, str(core)]
    told = []

    def and_then_it_dies(text: str) -> None:
        told.append(text)
        other.kill()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "leased\n"
        leases = CoreLeases((core,), waiting=and_then_it_dies)
        assert leases.holders() == {f"process {other.pid}": {core}}
        stopped = threading.Event()
        stopped.set()
        assert leases.lease("ours", 1, stopped) is None
        with leases.lease("ours", 1, NEVER) as lease:
            assert lease.cores == (core,)
            assert leases.holders() == {"ours": {core}}
        assert told == [f"guest ours waits for cores: process {other.pid} on its machine leased {core}"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one process needs more cores than another")
def test_a_guest_that_needs_more_cores_gets_them_after_the_runs_of_another_study_that_were_there_before(
    monkeypatch, tmp_path
):
    monkeypatch.setenv(locks.FOLDER, str(tmp_path))
    two = tuple(sorted(os.sched_getaffinity(0)))[:2]
    theirs, ours = CoreLeases(two), CoreLeases(two)
    stopped, got = threading.Event(), []
    stopped.set()
    large = threading.Thread(target=lambda: got.append(ours.wait_for("large", 2)), daemon=True)
    with theirs.lease("a run", 1, NEVER):
        assert ours.lease("gives up", 2, stopped) is None
        with theirs.lease("a run beside it", 1, stopped):
            large.start()
            wait_until(lambda: locked(tmp_path / f"next-{two[0]}"))
    assert theirs.lease("the next run", 1, stopped) is None
    large.join(120)
    with got[0] as lease:
        assert lease.cores == two
    with theirs.lease("the next run", 1, stopped) as lease:
        assert lease.cores == two[:1]


def locked(path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize(("machine", "cores"), [("", (2, 3, 4, 5)), ("a:22", (0, 1))])
def test_a_guest_of_this_machine_is_given_cores_that_are_offered_now(monkeypatch, tmp_path, machine, cores):
    """A batch system offers others to each job."""
    monkeypatch.setattr(local, "host_cores", lambda: (2, 3, 4, 5))
    study = schema.parse('[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')
    seen = {"provider_cpus": 1, "guest_cpus": 1, "oversubscribed": False, "start_s": 1.0, "details": {}}
    observed = Observation(**seen, machine=machine, machine_cores=(0, 1))
    guest = Guest(spec=guest_spec(1), observed=observed, created_at="now")
    assert cores_of(local.LocalProvider(study, Store(tmp_path)), guest) == cores
