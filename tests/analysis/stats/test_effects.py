from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind

from analysis.stats.effects import cliffs, hedges_g, tost
from analysis.stats.paired import standardised

values = st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=8).map(np.array)


def covers(effect, truth):
    return effect.low <= truth <= effect.high


def test_hedges_g_by_hand():
    found = hedges_g(np.array([1.0, 2.0, 3.0]), np.array([4.0, 6.0, 8.0]))
    d = (2 - 6) / math.sqrt((1 + 4) / 2)
    # four degrees of freedom: gamma(2) / (sqrt(2) gamma(1.5))
    assert found.value == pytest.approx(d / (math.sqrt(2) * math.sqrt(math.pi) / 2))
    # the bounds put the observed t at the 2.5 % and 97.5 % points of the noncentral t
    to_t = math.sqrt(9 / 6)
    tails = [stats.nct.cdf(d * to_t, 4, bound * to_t) for bound in (found.low, found.high)]
    assert tails == pytest.approx([0.975, 0.025], abs=1e-6)


def test_a_difference_of_a_billion_sds_has_an_interval_at_once():
    a = np.array([1.0, 1.0 + 1e-9])
    found = hedges_g(a, a - 1)
    assert found.value is not None
    assert found.low < found.high


def test_the_interval_of_d_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = [covers(hedges_g(rng.normal(1, 1, 6), rng.normal(0, 1, 6)), 1.0) for _ in range(800)]
    assert 0.93 < np.mean(hits) < 0.97


def test_the_interval_of_cliffs_delta_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    truth = 2 * stats.norm.cdf(0.5 / math.sqrt(2)) - 1
    hits = [covers(cliffs(rng.normal(0.5, 1, 15), rng.normal(0, 1, 15)), truth) for _ in range(800)]
    assert 0.92 < np.mean(hits) < 0.98


def test_cliffs_delta_by_hand():
    found = cliffs(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0]))
    # pairs: 1<2 1<4 2=2 2<4 3>2 3<4: (1 - 4) / 6
    assert found.value == pytest.approx(-0.5)
    apart = cliffs(np.arange(5.0), np.arange(5.0) + 10)
    z2 = stats.t.ppf(0.975, 8) ** 2
    assert (apart.value, apart.low) == (-1, -1)
    assert apart.high == pytest.approx((z2 - 5) / (5 + z2))


@given(values, values)
def test_effects_change_sign_with_the_order_of_sets_and_hold_their_value(a, b):
    for effect in (cliffs, hedges_g):
        one, other = effect(a, b), effect(b, a)
        assert (one.value is None) == (other.value is None)
        if one.value is not None:
            assert one.value == pytest.approx(-other.value)
        if one.low is not None:
            assert one.low - 1e-9 <= one.value <= one.high + 1e-9
            assert one.low == pytest.approx(-other.high, abs=1e-6)
    delta = cliffs(a, b)
    assert -1 <= delta.value <= 1


def test_no_variance_has_no_effect_size_in_sds():
    found = hedges_g(np.full(4, 0.1), np.full(4, 0.3))
    assert (found.value, found.note) == (None, "no variance in either condition, unequal")
    assert hedges_g(np.full(4, 0.1), np.full(4, 0.1)).note.endswith("equal")
    assert hedges_g(np.array([1.0]), np.full(4, 0.3)).value is None
    assert hedges_g(np.array([0.1, 0.1, 0.2]), np.full(4, 1e9)).low is not None


def test_values_whose_variance_underflows_have_no_effect_size():
    tiny = np.array([1.0, 2.0, 4.0]) * 1e-300
    found = hedges_g(tiny, 2 * tiny), standardised(tiny)
    assert {(each.value, each.note) for each in found} == {(None, "variance too small to divide by")}


def test_equivalence_is_statsmodels():
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.9, 0.002, 10), rng.normal(0.901, 0.004, 12)
    found = tost(a, b, 0.01)
    assert found.p == pytest.approx(ttost_ind(a, b, -0.01, 0.01, usevar="unequal")[0])
    assert found.p < 0.05
    assert -0.01 < found.low < a.mean() - b.mean() < found.high < 0.01
    assert tost(a, b + 0.02, 0.01).p > 0.95


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_lies_within_the_margin_exactly_when_the_test_says_equivalent(confidence):
    rng = np.random.default_rng(12)
    for shift in np.linspace(0, 0.02, 30):
        found = tost(rng.normal(0, 0.01, 9), rng.normal(shift, 0.01, 9), 0.01, confidence)
        assert (found.p < 1 - confidence) == (found.low > -0.01 and found.high < 0.01)


def test_sets_at_the_margin_are_called_equivalent_no_more_often_than_alpha_says():
    rng = np.random.default_rng(13)
    p = [tost(rng.normal(0, 0.01, 12), rng.normal(0.01, 0.01, 12), 0.01).p for _ in range(500)]
    assert np.mean(np.array(p) < 0.05) < 0.08


def test_constant_sets_are_compared_and_not_tested():
    found = tost(np.full(3, 0.5), np.full(4, 0.75), 0.01)
    assert (found.p, found.method) == (None, "both conditions constant, unequal")
    assert tost(np.array([0.5]), np.full(4, 0.75), 0.01).p is None
    with pytest.raises(ValueError, match="above 0"):
        tost(np.arange(3.0), np.arange(3.0), 0.0)
