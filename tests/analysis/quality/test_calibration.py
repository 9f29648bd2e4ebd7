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


def cross_fitted(sure, right, splits=4000):
    """The definition: signs of the bins from one half of their samples, sizes from the other."""
    rng, apart = np.random.default_rng(1), right - sure
    at = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    found = np.zeros(splits)
    for mine in (apart[at == i] for i in np.unique(at)):
        half = rng.random((splits, len(mine))) < 0.5
        found += np.sign((half * mine).sum(axis=1)) * 2 * (~half * mine).sum(axis=1)
    return found.mean() / len(sure)


def test_ece_is_cross_fitted_over_all_splits_of_the_bins():
    rng = np.random.default_rng(2)
    sure = rng.uniform(0.2, 1, 900)
    for lie in (0.0, 0.03, 0.2):
        right = rng.random(900) < sure - lie
        assert ece(sure, right) == pytest.approx(cross_fitted(sure, right), abs=0.004)


def test_ece_of_calibrated_models_is_0_on_average_and_of_others_what_it_is():
    rng = np.random.default_rng(3)
    sure = rng.beta(6, 1.2, (400, 1000))
    calibrated = [ece(each, rng.random(1000) < each) for each in sure]
    assert abs(np.mean(calibrated)) < 0.002  # the plain estimate: 0.026
    others = [ece(each, rng.random(1000) < each - 0.1) for each in sure]
    assert np.mean(others) == pytest.approx(0.1, abs=0.015)


def test_who_is_always_right_and_sure_is_calibrated():
    assert ece(np.ones(5, np.float32), np.ones(5, bool)) == 0
    assert ece(np.ones(5, np.float32), np.zeros(5, bool)) == 1
    assert np.isnan(ece(np.full(2, np.nan, np.float32), np.ones(2, bool)))


@given(arrays(np.float32, 40, elements=st.floats(0, 1, width=32)), arrays(bool, 40))
def test_every_sample_is_in_the_bin_of_its_confidence_and_ece_is_at_most_1(sure, right):
    bounds, scaled = np.arange(BINS + 1), sure.astype(np.float64) * BINS
    expected = [
        ((scaled > low) & (scaled <= high) | ((low == 0) & (scaled == 0))).sum()
        for low, high in pairwise(bounds)
    ]
    assert bins(sure, right)[0].tolist() == expected
    assert -1 <= ece(sure, right) <= 1


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
