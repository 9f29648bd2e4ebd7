"""Work over several processes."""

from __future__ import annotations

import os

import pytest

from analysis.stats.processes import in_processes


def times(common: dict[str, int], piece: int) -> tuple[int, int]:
    if piece == common.get("bad"):
        raise ValueError(f"piece {piece}")
    return common["factor"] * piece, os.getpid()


def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_results_come_in_order_and_from_other_processes(monkeypatch):
    two_cores(monkeypatch)
    found = in_processes(times, range(20), {"factor": 3}, worth_it=True)
    assert [value for value, _ in found] == [3 * i for i in range(20)]
    assert os.getpid() not in {pid for _, pid in found}


def test_little_work_and_one_core_stay_in_this_process(monkeypatch):
    two_cores(monkeypatch)
    assert in_processes(times, [1], {"factor": 3}, worth_it=False) == [(3, os.getpid())]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert in_processes(times, [1], {"factor": 3}, worth_it=True) == [(3, os.getpid())]


def test_an_error_in_a_process_is_raised_here(monkeypatch):
    two_cores(monkeypatch)
    with pytest.raises(ValueError, match="piece 5"):
        in_processes(times, range(20), {"factor": 3, "bad": 5}, worth_it=True)
