from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.stats.groups import brown_forsythe, kruskal_wallis

RNG = np.random.default_rng(11)
LARGE = [RNG.normal(i / 10, 1 + i, 12) for i in range(3)]


def test_large_sets_get_scipys_tests():
    h, w = kruskal_wallis(LARGE), brown_forsythe(LARGE)
    assert (h.statistic, h.p) == tuple(map(float, stats.kruskal(*LARGE)))
    apart = [np.sort(np.abs(group - np.median(group))) for group in LARGE]
    turned = [np.r_[np.sqrt(2) * each[1], each[2:]] for each in apart]  # of two equal ones, one is left
    assert (w.statistic, w.p) == pytest.approx(tuple(map(float, stats.f_oneway(*turned))))
    assert h.sizes == w.sizes == (12, 12, 12)


def test_complete_separation_of_small_sets_has_the_p_of_its_arrangements():
    # 6! / (2! 2! 2!) = 90 arrangements, of which 3! = 6 separate completely
    found = kruskal_wallis([np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])])
    assert found.p == pytest.approx(6 / 90)
    assert found.method == "exact permutation"


def test_ties_are_counted_by_permutation():
    # ranks 1.5 1.5 4 | 4 4 6: of the 20 arrangements, count those whose rank sums lie at least as far apart
    from itertools import combinations

    ranks = np.array([1.5, 1.5, 4, 4, 4, 6])
    sums = [sum(ranks[list(chosen)]) for chosen in combinations(range(6), 3)]
    expected = np.mean([abs(s - 10.5) >= abs(7 - 10.5) for s in sums])
    assert kruskal_wallis([np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, 2.0])]).p == pytest.approx(expected)


@pytest.mark.parametrize("test", [kruskal_wallis, brown_forsythe])
def test_constant_sets_are_said_to_be_constant(test):
    found = test([np.full(5, 0.1), np.full(5, 0.2)])
    assert found.p is None
    assert "constant" in found.method
    assert test([np.array([1.0]), np.arange(4.0)]).p is None
    assert test([np.arange(4.0)]).method == "one condition only"


def test_one_constant_set_among_others_is_tested():
    found = brown_forsythe([np.full(6, 1.0), np.array([0.0, 3.0, 1.0, 7.0, -5.0, -9.0])])
    assert found.p is not None
    assert found.p < 0.05


def test_distances_that_do_not_vary_are_not_divided_by():
    assert brown_forsythe([np.array([1.0, 2.0, 1.0, 2.0]), np.array([5.0, 8.0, 5.0, 8.0])]).p is None


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("test", [kruskal_wallis, brown_forsythe])
def test_few_equal_sets_are_called_unlike_about_as_rarely_as_alpha_says(test):
    rng = np.random.default_rng(5)
    p = [test(list(rng.normal(size=(3, 4)))).p for _ in range(120)]
    assert np.mean(np.array(p) < 0.05) < 0.1


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(-4, 4).map(float), min_size=3, max_size=5), min_size=2, max_size=3),
    st.randoms(use_true_random=False),
)
def test_p_is_a_probability_and_the_order_of_sets_and_runs_does_not_matter(groups, random):
    arrays = [np.array(group) for group in groups]
    shuffled = [np.array(random.sample(group, len(group))) for group in reversed(groups)]
    for test in (kruskal_wallis, brown_forsythe):
        one, other = test(arrays), test(shuffled)
        assert (one.p is None) == (other.p is None)
        assert one.p is None or 0 < one.p <= 1
        if one.method == "exact permutation":
            assert one.p == pytest.approx(other.p)


def test_the_same_seed_gives_the_same_p():
    groups = [RNG.normal(size=8) for _ in range(3)]
    found = kruskal_wallis(groups)
    assert found.method == "9999 permutations"
    assert found == kruskal_wallis(groups)
