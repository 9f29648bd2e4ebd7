"""The intervals of means over pairs and of shares: known answers, and coverage by
simulation."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.results.model import ACROSS
from analysis.sameness.churn import churn
from analysis.stats import metrics, statistics


def test_runs_against_others_add_up_to_the_matrix():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, (5, 30)), rng.integers(0, 4, (3, 30))
    matrix = metrics.churn_matrix(np.concatenate([a, b]))
    counts = metrics.class_counts(b, 4)
    assert metrics.churn_against(a, counts, 3) == pytest.approx(matrix[:5, 5:].mean(axis=1))
    own = metrics.class_counts(a, 4)
    assert metrics.churn_against(a, own, 5) == pytest.approx(matrix[:5, :5].mean(axis=1))


def test_the_interval_of_a_mean_over_pairs_covers_it():
    # Runs err on samples of two classes, each with a rate of its own; two runs with independent errors
    # differ on 2 r (1 - r) of them on average, r being the mean rate.
    rng = np.random.default_rng(7)
    low, high, n, hits = 0.05, 0.35, 12, 0
    rate = (low + high) / 2
    for _ in range(300):
        runs = (rng.random((n, 400)) < rng.uniform(low, high, (n, 1))).astype(int)
        sums = n * metrics.churn_against(runs, metrics.class_counts(runs, 2), n)
        pairs = n * (n - 1) // 2
        found = statistics.mean_of_pairs(float(sums.sum()) / 2 / pairs, [sums / pairs])
        hits += found.low <= 2 * rate * (1 - rate) <= found.high
    assert 0.91 <= hits / 300 <= 0.99


def test_pairs_of_two_sets_have_the_error_of_both():
    a, b = np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.2])
    found = statistics.mean_of_pairs(0.2, [a, b])
    assert found.high - 0.2 == pytest.approx(4.302652729911275 * (3 * a.var(ddof=1)) ** 0.5)  # t with 2
    assert statistics.mean_of_pairs(0.2, [a, b[:1]]).low is None
    tiny = statistics.mean_of_pairs(0.2e-90, [a * 1e-90, b * 1e-90])
    assert (tiny.low, tiny.high) == pytest.approx((found.low * 1e-90, found.high * 1e-90), rel=1e-9, abs=0)


def test_churn_of_copies_is_exact_and_of_others_has_an_interval(study):
    study.usual(runs=4)
    loaded, predictions = read_predictions(load_study(study.directory))
    frame = churn(loaded, predictions).frame
    fixed = frame[(frame.variant == "fixed-seed") & (frame["view"] == "last")].set_index("scope")
    assert (fixed.loc[["1", "1 | 4"], "low"] == fixed.loc[["1", "1 | 4"], "churn"]).all()
    free = frame[(frame.variant == "default") & (frame["view"] == "last")].set_index("scope")
    assert free.low[ACROSS] < free.churn[ACROSS] < free.high[ACROSS]
    assert free.agreement_low[ACROSS] <= free.agreement[ACROSS] <= free.agreement_high[ACROSS]


def test_a_share_has_wilsons_interval():
    found = statistics.share(0, 10)  # by hand: z^2 / (n + z^2)
    assert (found.low, found.high) == pytest.approx((0.0, 3.841458820694124 / 13.841458820694124))
    assert statistics.share(0, 0).value is None


@pytest.mark.parametrize("method", ["wilson", "beta"])
def test_an_interval_of_none_begins_and_of_all_ends_exactly_there(method):
    for n in (*range(1, 200), 0.75):
        assert statistics.share(0, n, method=method).low == 0
        assert statistics.share(n, n, method=method).high == 1


def test_equal_clusters_leave_no_error_of_a_ratio():
    assert statistics.ratio_of_sums([1, 2], [2, 4]) == (0.5, 0.5)
    assert statistics.ratio_of_sums([1], [2]) == (None, None)
    low, high = statistics.ratio_of_sums([0, 2, 1, 3], [4, 4, 4, 4])
    t, sd = 3.182446305284263, np.std([0, 0.5, 0.25, 0.75], ddof=1)
    assert (low, high) == pytest.approx((max(0, 0.375 - t * sd / 2), 0.375 + t * sd / 2))
