"""The limit of time for what comes from elsewhere."""

import threading

import pytest

from guest.records import pace
from guest.records.pace import paced


@pytest.fixture
def cut():
    return threading.Event()


def test_what_keeps_the_pace_is_let_through_and_its_own_errors_too(cut, monkeypatch):
    monkeypatch.setattr(pace, "GRACE_S", 0.1)
    with paced(cut.set, 60) as moved:
        moved(1 << 30)
        assert not cut.wait(0.5)
    with pytest.raises(ValueError, match="mine"), paced(cut.set, 60):
        raise ValueError("mine")
    assert not cut.is_set()


def flow(cut, silent_s, count, wait_s):
    """Moves so many bytes again and again, until it is cut."""
    with paced(cut.set, silent_s) as moved:
        for _ in range(12_000):
            moved(count)
            if cut.wait(wait_s):
                return


def test_silence_is_cut_whatever_has_moved_before(cut):
    with pytest.raises(TimeoutError, match="nothing came or went within 0 s: .* run this again"):
        flow(cut, 0.2, 1 << 30, 120)


def test_drips_are_cut_although_they_are_never_silent(cut, monkeypatch):
    monkeypatch.setattr(pace, "GRACE_S", 0.5)
    with pytest.raises(TimeoutError, match="only [0-9]+ bytes came or went within"):
        flow(cut, 60, 1, 0.01)


def fail_when(cut):
    with paced(cut.set, 0.1):
        assert cut.wait(120)
        raise EOFError


def test_what_the_cut_raises_is_told_as_the_limit_that_was_missed(cut):
    with pytest.raises(TimeoutError, match="nothing came"):
        fail_when(cut)
