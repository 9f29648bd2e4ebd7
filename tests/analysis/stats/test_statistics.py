from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.stats import statistics

values = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=8)


def test_the_interval_of_an_sd_is_bonetts():
    # By hand for 1..10: kurtosis 10 * 1208.625 / 82.5^2 = 1.7758, c = 10 / (10 - 1.96)
    found = statistics.sd(np.arange(1.0, 11.0))
    small = 10 / (10 - 1.959964)
    half = 1.959964 * small * math.sqrt((10 * 1208.625 / 82.5**2 - 0.7) / 9)
    bounds = [math.sqrt(small * 82.5 / 9 * math.exp(sign * half)) for sign in (-1, 1)]
    assert (found.low, found.high) == pytest.approx(bounds, rel=1e-5)
    assert found.value == pytest.approx(math.sqrt(82.5 / 9))


def test_few_values_have_no_interval():
    few = np.array([1.0, 2.0, 4.0, 8.0])
    assert len(few) < statistics.MEAN_FROM
    assert statistics.mean(few).low is None
    ten = np.r_[few, few + 1, 3.0]
    assert len(ten) < statistics.SD_FROM
    assert statistics.sd(ten).low is None
    assert statistics.mean(ten).low is not None


def test_an_interval_of_a_mean_needs_runs_and_not_that_their_values_are_distinct():
    assert statistics.mean([0.5] * (statistics.MEAN_FROM - 1) + [0.75]).low is not None
    assert statistics.mean([0.5] * statistics.MEAN_FROM).low is None
    note = f"a mean needs {statistics.MEAN_FROM} runs that are no copies"
    assert note in statistics.INTERVALS_NOTE
    assert statistics.INTERVALS_NOTE.endswith("and not all of one value.")


def test_the_interval_of_a_mean_is_students_without_skewness_and_leans_to_the_long_tail_with_it():
    even = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    found = statistics.mean(even)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 4, loc=0, scale=stats.sem(even)))
    skewed = np.array([0.0, 0.1, 0.2, 0.4, 0.9, 3.0])
    low, high = stats.t.interval(0.95, 5, loc=skewed.mean(), scale=stats.sem(skewed))
    leaning = statistics.mean(skewed)
    assert leaning.low > low
    assert leaning.high > high


def test_the_cubic_is_undone():
    for third, u in ((0.4, 0.3), (-0.7, 0.2), (0.2, -0.5)):
        x = statistics._inverse(u, third, 12)
        assert x + third * x**2 + third**2 * x**3 / 3 + third / 24 == pytest.approx(u)


def test_the_interval_of_a_proportion_is_cut_to_what_it_can_be():
    values = [0.99, 1.0, 1.0, 0.95, 1.0]
    assert statistics.mean(values).high > 1
    assert statistics.mean(values, within=statistics.PROPORTION).high == 1
    percents = statistics.mean([100 * value for value in values], within=statistics.PROPORTION)
    assert percents.high > 100, "a project's numbers are not cut where they cannot be proportions"


def test_equal_values_are_no_evidence_of_no_variance():
    assert statistics.sd([0.1] * 12) == statistics.Estimate(value=0.0, n=12)
    assert statistics.mean([0.1] * 12) == statistics.Estimate(value=0.1, n=12)
    exact = statistics.exactly(0.1, 12)
    assert (exact.value, exact.low, exact.high, exact.n) == (0.1, 0.1, 0.1, 12)


def test_few_or_no_finite_values_give_no_interval():
    assert statistics.sd([1.0]).value is None
    assert statistics.mean([1.0]).low is None
    assert statistics.mean([math.nan, math.inf]).value is None
    assert statistics.mean([1.0, math.nan, 3.0]).n == 2


@given(values, values)
def test_cliffs_delta_counts_pairs(a, b):
    expected = np.mean([np.sign(x - y) for x in a for y in b])
    assert statistics.cliffs_delta(np.array(a), np.array(b)) == pytest.approx(expected, abs=1e-12)


def test_runs_needed():
    assert statistics.runs_needed(1) == 4  # 2/70 = 0.029
    assert statistics.runs_needed(6) == 5  # 6 * 2/252 = 0.048


def test_holm_is_statsmodels_over_what_was_tested():
    p = [0.01, None, 0.04, 0.03]
    expected = multipletests([0.01, 0.04, 0.03], method="holm")[1]
    assert statistics.holm(p) == [expected[0], None, expected[1], expected[2]]
    assert statistics.holm([None, None]) == [None, None]
    assert statistics.holm([]) == []


def test_welch_is_scipys_and_knows_what_it_cannot():
    a, b = [1.0, 2.0, 3.0], [4.0, 6.0, 5.5]
    assert statistics.welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert statistics.welch([1.0], b) is None
    assert statistics.welch([1.0, 1.0], [2.0, 2.0]) is None


@pytest.mark.parametrize(
    ("sets", "sd"), [([], None), ([[0.5]], None), ([[0.5, math.nan]], None), ([[0.3, 0.3, 0.3]], 0.0)]
)
def test_the_pooled_sd_is_unknown_without_two_finite_values_and_exactly_0_without_variance(sets, sd):
    assert statistics.pooled_sd(sets)[0] == sd
