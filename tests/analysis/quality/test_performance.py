"""Test performance, with the SD ratio of crossed designs."""

from __future__ import annotations

import pytest

from analysis.inference.seeds import seeds
from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.quality.performance import performance


def test_crossed_designs_have_the_sd_ratio_beside_the_means(study):
    for seed in range(1, 6):
        for cpus in (1, 2):
            accuracy = 0.5 + 0.02 * seed + 0.001 * cpus * (seed % 3)
            study.run(cpus, seed, seed=seed, accuracies=(0.5, accuracy), weights=f"{seed}{cpus}")
    loaded = load_study(study.directory)
    ratios = seeds(loaded).frame.query("view == 'last'").iloc[0]
    table = performance(loaded, None, seeds(loaded).frame.to_dict("records"))
    last = table.frame.query("view == 'last'")
    assert (last.ratio == ratios.ratio).all()
    assert (last.ratio_high == ratios.ratio_high).all()
    assert "SD threads / seeds" in [column.header for column in table.columns]


def test_without_several_seeds_there_is_no_such_column(usual_study):
    loaded = load_study(usual_study.directory)
    table = performance(loaded, None, seeds(loaded).frame.to_dict("records"))
    assert "SD threads / seeds" not in [column.header for column in table.columns]
    assert "failure_rate" in table.frame, "in the CSV"


@pytest.mark.parametrize(("reported", "expected"), [(0.75, 0.75), (75.0, 75.0), (0.4, None)])
def test_the_mean_for_other_samples_is_in_the_unit_of_the_reported_accuracy(study, reported, expected):
    truth = (0, 1) * 8
    for repetition in range(1, 6):
        predicted = [1 - y if i % 4 == repetition % 4 else y for i, y in enumerate(truth)]
        study.run(
            1,
            repetition,
            truth=truth,
            predicted=predicted,
            accuracies=(reported,) * 2,
            weights=f"{repetition}",
        )
    row = performance(*read_predictions(load_study(study.directory))).frame.iloc[0]
    if expected is None:
        assert row[["other", "other_low", "other_high"]].isna().all()
    else:
        assert row.other == pytest.approx(expected)
        assert 0.4 * expected < row.other_low < expected < row.other_high < 1.4 * expected
