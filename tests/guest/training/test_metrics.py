from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, f1_score, log_loss

from guest.records.run import Metric
from guest.training import metrics

TRUE = np.array([0, 0, 1, 1, 2, 2])
PREDICTED = np.array([0, 1, 1, 1, 2, 0])

labels = st.integers(1, 60).flatmap(
    lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(0, 4)) for _ in range(2)])
)


def test_known_answers() -> None:
    assert metrics.accuracy(TRUE, PREDICTED) == 4 / 6
    assert metrics.f1_micro(TRUE, PREDICTED) == 4 / 6
    assert metrics.f1_macro(TRUE, PREDICTED) == pytest.approx((1 / 2 + 4 / 5 + 2 / 3) / 3)
    assert metrics.f1_binary(np.array([0, 1, 1, 1]), np.array([1, 1, 1, 0])) == pytest.approx(2 / 3)


@given(labels)
def test_every_metric_agrees_with_scikit_learn(pair: tuple[np.ndarray, np.ndarray]) -> None:
    y_true, y_pred = pair
    assert metrics.accuracy(y_true, y_pred) == pytest.approx(accuracy_score(y_true, y_pred))
    for average, ours in (("macro", metrics.f1_macro), ("micro", metrics.f1_micro)):
        expected = f1_score(y_true, y_pred, average=average, zero_division=0)
        assert ours(y_true, y_pred) == pytest.approx(expected)
    two_true, two_pred = y_true % 2, y_pred % 2
    expected = f1_score(two_true, two_pred, average="binary", zero_division=0)
    assert metrics.f1_binary(two_true, two_pred) == pytest.approx(expected)


@given(labels)
def test_the_order_of_the_samples_changes_no_bit(pair: tuple[np.ndarray, np.ndarray]) -> None:
    y_true, y_pred = pair
    order = np.random.default_rng(len(y_true)).permutation(len(y_true))
    logits = np.random.default_rng(0).normal(0, 5, (len(y_true), 5)).astype(np.float32)
    for metric in (Metric.ACCURACY, Metric.F1_MACRO, Metric.F1_MICRO):
        assert metrics.compute(metric, y_true, y_pred) == metrics.compute(
            metric, y_true[order], y_pred[order]
        )
    assert metrics.cross_entropy(y_true, logits) == metrics.cross_entropy(y_true[order], logits[order])


@pytest.mark.parametrize("metric", Metric)
def test_compute_knows_every_metric(metric: Metric) -> None:
    y = np.array([0, 1, 1])
    assert metrics.compute(metric, y, y) == 1.0


def test_class_one_that_never_occurs_scores_zero() -> None:
    zeros = np.zeros(3, np.int64)
    assert metrics.f1_binary(zeros, zeros) == 0.0


def test_binary_f1_refuses_more_classes_and_names_one() -> None:
    with pytest.raises(ValueError, match="class 2 occurs"):
        metrics.f1_binary(TRUE, PREDICTED)


@pytest.mark.parametrize("metric", Metric)
def test_no_samples_are_refused(metric: Metric) -> None:
    nothing = np.array([], np.int64)
    with pytest.raises(ValueError, match=r"shapes \(0,\)"):
        metrics.compute(metric, nothing, nothing)
    with pytest.raises(ValueError, match="rows of logits"):
        metrics.cross_entropy(nothing, np.zeros((0, 2), np.float32))


def test_cross_entropy_agrees_with_scikit_learn() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(0, 3, (200, 7)).astype(np.float32)
    y = np.arange(200) % 7
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    assert metrics.cross_entropy(y, logits) == pytest.approx(log_loss(y, shares, labels=range(7)), rel=1e-12)


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes() -> None:
    assert metrics.cross_entropy(TRUE, np.zeros((6, 3), np.float32)) == pytest.approx(math.log(3))


def test_cross_entropy_survives_large_logits_and_shows_divergence() -> None:
    far = np.array([[1e4, 0.0], [0.0, 1e4]], np.float32)
    assert metrics.cross_entropy(np.array([0, 1]), far) == 0.0
    assert metrics.cross_entropy(np.array([1, 0]), far) == 1e4
    assert math.isnan(metrics.cross_entropy(np.array([0, 1]), np.full((2, 2), np.nan, np.float32)))
