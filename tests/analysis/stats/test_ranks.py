"""The rank test: against scipy's statistic, against enumeration by hand, and its level by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.stats import ranks
from analysis.stats.ranks import brunner_munzel, critical_value, statistics_of

RNG = np.random.default_rng(5)
VALUES = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=7)


def test_the_statistic_is_scipys():
    a, b = RNG.normal(size=(1, 12)), RNG.normal(0.3, 2, size=(1, 15))
    expected = stats.brunnermunzel(a[0], b[0]).statistic
    assert abs(statistics_of(a, b)[0]) == pytest.approx(abs(expected))


def test_large_sets_get_scipys_t_approximation():
    a, b = RNG.normal(size=60), RNG.normal(0.3, 2, size=55)
    found = brunner_munzel(a, b)
    assert found.p == pytest.approx(stats.brunnermunzel(a, b).pvalue)
    assert found.method == "t approximation"


def test_a_small_set_beside_a_large_one_is_called_unlike_as_rarely_as_the_level_says():
    values = np.random.default_rng(6).normal(size=(150, 101))
    assert np.mean([brunner_munzel(each[:2], each[2:]).p < 0.05 for each in values]) < 0.08
    assert np.mean(stats.brunnermunzel(values[:, :2], values[:, 2:], axis=1).pvalue < 0.05) > 0.1, "by t"


@pytest.mark.parametrize(
    ("n", "method"), [(2, "exact permutation"), (9, "9999 permutations"), (10, "t approximation")]
)
def test_the_t_approximation_is_for_sets_that_are_both_large(n, method):
    a, b = RNG.normal(size=n), RNG.normal(size=101 - n)
    assert brunner_munzel(a, b).method == brunner_munzel(b, a).method == method


def test_complete_separation_has_two_of_all_arrangements():
    found = brunner_munzel([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert found.p == found.smallest_p == pytest.approx(2 / 20)
    assert (found.u, found.delta, found.method) == (0.0, -1.0, "exact permutation")
    many = brunner_munzel(np.arange(30.0), 100.0 + np.arange(30))
    assert many.p == pytest.approx(2 / math.comb(60, 30))


def test_nearly_separate_sets_reach_a_p_that_is_small_enough_for_a_large_family():
    a, b = np.arange(20.0), np.append(100.0 + np.arange(19), 0.5)
    found = brunner_munzel(a, b)
    assert found.p * 560 < 0.05
    assert found.method == "250000 permutations"
    assert math.isfinite(critical_value(20, 20, 0.05 / 560))


def test_a_large_set_is_drawn_in_blocks_that_change_nothing(monkeypatch):
    a, b = RNG.normal(size=9), RNG.normal(size=91)
    found = brunner_munzel(a, b)
    monkeypatch.setattr(ranks, "BLOCK", 777)
    ranks._null.cache_clear()
    assert brunner_munzel(a, b) == found


def test_ties_that_no_arrangement_can_separate_raise_the_smallest_p():
    # 1 2 | 2 3: of the six arrangements none separates; {1, 2} against {2, 3} and its mirror, twice each
    # for the two equal values, are the most extreme.
    found = brunner_munzel([1.0, 2.0], [2.0, 3.0])
    assert found.p == found.smallest_p == pytest.approx(4 / 6)


@given(VALUES, VALUES)
def test_it_is_symmetric_and_its_p_is_a_probability_above_the_smallest(a, b):
    there, back = brunner_munzel(a, b), brunner_munzel(b, a)
    assert (there.p is None) == (back.p is None)
    if there.p is not None:
        assert there.p == pytest.approx(back.p)
        assert 0 < there.smallest_p <= there.p <= 1
    assert there.delta == pytest.approx(-back.delta)


@pytest.mark.parametrize(
    ("a", "b", "method"),
    [
        ([0.5] * 3, [0.5] * 3, "both conditions constant, equal"),
        ([0.5] * 3, [0.6] * 3, "both conditions constant, unequal"),
        ([0.5], [0.6, 0.7], "fewer than two observations in a condition"),
        ([], [0.6, 0.7], "fewer than two observations in a condition"),
        ([math.nan, 0.5], [0.6, 0.7], "fewer than two observations in a condition"),
    ],
)
def test_what_cannot_be_tested_has_no_p(a, b, method):
    found = brunner_munzel(a, b)
    assert found.p is None
    assert found.method == method


@pytest.mark.parametrize("n", [5, 10, 30])
def test_the_critical_value_is_where_p_reaches_the_level(n):
    a, b = RNG.normal(size=(40, n)), RNG.normal(0.8, 1, size=(40, n))
    for x, y, t in zip(a, b, statistics_of(a, b), strict=True):
        assert (brunner_munzel(x, y).p <= 0.05) == (abs(t) >= critical_value(n, n, 0.05) - 1e-9)


def test_sets_of_unequal_spread_are_called_unlike_as_rarely_as_the_level_says_where_mann_whitneys_are_not():
    n, turns = 20, 1500
    a, b = RNG.normal(size=(turns, n)), RNG.normal(0, 6, size=(turns, n))
    rejected = np.mean(np.abs(statistics_of(a, b)) >= critical_value(n, n, 0.05))
    assert rejected < 0.07
    assert np.mean(stats.mannwhitneyu(a, b, axis=1).pvalue < 0.05) > 0.075


def test_many_tests_of_one_pattern_draw_the_same_arrangements():
    values = RNG.normal(size=24)
    assert brunner_munzel(values[:12], values[12:]) == brunner_munzel(2 * values[:12], 2 * values[12:])
