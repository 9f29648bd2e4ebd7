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


def test_ece_by_hand():
    # Two bins: 0.9 sure and right twice of four; 0.5 sure and right in both cases.
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.5, 0.5], np.float32)
    right = np.array([True, True, False, False, True, True])
    assert ece(sure, right) == pytest.approx((4 * 0.4 + 2 * 0.5) / 6, rel=1e-6)


def test_who_is_always_right_and_sure_is_calibrated():
    assert ece(np.ones(5, np.float32), np.ones(5, bool)) == 0
    assert ece(np.ones(5, np.float32), np.zeros(5, bool)) == 1
    assert np.isnan(ece(np.full(2, np.nan, np.float32), np.ones(2, bool)))


@given(arrays(np.float32, 40, elements=st.floats(0, 1, width=32)), arrays(bool, 40))
def test_ece_is_its_definition(sure, right):
    expected, bounds = 0.0, np.arange(BINS + 1)
    for low, high in pairwise(bounds):
        scaled = sure.astype(np.float64) * BINS
        mine = (scaled > low) & (scaled <= high) | ((low == 0) & (scaled == 0))
        if mine.any():
            expected += mine.mean() * abs(right[mine].mean() - sure[mine].mean(dtype=np.float64))
    assert ece(sure, right) == pytest.approx(expected, abs=1e-6)
    assert 0 <= ece(sure, right) <= 1
    assert bins(sure, right)[0].sum() == 40


def test_the_tables_have_every_set_and_the_bins_add_up(study):
    study.usual()
    loaded, predictions = read_predictions(load_study(study.directory))
    table, diagram = calibration_tables(loaded, predictions)
    fixed = table.frame[(table.frame.variant == "fixed-seed") & (table.frame["view"] == "last")]
    assert list(fixed.scope) == ["1", "2", "4", ACROSS]
    assert (fixed.sd[fixed.scope != ACROSS] == 0).all()
    # One-hot logits of three classes: always e / (e + 2) sure; right in 4, 4 and 3 of 4 samples.
    sure = np.e / (np.e + 2)
    assert fixed.ece.tolist()[:3] == pytest.approx([1 - sure, 1 - sure, 0.75 - sure], rel=1e-5)
    counts = diagram.frame.groupby(["variant", "view", "scope"]).samples.sum()
    assert (counts == 3 * 4).all()
