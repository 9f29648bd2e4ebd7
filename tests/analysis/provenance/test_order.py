"""Whether time and thread count are confounded: by hand, and how often pure noise is taken for drift."""

import numpy as np
import pandas as pd
import pytest

from analysis.load.study import load_study
from analysis.provenance.order import drift, order_reservations


def problems(study):
    return [problem.what for problem in order_reservations(load_study(study.directory))]


def sweep(study, order, **options):
    """Runs one after the other: (thread count, repetition), 10 s each."""
    for number, (cpus, repetition) in enumerate(order):
        study.run(cpus, repetition, at_s=10.0 * number, wall_s=10.0, **options)


BACK_TO_BACK = [(cpus, repetition) for cpus in (1, 2) for repetition in (1, 2, 3)]
IN_BLOCKS = [(cpus, repetition) for repetition in (1, 2, 3) for cpus in (1, 2)]


def test_thread_counts_that_were_run_one_after_the_other_are_confounded_with_time(study):
    sweep(study, BACK_TO_BACK)
    (what,) = problems(study)
    assert what == (
        "the runs of threads 1 | 2 were executed one thread count after the other: differences in times are "
        "confounded with the time of execution"
    )


def test_with_free_seeds_metrics_are_confounded_too(study):
    sweep(study, BACK_TO_BACK, variant="default")
    assert "times and, with free seeds, in metrics" in problems(study)[0]


@pytest.mark.parametrize("order", [IN_BLOCKS, [*BACK_TO_BACK[:1], (2, 1), *IN_BLOCKS[2:]]])
def test_interleaved_runs_are_not(study, order):
    sweep(study, order)
    assert problems(study) == []


def test_runs_side_by_side_are_not(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, at_s=10.0 * repetition)
        study.run(2, repetition, at_s=10.0 * repetition + 0.5)
    assert problems(study) == []


def test_a_thread_count_that_was_added_later_is_named_with_those_before_it(study):
    sweep(study, IN_BLOCKS)
    for repetition in (1, 2, 3):
        study.run(4, repetition, at_s=1000.0 + 10 * repetition)
    assert "threads 1 | 4, 2 | 4 were" in problems(study)[0]


def test_runs_that_all_began_at_one_time_have_no_drift(study):
    for block in range(1, 7):
        for cpus in (1, 2):
            study.run(cpus, block, block=block, wall_s=10.0 + block)
    assert problems(study) == []  # a warning is an error in tests


def slower(study, blocks, factor):
    for block in range(1, blocks + 1):
        for cpus in (1, 2):
            wall_s = 10 / cpus * factor ** (block - 1) * (1 + 0.001 * ((7 * block + cpus) % 3))
            study.run(cpus, block, at_s=60.0 * block + cpus, wall_s=wall_s, block=block)


def test_runs_that_get_slower_over_the_blocks_are_reported_with_size_interval_p_and_n(study):
    slower(study, 10, 1.02)
    (what,) = problems(study)
    assert what.startswith("runs got slower by +1")
    for part in ("from the first block to the last (95 % interval +", "Kendall's tau 1.00", "n = 10 blocks"):
        assert part in what


def test_too_few_blocks_or_none_recorded_report_no_drift(study):
    slower(study, 4, 1.5)
    assert problems(study) == []


def test_a_metric_that_changes_over_the_blocks_is_reported(study):
    for block in range(1, 9):
        for cpus in (1, 2):
            accuracy = 0.9 - 0.01 * block - 0.001 * cpus
            study.run(cpus, block, at_s=60.0 * block + cpus, block=block, accuracies=(0.5, accuracy))
    (what,) = problems(study)
    assert what.startswith("accuracy changed by -0.07 from the first block to the last")


@pytest.mark.needs("studies", long=True)
def test_noise_and_blocks_that_differ_without_a_trend_are_taken_for_drift_in_one_study_of_twenty():
    generator = np.random.default_rng(1)
    blocks, sets, found = 12, 4, 0
    runs = pd.DataFrame(
        {
            "block": np.repeat(np.arange(1, blocks + 1), sets),
            "set_id": np.tile([f"s{i}" for i in range(sets)], blocks),
        }
    )
    seconds = pd.to_timedelta(60 * runs.block + runs.index, unit="s")
    runs["started_at"] = (pd.Timestamp("2026-01-01", tz="UTC") + seconds).map(lambda t: t.isoformat())
    for _ in range(400):
        effect = np.repeat(generator.normal(0, 1, blocks), sets)  # shared by the runs of a block
        values = pd.Series(effect + generator.normal(0, 1, len(runs)))
        measured = drift(runs, values)
        assert measured is not None
        found += measured.p < 0.05
    assert 0.02 <= found / 400 <= 0.08
