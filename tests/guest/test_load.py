import os
import time

import pytest

from guest import load


def test_work_of_our_own_is_not_the_load_of_others():
    before, began, cpu = load.busy_s(), time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.3:
        pass
    own, wall = time.process_time() - cpu, time.perf_counter() - began
    others = load.load_by_others(before, load.busy_s(), own, wall)
    assert others is not None
    assert 0 <= others <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("before", "after", "own", "wall", "expected"),
    [
        (10.0, 16.0, 4.0, 4.0, 0.5),
        (10.0, 14.0, 4.5, 4.0, 0.0),
        (None, 1.0, 1.0, 1.0, None),
        (0.0, 1.0, 1.0, 0.0, None),
    ],
)
def test_the_load_of_others_is_what_was_busy_beyond_our_own_work(before, after, own, wall, expected):
    assert load.load_by_others(before, after, own, wall) == expected


def test_a_kernel_that_does_not_tell_is_not_guessed_for(monkeypatch):
    monkeypatch.setattr("guest.load.Path.read_text", lambda self: "cpu 1 2 3\n")
    assert load.busy_s() is None
    monkeypatch.setattr("guest.load.Path.read_text", lambda self: (_ for _ in ()).throw(OSError()))
    assert load.busy_s() is None
