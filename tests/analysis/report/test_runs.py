from __future__ import annotations

from analysis.load.study import View, load_study
from analysis.report.runs import runs_table


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
