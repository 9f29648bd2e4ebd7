"""Power against Cohen's published tables and against simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from analysis.stats.paired import sign_flips
from analysis.stats.power import Test, detectable, power, runs_for, sd_bounds
from analysis.stats.ranks import brunner_munzel
from analysis.stats.statistics import runs_needed, welch


@pytest.mark.parametrize(("effect", "runs"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_welch_needs_the_runs_of_cohens_table(effect, runs):
    # Cohen, A power primer, 1992, table 2 (alpha .05, power .80, two means); exactly 393.4 for 0.2.
    assert runs_for(effect, 1.0, 1, Test.WELCH) == pytest.approx(runs, abs=1)
    assert detectable(runs, 1.0, 1, Test.WELCH) == pytest.approx(effect, rel=0.03)


def test_the_rank_test_needs_pi_thirds_of_the_runs():
    assert runs_for(0.5, 1.0, 1, Test.RANKS) == 67  # 63.77 * pi / 3 = 66.78


def test_a_difference_is_scaled_by_the_sd():
    assert runs_for(0.005, 0.01, 1, Test.WELCH) == 64
    assert detectable(64, 0.01, 1, Test.WELCH) == pytest.approx(0.005, rel=0.01)


@pytest.mark.parametrize("tests", [1, 3, 6])
def test_too_few_runs_show_nothing_by_ranks_however_large_the_difference(tests):
    enough = runs_needed(tests)
    assert detectable(enough - 1, 1.0, tests) is None
    found = detectable(enough, 1.0, tests)
    assert found is not None
    assert found > 0
    assert runs_for(1000.0, 1.0, tests) == enough


@pytest.mark.parametrize("n", [2, 3, 5, 30, 1000])
@pytest.mark.parametrize("tests", [1, 6, 60])
def test_power_is_a_probability_and_grows_with_the_difference(n, tests):
    values = [power(n, effect, tests, Test.WELCH) for effect in (0.01, 0.1, 1, 5, 20, 100, 500, 1000)]
    assert all(0 <= value <= 1 for value in values)
    assert all(b >= a - 0.005 for a, b in pairwise(values))


def test_the_interval_of_a_normal_sd_is_that_of_chi_square():
    # Tables of chi-square, 9 degrees of freedom: 2.700 and 19.023 at 2.5 and 97.5 %.
    assert sd_bounds(1.0, 9) == pytest.approx((math.sqrt(9 / 19.023), math.sqrt(9 / 2.700)), rel=1e-3)


@pytest.mark.parametrize(("difference", "sd"), [(0.0, 1.0), (0.01, 0.0)])
def test_without_a_difference_or_an_sd_nothing_can_be_planned(difference, sd):
    with pytest.raises(ValueError, match="larger than 0"):
        runs_for(difference, sd, 1)


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("n", [5, 10, 30])
@pytest.mark.parametrize(("test", "tests"), [(Test.RANKS, 1), (Test.RANKS, 3), (Test.WELCH, 3)])
def test_simulated_studies_have_the_estimated_power(n, test, tests):
    difference = detectable(n, 1.0, tests, test)
    generator = np.random.default_rng(7)
    a, b = generator.normal(size=(600, n)), generator.normal(difference, size=(600, n))
    one = brunner_munzel if test is Test.RANKS else welch
    found = [one(x, y) for x, y in zip(a, b, strict=True)]
    p = np.array(found if test is Test.WELCH else [each.p for each in found])
    assert np.mean(p < 0.05 / tests) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("n", "tests"), [(6, 1), (7, 3), (9, 3)])
def test_simulated_pairs_have_the_estimated_power(n, tests):
    difference = detectable(n, 1.0, tests, Test.SIGN_FLIPS)
    pairs = np.random.default_rng(7).normal(difference, size=(400, n))
    assert np.mean([sign_flips(each).p < 0.05 / tests for each in pairs]) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("test", [Test.RANKS, Test.SIGN_FLIPS])
def test_a_difference_can_be_shown_in_a_large_family_too(test):
    assert detectable(20, 1.0, 560, test) == pytest.approx(detectable(20, 1.0, 250, test), rel=0.15)


def test_many_pairs_show_by_sign_flips_what_they_show_by_students_t():
    by_t, by_flips = (power(30, 0.53, 1, test) for test in (Test.PAIRED_T, Test.SIGN_FLIPS))
    assert by_flips == pytest.approx(by_t, abs=0.03)
    assert power(5, 1000.0, 1, Test.SIGN_FLIPS) == 0
    assert power(6, 1000.0, 1, Test.SIGN_FLIPS) == 1
