from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.stats.paired import bounds, ratio, sign_flips, standardised, tost_pairs
from analysis.stats.statistics import Estimate

times = st.floats(0.1, 100)


def test_sign_flips_are_exact():
    assert sign_flips(np.array([1.0, 2, 3, 4, 5, 6])).p == 2 / 64
    assert sign_flips(np.array([1.0, 2, -3])).p == 1.0
    assert sign_flips(np.array([1e-9, 2e-9, 3e-9, 4e-9])).p == 2 / 16, "small differences are not ties"


def test_sums_that_rounding_alone_tells_apart_are_ties():
    a, b = np.array([975, 914, 963, 881, 937, 916, 942, 914, 910, 909]), [1, 2, 1, 3, -1, 1, 1, -1, 2, 0]
    assert sign_flips(a / 1000 - (a - b) / 1000).p == 96 / 1024 == sign_flips(np.array(b)).p


def test_pairs_without_a_difference_change_nothing():
    found = sign_flips(np.array([1.0, 2, 3, 4, 6, 0, 0, 0]))
    assert found.p == found.smallest_p == 2 / 2**5
    assert (found.n_a, found.delta) == (8, 5 / 8)


def test_the_smallest_p_is_that_of_differences_of_one_sign():
    for n in (20, 60):
        found = sign_flips(np.linspace(-0.02, -0.01, n))
        assert found.p == found.smallest_p == 2.0 ** (1 - n)


def test_as_many_pairs_as_are_enumerated_have_the_p_that_drawing_estimates():
    differences = np.random.default_rng(3).normal(0.3, 1, 40)
    drawn = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=9_999, rng=np.random.default_rng(1)
    )
    assert sign_flips(differences).method == "exact sign flips of pairs"
    assert sign_flips(differences).p == pytest.approx(drawn.pvalue, abs=0.01)


def test_more_pairs_are_drawn_and_near_the_paired_t_test():
    differences = np.random.default_rng(3).normal(0.4, 1, 50)
    found = sign_flips(differences)
    assert found.method == "9999 sign flips of pairs"
    assert found.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert sign_flips(differences) == found


def test_a_p_that_few_draws_cannot_resolve_is_drawn_until_it_is_small_enough_for_a_large_family():
    found = sign_flips(np.append(np.linspace(0.9, 1.1, 49), -0.1))
    assert found.p * 560 < 0.05
    assert found.method == "200000 sign flips of pairs"


def test_nothing_is_tested_without_pairs_or_differences():
    assert sign_flips(np.zeros(5)).p is None
    assert sign_flips(np.array([1.0])).p is None
    assert bounds(np.full(4, 0.5)) == (None, None)
    assert standardised(np.full(4, 0.5)).value is None
    assert tost_pairs(np.full(4, 0.5), 1.0).p is None


def test_differences_that_rounding_alone_tells_apart_have_no_variance():
    differences = np.array([0.8, 0.3]) - np.array([0.7, 0.2])
    assert differences[0] != differences[1]
    assert standardised(differences).value is None
    assert bounds(differences) == (None, None)
    assert tost_pairs(differences, 0.02).method == "all differences equal"


def test_equivalence_of_pairs_is_two_one_sided_t_tests():
    differences = np.array([0.001, -0.002, 0.003, 0.0, 0.001])
    found = tost_pairs(differences, 0.01)
    assert found.p == pytest.approx(stats.ttest_1samp(differences, 0.01, alternative="less").pvalue)
    assert found.low < differences.mean() < found.high


def test_the_interval_of_the_standardised_difference_covers():
    rng = np.random.default_rng(11)
    found = [standardised(rng.normal(0.5, 1, 12)) for _ in range(500)]
    covered = sum(each.low <= 0.5 <= each.high for each in found)
    assert 0.92 <= covered / 500 <= 0.98


@given(st.lists(st.tuples(times, times), min_size=3, max_size=12))
def test_the_ratio_of_pairs_is_that_of_a_paired_t_test_on_logarithms(pairs):
    a, b = (np.array(each) for each in zip(*pairs, strict=True))
    found = ratio(a / b)
    assert found.value == pytest.approx(stats.gmean(a / b))
    if np.std(np.log(a / b)) > 1e-8:
        interval = stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.95)
        assert (math.log(found.low), math.log(found.high)) == pytest.approx(
            (interval.low, interval.high), abs=1e-6
        )


@pytest.mark.parametrize("ratios", [[1.5], [1.5, 1.5], [1.5] * 5])
def test_few_or_equal_ratios_have_no_interval(ratios):
    assert ratio(ratios) == Estimate(value=pytest.approx(1.5), n=len(ratios))
