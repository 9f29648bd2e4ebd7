"""Runs crossed with test samples."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.crossed import crossed_mean
from analysis.stats.statistics import PROPORTION, mean


@pytest.mark.parametrize("samples", [2, 30, 268])
@pytest.mark.parametrize("runs", [5, 6, 12, 30])
@pytest.mark.parametrize("ability", [0.0, 0.1, 1.0], ids=lambda sd: f"SD {sd}")
def test_over_runs_and_samples_an_interval_is_never_narrower_than_over_runs(ability, runs, samples):
    rng = np.random.default_rng([runs, samples])
    for shift in (-1.5, 0.0, 2.0) * 10:
        score = shift + ability * rng.exponential(size=(runs, 1)) + rng.normal(size=(1, samples))
        correct = score + rng.normal(size=(runs, samples)) > 0
        of_runs, both = mean(correct.mean(axis=1), within=PROPORTION), crossed_mean(correct)
        if of_runs.low is not None:
            assert both.low <= of_runs.low
            assert both.high >= of_runs.high


def test_runs_that_are_equally_often_right_leave_what_other_samples_add():
    both = crossed_mean(np.tile(np.arange(100) < 80, (5, 1)))
    assert (both.low, both.high) == pytest.approx((0.72, 0.88), abs=0.005), "0.8 -+ 1.98 * 0.0402"


def test_nothing_varies_so_nothing_is_stated():
    assert crossed_mean(np.ones((5, 20), bool)).low is None
