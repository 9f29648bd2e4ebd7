"""Copies count once, and failed trainings apart."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.load.predictions import read_predictions
from analysis.load.study import View, by_threads, load_study
from analysis.quality.performance import performance
from analysis.stats import statistics
from analysis.stats.observations import (
    by_seed,
    distinct,
    failures,
    mark_failures,
    observed,
    values_by_threads,
)
from tests.analysis.provenance.test_overrides import as_project


def first(fabricated, threads="1"):
    return by_threads(load_study(fabricated.directory).runs)[threads]


def test_runs_of_equal_weights_are_one_observation(study):
    for repetition, model in enumerate("aabca", start=1):
        study.run(1, repetition, weights=model, accuracies=(0.5, 0.7 + ord(model) / 1e4))
    runs = first(study)
    assert list(distinct(runs, View.LAST).repetition) == [1, 3, 4]
    found = observed(runs, View.LAST, "accuracy")
    assert (found.runs, found.distinct, len(found.values), found.copies) == (5, 3, 3, False)


def test_a_set_of_copies_is_one_value_known_exactly(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition)
    found = observed(first(study), View.LAST, "accuracy")
    assert found.copies
    assert list(found.values) == [0.75]
    assert (found.mean().value, found.mean().low, found.mean().high, found.mean().n) == (0.75, 0.75, 0.75, 3)
    assert (found.sd().value, found.sd().low, found.sd().high) == (0.0, 0.0, 0.0)
    assert found.failure_rate().low is None


def test_equal_metrics_of_other_weights_are_no_copies(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, weights=f"{repetition}")
    found = observed(first(study), View.LAST, "accuracy")
    assert (len(found.values), found.copies) == (3, False)


def without_weights(study):
    loaded = load_study(study.directory).runs
    unknown = [name for name in loaded.columns if "weights" in name or "logits" in name]
    return by_threads(loaded.assign(**dict.fromkeys(unknown)))


def test_without_weights_runs_of_one_seed_that_are_all_equal_are_copies_and_runs_of_free_seeds_are_not(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, weights=f"{repetition}")
        study.run(2, repetition, variant="default", seed=repetition, weights=f"{repetition}")
    runs = without_weights(study)
    assert len(distinct(runs["1"], View.LAST)) == 1
    assert len(distinct(runs["2"], View.LAST)) == 3


def test_without_weights_equal_values_of_runs_that_differ_all_count_in_the_mean(study):
    for repetition, accuracy in enumerate((0.8, 0.8, 0.8, 0.9), 1):
        study.run(1, repetition, accuracies=(0.5, accuracy), weights=f"{repetition}")
        study.run(1, repetition + 4, seed=2, weights=f"of 2 {repetition}")
    found = observed(without_weights(study)["1"], View.LAST, "accuracy")
    assert list(found.values) == pytest.approx([0.825, 0.75])  # those of seed 2 are all equal


def test_each_of_several_seeds_with_several_models_is_one_observation(study):
    for repetition in range(1, 9):
        seed = (repetition + 1) // 2
        accuracy = 0.5 + 0.1 * seed + 0.01 * (repetition % 2)
        study.run(1, repetition, seed=seed, weights=f"{repetition}", accuracies=(0.5, accuracy))
        study.run(2, repetition, weights=f"{repetition}", accuracies=(0.5, accuracy))  # of one seed
    found = observed(first(study), View.LAST, "accuracy")
    assert found.values == pytest.approx([0.605, 0.705, 0.805, 0.905])
    assert (found.runs, found.distinct, found.seeds, found.mean().n) == (8, 8, 4, 4)
    assert found.failure_rate().low is None
    one = observed(first(study, "2"), View.LAST, "accuracy")
    assert (len(one.values), one.seeds) == (8, None)
    row = performance(load_study(study.directory)).frame.iloc[0]
    assert (row.n, row.models, row.seeds, row.observations) == (8, 8, 4, 4)
    assert row["mean"] == pytest.approx(0.755)
    assert np.isnan(row.mean_low)


@pytest.mark.parametrize(("seeds", "repetitions"), [(5, 6), (10, 3)])
def test_intervals_over_seeds_that_do_not_repeat_cover_as_often_as_they_say(seeds, repetitions):
    rng, held = np.random.default_rng(1), 0
    names = pd.Series(np.repeat(np.arange(seeds), repetitions))
    for _ in range(300):
        values = rng.normal(0, 0.01, seeds)[names] + rng.normal(0, 0.0005, len(names))
        mean = statistics.mean(by_seed(values, names))
        held += mean.low <= 0 <= mean.high
    assert 0.92 <= held / 300 <= 0.98


def test_the_values_by_thread_count_are_observations(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition)
        study.run(2, repetition, weights=f"{repetition}", accuracies=(0.5, 0.7 + repetition / 100))
    found = values_by_threads(load_study(study.directory).runs, View.LAST, "accuracy")
    assert {name: len(values) for name, values in found.items()} == {"1": 1, "2": 3}


def test_failed_trainings_are_counted_and_left_out(study):
    truth, right, one_class = (0, 1, 2, 0), (0, 1, 2, 0), (0, 0, 0, 0)
    runs = [
        (right, 0.9, 0.5),
        (right, 0.91, 0.5),
        (one_class, 0.5, 0.5),
        (right, 0.92, math.nan),
        (right, 0.93, 0.4),
    ]
    for repetition, (predicted, accuracy, loss) in enumerate(runs, start=1):
        study.run(
            1,
            repetition,
            variant="default",
            seed=repetition,
            weights=f"{repetition}",
            truth=truth,
            predicted=predicted,
            selected=right,
            accuracies=(0.5, accuracy),
            selected_accuracies=(0.5, 0.8),
            losses=(1.0, loss),
        )
    marked = mark_failures(*read_predictions(load_study(study.directory)))
    last, selected = (observed(marked.runs, view, "accuracy") for view in View)
    assert list(last.values) == [0.9, 0.91, 0.93]
    assert (last.failed, last.distinct, selected.failed) == (2, 5, 0)
    assert [each.what for each in marked.problems] == ["2 of 5 distinct trainings failed (last model)"]
    assert last.failure_rate().value == pytest.approx(0.4)
    assert last.failure_rate().low < 0.4 < last.failure_rate().high
    assert np.isfinite(selected.values).all()


RARE = np.array([0] * 18 + [1] * 2)
ALARMS = np.array([0] * 14 + [1] * 6)  # finds both of the rare class; right less often than always 0


@pytest.mark.parametrize(
    ("metric", "accuracy", "predicted", "failed"),
    [
        ("f1", 0.5, ALARMS, False),
        ("f1", 0.0, np.zeros(20, int), True),
        ("accuracy", 0.8, ALARMS, True),
        ("accuracy", 80.0, ALARMS, True),
        ("accuracy", 90.0, np.zeros(20, int), True),
        ("accuracy", 0.0, RARE, False),  # an error by another name: its predictions are right
    ],
)
def test_failed_is_decided_by_predictions_and_by_accuracy_only_where_it_is_the_metric(
    study, metric, accuracy, predicted, failed
):
    folder = study.run(1, accuracies=(0.0, accuracy))
    as_project(folder, metric=metric, values=predicted, truth=RARE)
    marked = mark_failures(*read_predictions(load_study(study.directory)))
    assert failures(marked, "lenet5") == failed
