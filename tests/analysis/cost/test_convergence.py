from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.cost.convergence import convergence, overhead
from analysis.load.study import load_study
from analysis.results.model import ACROSS
from analysis.stats.statistics import ratio


def test_epochs_and_seconds_to_convergence(study):
    # the fabricated histories take one second an epoch
    study.run(1, 1, accuracies=(0.5, 0.8, 0.8), losses=(1.0,) * 3)
    study.run(1, 2, accuracies=(0.5, 0.6, 0.8), losses=(1.0,) * 3, weights="v")
    study.run(2, 1, accuracies=(0.8, 0.7, 0.7), losses=(1.0,) * 3)
    study.run(4, 1, accuracies=(0.5, 0.6, 0.8), losses=(1.0,) * 3, oversubscribed=True)
    frame = convergence(load_study(study.directory)).frame.set_index("threads")
    one = frame.loc["1"]
    assert (one.n, one.epochs, one.time_s, one.rel_diff) == (2, 2.5, 2.5, 0.5)
    assert one.rel_sd == pytest.approx(np.std([2, 3], ddof=1) / 2.5)
    assert frame.loc["4", "excluded"] == "oversubscribed"
    across = frame.loc[ACROSS]
    assert (across.n, across.time_s, across.rel_diff) == (2, 1.75, 1.5)  # of the means 2.5 and 1
    assert across.excluded == "1 excluded thread counts left out"


def test_epochs_of_copies_count_once(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, accuracies=(0.5, 0.8), weights="copies")
    study.run(1, 4, accuracies=(0.8, 0.8), weights="other")
    row = convergence(load_study(study.directory)).frame.iloc[0]
    assert (row.n, row.epochs) == (4, 1.5)


def test_a_run_without_a_finite_metric_does_not_converge(study):
    study.run(1, 1, accuracies=(float("nan"),) * 2)
    row = convergence(load_study(study.directory)).frame.iloc[0]
    assert row.n == 0
    assert pd.isna(row.time_s)


def test_the_overhead_is_a_ratio_with_an_interval(study):
    for repetition, (plain, switched) in enumerate([(10.0, 19.0), (10.5, 21.0), (9.5, 20.0)], start=1):
        study.run(1, repetition, variant="default", wall_s=plain)
        study.run(1, repetition, variant="algo", wall_s=switched)
        study.run(2, repetition, variant="default", wall_s=plain)
        study.run(2, repetition, variant="algo", wall_s=switched, accelerator="tcg")
    one, two = overhead(load_study(study.directory)).frame.itertuples()
    x, y = np.log([19.0, 21.0, 20.0]), np.log([10.0, 10.5, 9.5])
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert one.ratio == pytest.approx(np.exp(x.mean() - y.mean()))
    assert (one.low, one.high) == (pytest.approx(np.exp(expected.low)), pytest.approx(np.exp(expected.high)))
    assert (one.n_a, one.n_b, one.conclusion) == (3, 3, "slower")
    assert two.conclusion == "none: emulated"


def test_the_overhead_needs_both_variants_and_repetitions(study):
    study.run(1, 1, variant="control", wall_s=10.0)
    assert overhead(load_study(study.directory)).frame.empty
    study.run(1, 1, wall_s=8.0)
    (row,) = overhead(load_study(study.directory)).frame.itertuples()
    assert row.ratio == pytest.approx(1.25)
    assert row.conclusion.startswith("inconclusive")


def test_the_interval_of_the_ratio_covers_as_often_as_it_says():
    rng = np.random.default_rng(41)
    found = [ratio(2 * rng.lognormal(0, 0.1, 6), rng.lognormal(0, 0.1, 9)) for _ in range(600)]
    assert 0.93 < np.mean([low <= 2 <= high for _, low, high in found]) < 0.975
    assert ratio(np.array([0.0, 1.0]), np.array([1.0])) == (None, None, None)


def test_overheads_are_ratios_within_blocks_where_these_are_recorded(study):
    for block, wall_s in enumerate((10.0, 20.0, 40.0, 80.0), 1):
        study.run(1, block, variant="default", wall_s=wall_s, block=block)
        study.run(1, block, variant="algo", wall_s=wall_s * (1.1 + 0.01 * (block % 2)), block=block)
    row = overhead(load_study(study.directory)).frame.iloc[0]
    assert row.blocks == 4
    assert 1.09 < row.low < row.ratio < row.high < 1.12
    assert row.conclusion == "slower"
