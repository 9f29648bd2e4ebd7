from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.load.predictions import read_predictions
from analysis.load.study import View, load_study
from analysis.quality.subgroups import by_class, class_ranges, subgroups
from analysis.results.model import ACROSS


def tables(study):
    classes = by_class(*read_predictions(load_study(study.directory)))
    return tuple(
        table.frame[table.frame["view"] == "last"].set_index("scope")
        for table in (classes, subgroups(classes))
    )


def test_a_class_moves_while_the_accuracy_stands_still(study):
    truth = (0, 0, 1, 1)
    study.run(1, 1, truth=truth, predicted=(0, 0, 1, 0), weights="a")  # class 0: 1, class 1: 1/2
    study.run(1, 2, truth=truth, predicted=(0, 1, 1, 1), weights="b")  # class 0: 1/2, class 1: 1
    study.run(2, 1, truth=truth, predicted=(0, 0, 1, 1))
    classes, summary = tables(study)
    one = classes.loc["1"].set_index("class")
    assert list(one.accuracy_mean) == [0.75, 0.75]
    assert list(one.accuracy_range) == [0.5, 0.5]
    assert list(one.fnr_mean) == [0.25, 0.25]
    assert list(one.fpr_mean) == [0.25, 0.25]
    assert list(one.support) == [2, 2]
    row = summary.loc["1"]
    assert (row.n, row.overall_range, row.class_range) == (2, 0.0, 0.5)
    assert row.class_sd == pytest.approx(0.5 / 2**0.5)
    assert row.fpr_sd == row.fnr_sd == row.class_sd
    across = summary.loc[ACROSS]
    assert (across.n, across.overall_range, across.class_range) == (2, 0.25, 0.25)


def test_copies_of_a_model_count_once(study):
    truth = (0, 0, 1, 1)
    study.run(1, 1, truth=truth, predicted=(0, 0, 1, 0), weights="a")
    study.run(1, 2, truth=truth, predicted=(0, 0, 1, 0), weights="a")
    study.run(1, 3, truth=truth, predicted=(0, 1, 1, 1), weights="b")
    study.run(2, 1, truth=truth, predicted=(0, 0, 1, 1), weights="c")
    study.run(2, 2, truth=truth, predicted=(0, 0, 1, 1), weights="c")
    classes, summary = tables(study)
    assert list(classes.loc["1"].accuracy_mean) == [0.75, 0.75]
    assert (summary.loc["1"].n, summary.loc["1"].overall_sd) == (2, 0.0)
    assert summary.loc["1"].class_sd == pytest.approx(0.5 / 2**0.5)
    assert (summary.loc["2"].n, summary.loc["2"].class_sd) == (2, 0.0)  # one model: exactly none


def test_each_seed_counts_once_with_the_mean_of_its_models(study):
    truth, ways = (0, 0, 1, 1), ((0, 0, 1, 0), (0, 1, 1, 1), (0, 0, 1, 1))
    for repetition, (seed, way) in enumerate(((1, 0), (1, 1), (2, 2), (2, 2)), start=1):
        study.run(1, repetition, seed=seed, truth=truth, predicted=ways[way], weights=f"{repetition}")
    classes, summary = tables(study)
    assert list(classes.loc["1"].accuracy_mean) == [0.875, 0.875]  # of 0.75 and 1
    row = summary.loc["1"]
    assert (row.n, row.overall_range, row.class_range) == (2, 0.25, 0.25)
    assert row.overall_sd == row.class_sd == pytest.approx(0.25 / 2**0.5)


def test_bounds_of_the_overall_sd_stand_behind_it(study):
    for repetition in range(1, 11):
        labels = tuple(int(i < repetition) for i in range(12))
        study.run(1, repetition, truth=(0, 1) * 6, predicted=labels, weights=f"{repetition}")
    classes, summary = tables(study)
    names = list(classes.columns)
    assert names[(i := names.index("overall_sd")) : i + 3] == [
        "overall_sd",
        "overall_sd_low",
        "overall_sd_high",
    ]
    for row in (classes.iloc[0], summary.iloc[0]):
        assert row.overall_sd_low < row.overall_sd < row.overall_sd_high


def test_one_run_has_rates_and_no_spread(study):
    study.run(1)
    classes, summary = tables(study)
    assert (classes.accuracy_mean == 1).all()
    row = summary.loc["1"]
    assert row.n == 1
    assert pd.isna(row[["overall_range", "class_range", "class_sd", "fpr_sd"]].astype(float)).all()
    assert ACROSS not in summary.index


def test_a_class_that_no_sample_has_is_not_the_one_that_moves(study):
    study.run(1, 1, truth=(0, 0, 1), predicted=(0, 2, 1), weights="a")
    study.run(1, 2, truth=(0, 0, 1), predicted=(0, 0, 1), selected=(0, 0, 2), weights="b")
    classes, summary = tables(study)
    assert classes[classes["class"] == 2].accuracy_mean.isna().all()
    assert (summary.loc["1", "classes"], summary.loc["1", "class"]) == (2, 0)


def test_ranges_go_from_the_worst_to_the_best_run_of_a_set(study):
    study.run(1, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 0))
    study.run(1, 2, truth=(0, 0, 1, 1), predicted=(0, 1, 1, 1))
    study.run(2, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 1))
    frame = class_ranges(*read_predictions(load_study(study.directory)), "lenet5", View.LAST)
    assert frame[["threads", "class_", "n", "samples", "low", "mean", "high"]].to_numpy().tolist() == [
        ["1", 0, 2, 2, 0.5, 0.75, 1.0],
        ["1", 1, 2, 2, 0.5, 0.75, 1.0],
        ["2", 0, 1, 2, 1.0, 1.0, 1.0],
        ["2", 1, 1, 2, 1.0, 1.0, 1.0],
    ]


def test_token_ids_and_rounded_values_are_named_in_the_rows_of_their_class(study):
    study.run(1, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 0), weights="a")
    study.run(1, 2, truth=(0, 0, 1, 1), predicted=(0, 1, 1, 1), weights="b")
    loaded, small = read_predictions(load_study(study.directory))
    id_ = 2**45  # one cell a label would need more than there are addresses
    labels = {
        view: {run: each * np.int64(id_) for run, each in by_run.items()}
        for view, by_run in small.labels.items()
    }
    truth = {name: each * id_ for name, each in small.truth.items()}
    large = replace(small, labels=labels, truth=truth)
    expected = by_class(loaded, small).frame
    assert by_class(loaded, large).frame.equals(expected.assign(**{"class": expected["class"] * id_}))
    ranges = class_ranges(loaded, large, "lenet5", View.LAST)
    assert list(ranges.class_) == [0, id_]
