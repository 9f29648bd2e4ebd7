"""Which guests stay up between their turns."""

import pytest

from orchestrator.engine.open_guests import OpenGuests
from orchestrator.errors import GuestError
from orchestrator.inventory import Guest, Observation, guest_spec


class Session:
    def __init__(self, guest, cores, log):
        self.guest, self.cores, self._log = guest, cores, log
        log.append(f"open {guest.spec.cpus}")

    def close(self):
        self._log.append(f"close {self.guest.spec.cpus}")


class Hangs(Session):
    def close(self):
        super().close()
        raise GuestError("it hangs")


class Lease:
    def __init__(self, *cores):
        self.cores = cores


def guest(cpus):
    seen = Observation(provider_cpus=cpus, guest_cpus=cpus, oversubscribed=False, start_s=0.0, details={})
    return Guest(spec=guest_spec(cpus), observed=seen, created_at="")


@pytest.fixture
def log():
    return []


def guests(log, at_most):
    return OpenGuests(lambda guest, cores: Session(guest, cores, log), at_most)


def test_a_guest_is_opened_once_for_all_its_turns(log):
    up = guests(log, 2)
    for _ in range(3):
        for cpus in (1, 2):
            up.leave(up.take(guest(cpus), Lease(*range(cpus))))
    assert log == ["open 1", "open 2"]


def test_a_guest_that_gets_other_cores_is_opened_again(log):
    up = guests(log, 2)
    up.leave(up.take(guest(1), Lease(0)))
    assert up.take(guest(1), Lease(3)).cores == (3,)
    assert log == ["open 1", "close 1", "open 1"]


def test_the_longest_unused_guest_gives_way_where_there_is_no_room_for_all(log):
    up = guests(log, 2)
    for cpus in (1, 2, 1, 4, 1):
        up.leave(up.take(guest(cpus), Lease(*range(cpus))))
    assert log == ["open 1", "open 2", "close 2", "open 4"]


def test_guests_that_have_a_turn_are_never_closed_for_another(log):
    up = guests(log, 1)
    for cpus in (1, 2, 4):
        up.take(guest(cpus), Lease(*range(cpus)))
    assert log == ["open 1", "open 2", "open 4"]


def test_after_its_last_turn_a_guest_is_closed_and_makes_room(log):
    up = guests(log, 2)
    up.leave(up.take(guest(1), Lease(0)))
    up.close(up.take(guest(2), Lease(0, 1)))
    up.leave(up.take(guest(4), Lease(0, 1, 2, 3)))
    assert log == ["open 1", "open 2", "close 2", "open 4"]


def test_in_the_end_all_are_closed_whatever_one_of_them_says(log):
    up = guests(log, 2)
    up.leave(Hangs(guest(1), (0,), log))
    up.leave(up.take(guest(2), Lease(0, 1)))
    up.close_idle()
    assert sorted(log) == ["close 1", "close 2", "open 1", "open 2"]


def test_an_interrupt_while_guests_are_closed_leaves_none_up(log):
    up, interrupts = guests(log, 4), [KeyboardInterrupt, KeyboardInterrupt]

    class Interrupted(Session):
        def close(self):
            if interrupts:
                raise interrupts.pop()
            super().close()

    for cpus in (1, 2, 4):
        up.leave(Interrupted(guest(cpus), (0,), log))
    with pytest.raises(KeyboardInterrupt):
        up.close_idle()
    assert [line for line in log if line.startswith("close")] == ["close 1", "close 2", "close 4"]


def test_a_guest_has_its_turn_where_another_one_cannot_be_stopped_for_it(log):
    up = OpenGuests(lambda guest, cores: Hangs(guest, cores, log), 1)
    up.leave(up.take(guest(1), Lease(0)))
    up.leave(up.take(guest(2), Lease(0, 1)))
    up.take(guest(2), Lease(2, 3))
    assert log == ["open 1", "close 1", "open 2", "close 2", "open 2"]
