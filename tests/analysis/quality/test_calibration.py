"""Calibration against numbers by hand and a definition spelled out sample by sample."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.quality.calibration import BINS, bins, calibration_tables, ece
from analysis.results.model import ACROSS
from analysis.stats import statistics


def ece_of(sure, right):
    return ece(*bins(np.asarray(sure), np.asarray(right)))


def test_ece_is_the_mean_gap_of_the_bins_weighted_by_their_samples():
    # Bins of a width of 1/15: 0.62 and 0.64 are in (0.6, 0.667], 0.9 in (0.867, 0.933].
    assert ece_of([0.62, 0.64, 0.9], [True, False, True]) == pytest.approx((0.26 + 0.1) / 3)


def test_few_samples_of_calibrated_models_have_an_ece_above_0():
    rng = np.random.default_rng(3)
    sure = rng.beta(6, 1.2, (400, 1000))
    assert np.mean([ece_of(each, rng.random(1000) < each) for each in sure]) == pytest.approx(
        0.026, abs=0.001
    )


def test_who_is_always_right_and_sure_is_calibrated():
    assert ece_of(np.ones(5, np.float32), np.ones(5, bool)) == 0
    assert ece_of(np.ones(5, np.float32), np.zeros(5, bool)) == 1
    assert np.isnan(ece_of(np.full(2, np.nan, np.float32), np.ones(2, bool)))


@given(arrays(np.float32, 40, elements=st.floats(0, 1, width=32)), arrays(bool, 40))
def test_every_sample_is_in_the_bin_of_its_confidence_and_ece_is_from_the_gap_to_1(sure, right):
    bounds, scaled = np.arange(BINS + 1), sure.astype(np.float64) * BINS
    expected = [
        ((scaled > low) & (scaled <= high) | ((low == 0) & (scaled == 0))).sum()
        for low, high in pairwise(bounds)
    ]
    assert bins(sure, right)[0].tolist() == expected
    gap = abs(right.mean() - sure.mean(dtype=np.float64))
    assert gap - 1e-12 <= ece_of(sure, right) <= 1


def test_the_tables_have_every_set_and_the_bins_add_up(usual_study):
    loaded, predictions = read_predictions(load_study(usual_study.directory))
    table, diagram = calibration_tables(loaded, predictions)
    fixed = table.frame[(table.frame.variant == "fixed-seed") & (table.frame["view"] == "last")]
    assert list(fixed.scope) == ["1", "2", "4", ACROSS]
    assert (fixed.sd[fixed.scope != ACROSS] == 0).all()
    # One-hot logits of three classes: always e / (e + 2) sure; right in 4 and 4 of 4 samples.
    sure = np.e / (np.e + 2)
    assert fixed.ece.tolist()[:2] == pytest.approx([1 - sure, 1 - sure], rel=1e-5)
    counts = diagram.frame.groupby(["variant", "view", "scope"]).samples.sum()
    assert (counts["default"] == 3 * 4).all()
    assert (counts["fixed-seed"] == 4).all(), "three copies of one run are one"


def test_each_seed_counts_once_with_the_mean_of_its_models(study):
    wrong = {1: (0, 3), 2: (1, 1), 3: (2, 2), 4: (0, 2), 5: (3, 2)}  # of 4 samples, by seed
    for seed, both in wrong.items():
        for repetition, n in enumerate(both):
            name = f"{seed} {repetition}"
            predicted = (0,) * (3 - n) + (1,) * (n + 1)
            study.run(
                1, 2 * seed + repetition, seed=seed, truth=(0, 0, 0, 1), predicted=predicted, weights=name
            )
    table, _ = calibration_tables(*read_predictions(load_study(study.directory)))
    row = table.frame[table.frame["view"] == "last"].iloc[0]
    over_seeds = statistics.mean(np.array([sum(both) / 8 for both in wrong.values()]))
    assert row.n == 10
    assert row.gap_high - row.gap == pytest.approx(over_seeds.high - over_seeds.value)
