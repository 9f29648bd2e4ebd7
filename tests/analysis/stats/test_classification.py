from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import confusion_matrix, recall_score

from analysis.stats.classification import (
    MANY_CLASSES,
    class_accuracy,
    class_hits,
    false_negative_rate,
    false_positive_rate,
)


@st.composite
def truth_and_labels(draw, classes=4):
    samples, runs = draw(st.integers(1, 15)), draw(st.integers(1, 4))
    kind = st.integers(0, classes - 1)
    truth = draw(arrays(np.int64, samples, elements=kind))
    return truth, draw(arrays(np.uint8, (runs, samples), elements=kind))


@pytest.mark.needs("studies")
@given(truth_and_labels())
def test_rates_by_class_are_those_of_the_confusion_matrix(data):
    truth, labels = data
    counts = class_hits(truth, labels)
    classes = len(counts.support)
    for i, run in enumerate(labels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of single classes and those without samples
            matrix = confusion_matrix(truth, run, labels=range(classes))
            recall = recall_score(truth, run, average=None, labels=range(classes), zero_division=np.nan)
        assert class_accuracy(counts)[i] == pytest.approx(recall, nan_ok=True)
        for c in range(classes):
            tp, fn, fp = matrix[c, c], matrix[c].sum() - matrix[c, c], matrix[:, c].sum() - matrix[c, c]
            tn = matrix.sum() - tp - fn - fp
            fnr = fn / (fn + tp) if fn + tp else np.nan
            fpr = fp / (fp + tn) if fp + tn else np.nan
            assert false_negative_rate(counts)[i, c] == pytest.approx(fnr, nan_ok=True)
            assert false_positive_rate(counts)[i, c] == pytest.approx(fpr, nan_ok=True)


def test_the_false_negative_rate_divides_by_the_samples_of_the_class():
    # class 1: 4 samples, 1 found; class 0: 2 samples, 1 taken for class 1
    counts = class_hits(np.array([1, 1, 1, 1, 0, 0]), np.array([[1, 0, 0, 0, 1, 0]]))
    assert false_negative_rate(counts)[0, 1] == 3 / 4  # not 3 / (FP + TN) = 3 / 2
    assert false_positive_rate(counts)[0, 1] == 1 / 2


@given(truth_and_labels(), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_names_of_classes_and_order_of_samples_do_not_matter(data, names, random):
    truth, labels = data
    order = list(range(len(truth)))
    random.shuffle(order)
    renamed = np.array(names)
    again = renamed[truth][order], renamed[labels][:, order]
    before, after = class_hits(truth, labels), class_hits(*again)
    for c in range(len(before.support)):
        if before.support[c]:
            assert (class_accuracy(after)[:, names[c]] == class_accuracy(before)[:, c]).all()


@given(truth_and_labels(), st.sampled_from([MANY_CLASSES, 2**45]))
def test_labels_of_any_size_are_counted_for_the_classes_with_samples(data, step):
    truth, labels = data
    before = class_hits(truth, labels)
    after = class_hits(truth * step + step, labels * np.int64(step) + step)
    known = before.support > 0
    assert (after.classes == before.classes[known] * step + step).all()
    assert (after.support == before.support[known]).all()
    assert (after.hits == before.hits[:, known]).all()
    assert (after.predicted == before.predicted[:, known]).all()


@pytest.mark.parametrize("kind", [np.int8, np.uint64, bool])
def test_true_classes_are_counted_whatever_their_type(kind):
    truth = np.array([1, 0, 1]).astype(kind)
    counts = class_hits(truth, np.array([[1, 1, 0]], np.uint8))
    assert (counts.hits.tolist(), counts.support.tolist()) == ([[0, 1]], [1, 2])


def test_a_true_label_that_is_negative_is_a_class_of_its_own():
    counts = class_hits(np.array([-100, 0, 2]), np.array([[1, 0, 0]], np.uint8))
    assert (counts.classes.tolist(), counts.hits.tolist()) == ([-100, 0, 2], [[0, 1, 0]])


@given(truth_and_labels())
def test_everything_is_a_share(data):
    counts = class_hits(*data)
    for rate in (class_accuracy, false_positive_rate, false_negative_rate):
        told = rate(counts)[~np.isnan(rate(counts))]
        assert ((told >= 0) & (told <= 1)).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="are not"):
        class_hits(np.zeros(3, int), np.zeros((2, 4), int))
    with pytest.raises(ValueError, match="are not"):
        class_hits(np.zeros(0, int), np.zeros((2, 0), int))
