import os
import time

import pytest

from guest.machine import load


def test_work_of_our_own_is_not_the_load_of_others():
    before, began, cpu = load.look(), time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.3:
        pass
    own, wall = time.process_time() - cpu, time.perf_counter() - began
    others = load.load_by_others(before, load.look(), own, wall)
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
    looks = (load.Look(busy_s=busy, conditions={}) for busy in (before, after))
    assert load.load_by_others(*looks, own, wall) == expected


def test_a_kernel_that_does_not_tell_is_not_guessed_for(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "PROC", tmp_path)
    assert load.look().busy_s is None
    (tmp_path / "stat").write_text("cpu 1 2 3 4 5 6 7 8 0 0\n")
    assert load.look().busy_s is None


def test_what_happened_between_two_looks_is_told_and_of_the_clock_both():
    before = {"steal_s": 1.0, "throttled": 2.0, "frequency_mhz": 3000.04, "swapped_mib": 1.0}
    after = {"steal_s": 1.5, "throttled": 4.0, "frequency_mhz": 2000.0}
    assert load.change(*(load.Look(busy_s=0.0, conditions=told) for told in (before, after))) == {
        "steal_s": 0.5,
        "throttled": 2.0,
        "frequency_mhz_before": 3000.0,
        "frequency_mhz_after": 2000.0,
    }
    nothing = load.Look(busy_s=None, conditions={})
    assert load.change(nothing, nothing) == {}


def test_the_kernel_is_asked_for_steal_swapping_throttling_and_clocks(tmp_path, monkeypatch):
    core = min(os.sched_getaffinity(0))
    cpu = tmp_path / f"cpu{core}"
    for file, text in (
        ("thermal_throttle/core_throttle_count", "7"),
        ("cpufreq/scaling_cur_freq", "2500000"),
    ):
        (cpu / file).parent.mkdir(parents=True)
        (cpu / file).write_text(text + "\n")
    (tmp_path / "stat").write_text(f"cpu{core} 1 2 3 4 5 6 7 {2 * os.sysconf('SC_CLK_TCK')} 0 0\n")
    (tmp_path / "vmstat").write_text("pswpin 256\npswpout 256\n")
    monkeypatch.setattr(load, "SYSTEM", tmp_path)
    monkeypatch.setattr(load, "PROC", tmp_path)
    assert load.look({core}).conditions == {
        "steal_s": 2.0,
        "throttled": 7.0,
        "frequency_mhz": 2500.0,
        "swapped_mib": 512 * load.PAGE_MIB,
    }
    (tmp_path / "vmstat").write_text("nr_free_pages 1\n")  # a kernel that does not count what is swapped
    assert "swapped_mib" not in load.look({core}).conditions
    monkeypatch.setattr(load, "SYSTEM", tmp_path / "nowhere")
    monkeypatch.setattr(load, "PROC", tmp_path / "nowhere")
    assert load.look().conditions == {}
