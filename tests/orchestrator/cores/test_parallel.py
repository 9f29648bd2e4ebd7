import signal
import threading
import time
from collections import Counter

import pytest

from orchestrator.cores import locks
from orchestrator.cores.leases import CoreLeases
from orchestrator.cores.parallel import POLL_S, Job, ParallelJobs
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.inventory import guest_spec

ONE, TWO = guest_spec(1), guest_spec(2)


def jobs(work, *guests, cores=(0, 1, 2)):
    leases = CoreLeases(cores)
    return [
        Job(guest=guest, leases=leases, work=lambda lease, guest=guest: work(guest, lease))
        for guest in guests
    ]


def never(guest):
    raise AssertionError(f"{guest.name} was stopped")


def test_guests_work_at_the_same_time_on_cores_of_their_own():
    both = threading.Barrier(2)
    held = {}

    def work(guest, lease):
        held[guest.name] = lease.cores
        both.wait(120)

    ParallelJobs(never).run(jobs(work, ONE, TWO))
    assert sorted(map(len, held.values())) == [1, 2]
    assert len({core for cores in held.values() for core in cores}) == 3


def test_guests_that_share_cores_take_turns():
    busy = threading.Lock()

    def work(guest, lease):
        assert busy.acquire(blocking=False)
        time.sleep(0.05)
        busy.release()

    ParallelJobs(never).run(jobs(work, ONE, TWO, guest_spec(4), cores=(0,)))


def test_a_guest_that_fails_lets_the_others_finish_and_is_told():
    done = []

    def work(guest, lease):
        if guest is ONE:
            raise GuestError("it does not boot")
        time.sleep(0.3)
        done.append(guest)

    with pytest.raises(GuestError, match="it does not boot"):
        ParallelJobs(never).run(jobs(work, ONE, TWO))
    assert done == [TWO]


def test_any_other_error_ends_what_runs_in_the_other_guests():
    waits, ended = threading.Event(), threading.Event()

    def work(guest, lease):
        if guest is ONE:
            assert waits.wait(120)
            raise OSError("no more files")
        waits.set()
        assert ended.wait(120)
        raise GuestError("it was stopped")

    with pytest.raises(OSError, match="no more files"):
        ParallelJobs(lambda guest: ended.set() if guest is TWO else never(guest)).run(jobs(work, ONE, TWO))


def test_a_guest_that_gets_no_thread_ends_the_others_and_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv(locks.FOLDER, str(tmp_path / "cores"))  # both get theirs at once
    begun, stopped = threading.Event(), threading.Event()
    start = threading.Thread.start

    def starting(thread):
        if thread.name == TWO.name:
            assert begun.wait(120)
            raise RuntimeError("can't start new thread")
        start(thread)

    def work(guest, lease):
        begun.set()
        assert stopped.wait(120)

    monkeypatch.setattr(threading.Thread, "start", starting)
    made = jobs(work, ONE, TWO)
    with pytest.raises(PrerequisiteError, match=r"cpus-2: can't start new thread; `ulimit -u`"):
        ParallelJobs(lambda guest: stopped.set()).run(made)
    assert made[0].leases.holders() == {}


def test_nothing_begins_after_the_end():
    side, begun = ParallelJobs(never), []
    side.stop.set()
    side.run(jobs(lambda guest, lease: begun.append(guest), ONE))
    assert begun == []


def test_jobs_start_in_their_order_and_a_guest_does_one_at_a_time():
    order, at_once = [], Counter()

    def work(guest, lease):
        order.append(guest.name)
        at_once[guest.name] += 1
        assert at_once[guest.name] == 1
        time.sleep(0.02)
        at_once[guest.name] -= 1

    asked = [ONE, TWO, TWO, ONE, TWO, ONE, ONE, TWO]
    ParallelJobs(never).run(jobs(work, *asked, cores=(0, 1)))
    assert order == [guest.name for guest in asked]


def test_one_that_would_fit_waits_for_those_before_it():
    """Otherwise the narrow guests would be done long before the wide ones begin."""
    running, second = threading.Event(), []

    def work(guest, lease):
        if guest is ONE and not running.is_set():
            running.set()
            time.sleep(0.3)
        second.append(guest.name)

    other = guest_spec(1, "EPYC")
    ParallelJobs(never).run(jobs(work, ONE, TWO, other, cores=(0, 1)))
    assert second == [ONE.name, TWO.name, other.name]


def test_a_guest_that_failed_gets_no_further_job():
    begun = []

    def work(guest, lease):
        begun.append(guest)
        if guest is ONE:
            raise GuestError("it does not boot")

    with pytest.raises(GuestError, match="it does not boot"):
        ParallelJobs(never).run(jobs(work, ONE, TWO, ONE, TWO))
    assert begun == [ONE, TWO, TWO]


def test_machines_do_not_wait_for_each_other():
    both = threading.Barrier(2)
    elsewhere = jobs(lambda guest, lease: both.wait(120), TWO, cores=(1, 2))
    ParallelJobs(never).run([*jobs(lambda guest, lease: both.wait(120), ONE, cores=(0,)), *elsewhere])


def test_a_second_interrupt_does_not_leave_a_guest_at_work():
    ended, asked = threading.Event(), Counter()

    def stop(guest):
        asked[guest.name] += 1
        if asked[guest.name] == 1:
            raise KeyboardInterrupt
        ended.set()

    def work(guest, lease):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert ended.wait(120)

    with pytest.raises(KeyboardInterrupt):
        ParallelJobs(stop).run(jobs(work, ONE))
    assert ended.is_set()
    assert not any(thread.name == ONE.name for thread in threading.enumerate())


def test_a_guest_that_cannot_be_stopped_is_reported_once_and_the_others_stop():
    ended, reported, begun = threading.Event(), [], threading.Barrier(2)

    def stop(guest):
        if guest is ONE:
            raise GuestError("node1 cannot be reached")
        ended.set()

    def work(guest, lease):
        begun.wait(120)
        if guest is ONE:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert ended.wait(120)
        if guest is ONE:
            time.sleep(3 * POLL_S)  # its work goes on

    with pytest.raises(KeyboardInterrupt):
        ParallelJobs(stop, reported.append).run(jobs(work, ONE, TWO))
    assert not {ONE.name, TWO.name} & {thread.name for thread in threading.enumerate()}
    assert reported == ["guest cpus-1 cannot be stopped, its work goes on: node1 cannot be reached"]
