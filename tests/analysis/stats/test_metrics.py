from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance

from analysis.stats.metrics import (
    FEW_CLASSES,
    agreement,
    churn_between,
    churn_matrix,
    churn_within,
    class_counts,
    codes,
    column_sd,
    epochs_to_converge,
    max_difference,
    rel_diff,
    rel_sd,
)


def label_arrays(runs: tuple[int, int] = (2, 6), samples: int | None = None) -> st.SearchStrategy[Any]:
    shapes = st.tuples(st.integers(*runs), st.just(samples) if samples else st.integers(1, 12))
    return shapes.flatmap(lambda shape: arrays(np.uint8, shape, elements=st.integers(0, 4)))


def test_churn_by_hand():
    labels = np.array([[0, 1, 2, 0], [0, 1, 1, 0], [0, 2, 1, 1]])
    # pairs: 1 of 4, 3 of 4, 2 of 4 samples differ
    assert churn_within(labels) == pytest.approx((1 / 4 + 3 / 4 + 2 / 4) / 3)
    assert churn_between(labels[:1], labels[1:]) == pytest.approx((1 / 4 + 3 / 4) / 2)
    assert agreement(labels) == 1 / 4


@given(label_arrays())
def test_churn_within_is_the_mean_over_pairs(labels):
    expected = np.mean([(a != b).mean() for a, b in combinations(labels, 2)])
    assert churn_within(labels) == pytest.approx(expected, abs=1e-12)


@given(label_arrays(samples=7), label_arrays(runs=(1, 4), samples=7))
def test_churn_between_is_the_mean_over_pairs_and_symmetric(a, b):
    expected = np.mean([(x != y).mean() for x, y in product(a, b)])
    assert churn_between(a, b) == pytest.approx(expected, abs=1e-12)
    assert churn_between(a, b) == churn_between(b, a)


@given(label_arrays(), st.randoms(use_true_random=False))
def test_order_of_runs_and_names_of_classes_do_not_matter(labels, random):
    order = list(range(len(labels)))
    random.shuffle(order)
    names = list(range(5))
    random.shuffle(names)
    assert churn_within(np.array(names)[labels][order]) == churn_within(labels)
    assert agreement(labels[order]) == agreement(labels)


@given(label_arrays())
def test_churn_and_agreement_are_bounded_and_zero_only_for_equal_runs(labels):
    churn = churn_within(labels)
    assert 0 <= churn <= 1
    assert (churn == 0) == (agreement(labels) == 1)


def test_small_label_types_do_not_overflow():
    labels = np.full((2, 300), 9, dtype=np.uint8)
    assert class_counts(labels).shape == (300, 10)
    assert churn_within(labels) == 0


@pytest.mark.parametrize("labels", [np.zeros((0, 3), int), np.zeros((3, 0), int), np.zeros(3, int)])
def test_labels_of_no_shape_are_refused(labels):
    with pytest.raises(ValueError, match="labels must be"):
        agreement(labels)


def test_churn_needs_two_runs_and_equal_samples():
    with pytest.raises(ValueError, match="two runs"):
        churn_within(np.zeros((1, 3), int))
    with pytest.raises(ValueError, match="3 and 4 samples"):
        churn_between(np.zeros((1, 3), int), np.zeros((1, 4), int))


def test_max_difference_finds_the_first_epoch_and_the_stretch():
    values = np.array([[0.5, 0.5, 0.9, 0.9, 0.5], [0.5, 0.75, 0.4, 0.4, 0.0]])
    found = max_difference(values)
    assert found is not None
    assert (found.difference, found.first, found.last) == (0.5, 2, 4)


def test_max_difference_leaves_out_what_is_not_finite():
    found = max_difference(np.array([[0.5, np.nan, 0.75], [0.25, 0.0, 0.75]]))
    assert found is not None
    assert (found.difference, found.first) == (0.25, 0)
    assert max_difference(np.array([[0.5, 0.6]])) is None
    assert max_difference(np.array([[np.nan], [0.5]])) is None


