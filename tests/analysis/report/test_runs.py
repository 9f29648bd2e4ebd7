from __future__ import annotations

import pytest

from analysis.load.study import View, load_study
from analysis.pipeline import analyze
from analysis.report.runs import runs_table
from analysis.report.story import strips
from analysis.results.model import Kind
from tests.analysis.provenance.test_overrides import as_project


def standings(study, column="weights"):
    return list(runs_table(load_study(study.directory), View.LAST).frame[column])


def test_a_run_that_is_not_like_most_of_its_set_is_named(study):
    for repetition, weights in enumerate(("w", "w", "odd", "w"), start=1):
        study.run(1, repetition, weights=weights)
    assert standings(study) == ["as most", "as most", "differs from most", "as most"]
    assert standings(study, "predictions") == ["all alike"] * 4
    assert standings(study, "differs") == [False, False, True, False]
    assert standings(study, "n") == [4] * 4


def test_predictions_alone_can_differ(study):
    for repetition, predicted in enumerate(((0, 1, 2, 0), (0, 1, 2, 0), (0, 1, 2, 1)), start=1):
        study.run(1, repetition, predicted=predicted)
    assert standings(study) == ["all alike"] * 3
    assert standings(study, "predictions") == ["as most", "as most", "differs from most"]
    assert standings(study, "differs") == [False, False, True]


def test_without_a_majority_nobody_is_the_odd_one(study):
    for repetition, weights in enumerate(("a", "a", "b", "b"), start=1):
        study.run(1, repetition, weights=weights)
    study.run(2)
    assert standings(study) == ["no majority"] * 4 + ["one run"]
    assert not any(standings(study, "differs"))


def test_runs_are_compared_with_those_of_their_fixed_seed(study):
    for repetition, (seed, weights) in enumerate(
        ((1, "a"), (1, "a"), (2, "b"), (2, "b"), (2, "odd")), start=1
    ):
        study.run(1, repetition, seed=seed, weights=weights)
    study.run(1, 6, seed=3)
    assert standings(study) == [*["all alike"] * 2, *["as most"] * 2, "differs from most", "one run"]


def test_sets_are_compared_within_themselves_only(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=str(cpus))
    assert standings(study) == ["all alike"] * 4


def test_the_view_decides_whose_hashes_and_metrics_are_shown(study):
    study.run(1, accuracies=(0.5, 0.75), selected_accuracies=(0.5, 0.8))
    loaded = load_study(study.directory)
    last, selected = (runs_table(loaded, view).frame.iloc[0] for view in View)
    assert (last.accuracy, selected.accuracy) == (0.75, 0.8)
    assert last.weights_sha256 != selected.weights_sha256
    assert last.weights_hash == last.weights_sha256[:8]
    assert last.started == "2025-01-01 00:00:00"


@pytest.mark.needs("studies")
@pytest.mark.parametrize("metric", ["weights", "predictions", "n", "threads", "wall_s", "differs", "top_5"])
def test_a_projects_metric_may_be_called_as_a_column_is(study, metric):
    study.run(1)
    for cpus in (1, 2):
        as_project(study.run(cpus, workload="mine", weights=f"{cpus}", wall_s=7.0), metric=metric)
    made = analyze(study.directory)
    table = runs_table(made.study, View.LAST)
    mine = table.frame[table.frame.workload == "mine"]
    assert list(mine.weights) == ["one run"] * 2
    assert list(mine.n) == [1, 1]
    assert list(mine.threads) == ["1", "2"]
    assert list(mine.wall_s) == [7.0, 7.0]
    (shown,) = (
        column for column in table.columns if column.kind is Kind.METRIC and column.source != "accuracy"
    )
    assert shown.header == metric.replace("_", " ")
    assert list(mine[shown.source]) == [0.75, 0.75]
    assert list(table.frame).index("accuracy") < list(table.frame).index("wall_s")
    strip = next(each for each in strips(made, {}) if each.workload == "mine")
    assert [name for name, _ in strip.rows] == ["weights", "predictions", metric]
