import threading
import time

import pytest

from orchestrator.cores.leases import CoreLeases
from orchestrator.cores.parallel import Job, ParallelJobs
from orchestrator.errors import GuestError
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


def test_nothing_begins_after_the_end():
    side = ParallelJobs(never)
    side.stop.set()
    side.run(jobs(lambda guest, lease: pytest.fail("it began"), ONE))