def test_column_sd_is_exactly_zero_for_equal_values():
    values = np.array([[0.1, 1.0, np.inf], [0.1, 3.0, 1.0], [0.1, 5.0, 1.0]])
    sd = column_sd(values)
    assert sd[0] == 0
    assert sd[1] == pytest.approx(2.0)
    assert np.isnan(sd[2])
    assert np.isnan(column_sd(values[:1])).all()


def test_convergence_is_the_first_epoch_near_the_best_of_the_run():
    values = np.array([[0.5, 0.995, 0.9, 1.0], [0.7, 0.6, 0.5, 0.4], [np.nan, np.nan, np.nan, np.nan]])
    assert epochs_to_converge(values)[:2].tolist() == [2, 1]
    assert np.isnan(epochs_to_converge(values)[2])
    assert epochs_to_converge(values[:1], share=1.0).tolist() == [4]
    with pytest.raises(ValueError, match="runs, epochs"):
        epochs_to_converge(np.zeros(3))


def test_relative_measures_by_hand():
    times = np.array([10.0, 14.0, np.nan, 12.0])
    assert rel_diff(times) == pytest.approx(0.4)
    assert rel_sd(times) == pytest.approx(2 / 12)
    assert rel_sd(np.full(5, 0.1)) == 0
    for measure in (rel_diff, rel_sd):
        assert measure(np.array([1.0])) is None
        assert measure(np.zeros(3)) is None


@given(arrays(np.float64, st.integers(2, 9), elements=st.floats(0.1, 100)), st.floats(0.5, 2))
def test_relative_measures_do_not_see_unit_or_order(times, unit):
    for measure in (rel_diff, rel_sd):
        assert measure(unit * times[::-1]) == pytest.approx(measure(times), rel=1e-6, abs=1e-9)
        assert measure(times) >= 0


# ---- the kernels of churn -------------------------------------------------------------------------


@given(label_arrays(runs=(1, 6)))
def test_the_churn_matrix_is_scipys_hamming_distance(labels):
    expected = distance.squareform(distance.pdist(labels, "hamming"), checks=False)
    if len(labels) > 1:
        assert churn_matrix(labels) == pytest.approx(expected)
        pairs = churn_matrix(labels)[np.triu_indices(len(labels), 1)]
        assert churn_within(labels) == pytest.approx(pairs.mean())
    else:
        assert churn_matrix(labels).tolist() == [[0]]


@pytest.mark.parametrize(("classes", "kind"), [(2, np.uint8), (10, np.uint8), (1000, np.uint16)])
def test_large_sets_are_counted_block_by_block(classes, kind):
    labels = np.random.default_rng(61).integers(0, classes, (150, 130)).astype(kind)
    expected = distance.squareform(distance.pdist(labels, "hamming"))
    assert churn_matrix(labels) == pytest.approx(expected)
    assert churn_within(labels) == pytest.approx(expected.sum() / (150 * 149))
    counts = class_counts(labels, classes)
    assert counts.shape == (130, classes)
    assert (counts == [[(column == c).sum() for c in range(classes)] for column in labels.T]).all()


@given(label_arrays(), st.sampled_from([np.uint64, np.int64]))
def test_large_labels_have_the_churn_of_small_ones(labels, kind):
    large = labels.astype(kind) * kind(2**45)  # one cell a label would need more than there are addresses
    assert churn_within(large) == churn_within(labels)
    assert churn_between(large[:1], large[1:]) == churn_between(labels[:1], labels[1:])
    (few,) = codes(large)
    assert few.max() < len(labels)
    assert (churn_matrix(few) == churn_matrix(labels)).all()


def test_small_labels_are_counted_as_they_are():
    labels = np.array([[0, FEW_CLASSES - 1], [3, 0]])
    assert codes(labels)[0] is labels


def test_bits_are_counted_without_numpy_2_as_well(monkeypatch):
    labels = np.random.default_rng(62).integers(0, 7, (5, 200))
    expected = churn_matrix(labels)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert (churn_matrix(labels) == expected).all()
