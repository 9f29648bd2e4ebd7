"""The soak, short; and what it says of memory."""

import dataclasses

import numpy as np
import pytest

from tests.faults import soaking
from tests.faults.soak import Sample, Soaked, judge, soak, told

RUNS = range(200, 2000)


def soaked(grows_kib: float, **changes) -> Soaked:
    noise = np.random.default_rng(1).normal(0, 200, len(RUNS))
    samples = tuple(
        Sample(runs=run, rss_kib=int(80_000 + grows_kib * run + n), descriptors=20, sockets=0, threads=5)
        for run, n in zip(RUNS, noise, strict=True)
    )
    values = {"runs": 2000, "mishaps": 300, "kinds": 80, "kills": 10, "failed_attempts": 300}
    return Soaked(**values | {"elapsed_s": 600.0, "samples": samples, "wrong": ()} | changes)


@pytest.mark.parametrize("grows_kib", [0.0, 0.3, 2.0])
def test_growth_is_told_with_an_interval_that_holds_it_and_is_judged_by_its_upper_end(grows_kib):
    made = soaked(grows_kib)
    slope, low, high, n = made.growth_kib()
    assert low < grows_kib < high
    assert low < slope < high
    assert n == 36
    assert judge(made) == (
        [] if grows_kib < 1 else [f"memory may grow by {high:.2f} KiB a run, 1 are allowed"]
    )
    assert f"95 % interval {low:.3f} to {high:.3f} (n = 36 blocks of 50 runs)" in told(made)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("descriptors", 40, "open files grow"),
        ("threads", 40, "threads grow"),
        ("sockets", 1, "the orchestrator has sockets"),
    ],
)
def test_what_leaks_is_named(field, value, said):
    made = soaked(0.0)
    half = len(made.samples) // 2
    later = (dataclasses.replace(sample, **{field: value}) for sample in made.samples[half:])
    assert judge(dataclasses.replace(made, samples=(*made.samples[:half], *later))) == [said]


def test_what_is_open_for_a_moment_is_no_leak():
    made = soaked(0.0)
    last = dataclasses.replace(made.samples[-1], descriptors=40, threads=40)
    assert judge(dataclasses.replace(made, samples=(*made.samples, last))) == []


def test_too_few_runs_say_nothing_of_memory():
    assert soaked(0.0, samples=()).growth_kib() is None


def test_a_seed_draws_the_same_mishaps_again_and_another_one_others():
    runs = [f"one/fixed-seed/cpus-1/{number:04d}" for number in range(1, 1001)]
    first = soaking.draw(runs, 1)
    assert first == soaking.draw(runs, 1) != soaking.draw(runs, 2)
    assert 100 < len(first) < 200
    assert {side for side, _ in first.values()} == {"host", "guest"}


@pytest.mark.needs("faults")
def test_a_short_soak_loses_nothing_and_leaves_nothing(tmp_path):
    made = soak(tmp_path, runs=60, kills=3, seed=3)
    assert judge(made) == []
    assert (made.runs, made.kills) == (60, 3)
    assert made.mishaps > 0
