from __future__ import annotations

import ast
import hashlib
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.exchange.verify import verify
from analysis.load.predictions import read_predictions
from analysis.load.study import NothingToAnalyse, View, load_study
from analysis.stats.observations import mark_failures
from guest.records.codec import digest
from guest.records.run import PREDICTIONS, RECORD
from tests.analysis.provenance.test_overrides import as_project


def replace_predictions(run: Path, data: bytes) -> None:
    """Other predictions, with a record that vouches for them."""
    (run / PREDICTIONS).write_bytes(data)
    record = json.loads((run / RECORD).read_text())
    del record["record_sha256"]
    artifact = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    record["result"]["artifacts"][PREDICTIONS] = artifact
    (run / RECORD).write_text(json.dumps(record | {"record_sha256": digest(record)}))


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_labels_are_the_largest_logits(study):
    study.run(1, predicted=(0, 2, 1, 0), selected=(1, 1, 1, 1))
    loaded, predictions = read_predictions(load_study(study.directory))
    runs = list(loaded.runs.run_id)
    assert predictions.stack(View.LAST, runs).tolist() == [[0, 2, 1, 0]]
    assert predictions.stack(View.SELECTED, runs).tolist() == [[1, 1, 1, 1]]


def flip(run: Path) -> None:
    data = bytearray((run / PREDICTIONS).read_bytes())
    data[-30] ^= 1
    (run / PREDICTIONS).write_bytes(bytes(data))


LOGITS = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (flip, "does not match its SHA-256"),
        (lambda run: replace_predictions(run, b"not a zip"), "predictions.npz"),
        (lambda run: replace_predictions(run, b"PK\x03\x04broken"), "predictions.npz"),
        (lambda run: replace_predictions(run, npz(y_true=np.zeros(4))), "last is not a file"),
        (
            lambda run: replace_predictions(run, npz(y_true=np.zeros(3), last=LOGITS, selected=LOGITS)),
            "different shapes",
        ),
        (
            lambda run: replace_predictions(
                run, npz(y_true=np.array([{}], dtype=object), last=LOGITS, selected=LOGITS)
            ),
            "allow_pickle",
        ),
        (
            lambda run: replace_predictions(
                run, npz(y_true=np.ones(4, np.int64), last=LOGITS, selected=LOGITS)
            ),
            "other test samples",
        ),
    ],
)
def test_damaged_or_foreign_predictions_take_the_run_out(study, damage, what):
    study.run(1)
    damage(study.run(2))
    loaded, predictions = read_predictions(load_study(study.directory))
    assert list(loaded.runs.cpus) == [1]
    assert set(loaded.epochs.run_id) == set(loaded.runs.run_id) == set(predictions.labels[View.LAST])
    (problem,) = loaded.problems
    assert problem.path == "runs/lenet5/fixed-seed/cpus-2/0001"
    assert what in problem.what


def test_no_good_predictions_leave_nothing(study):
    flip(study.run(1))
    with pytest.raises(NothingToAnalyse, match="SHA-256"):
        read_predictions(load_study(study.directory))


def test_workloads_may_have_unlike_test_samples(study):
    study.run(1, workload="a", truth=(0, 1), predicted=(0, 1))
    study.run(1, workload="b", truth=(1, 1, 1), predicted=(0, 1, 0))
    loaded, _ = read_predictions(load_study(study.directory))
    assert len(loaded.runs) == 2


def test_logits_that_are_not_finite_are_told_and_kept(study):
    logits = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    broken = logits.copy()
    broken[1, 2], broken[3, 0] = np.nan, np.inf
    study.run(1, 1)
    data = npz(y_true=np.array([0, 1, 2, 0]), last=broken, selected=logits)
    replace_predictions(study.run(1, 2), data)
    loaded, predictions = read_predictions(load_study(study.directory))
    (problem,) = loaded.problems
    assert problem.path == "runs/lenet5/fixed-seed/cpus-1"
    assert problem.what.startswith("1 of 2 runs have logits that are not finite, for up to 2 of 4 samples")
    assert not problem.skipped
    assert predictions.stack(View.LAST, loaded.runs.run_id)[1].tolist() == [0, 2, 2, 0]


def test_a_model_that_knows_one_class_counts_as_failed_where_the_truth_is_known(study):
    study.run(1, 1, predicted=(0, 0, 0, 0), weights="stuck", accuracies=(0.5, 0.5))
    study.run(1, 2)
    loaded, predictions = read_predictions(load_study(study.directory))
    assert loaded.problems == ()
    assert len(loaded.runs) == 2
    (problem,) = mark_failures(loaded, predictions).problems
    assert problem.what == "1 of 2 distinct trainings failed (last model)"


def test_a_run_that_predicts_other_classes_is_taken_out(study):
    study.run(1)
    study.run(2, predicted=(0, 1, 2, 4))
    loaded, _ = read_predictions(load_study(study.directory))
    assert list(loaded.runs.cpus) == [1]
    (problem,) = loaded.problems
    assert problem.what == "predicts 5 classes, the first run of lenet5 3"


def test_empty_predictions_take_the_run_out(study):
    study.run(1)
    nothing = np.zeros((0, 3), np.float32)
    replace_predictions(study.run(2), npz(y_true=np.zeros(0, int), last=nothing, selected=nothing))
    loaded, _ = read_predictions(load_study(study.directory))
    assert list(loaded.runs.cpus) == [1]


def test_no_two_threads_parse_the_heads_of_arrays_at_once(study, monkeypatch):
    for repetition in range(1, 9):
        study.run(1, repetition)
    loaded = load_study(study.directory)
    parse, inside, most = ast.literal_eval, [], []

    def watched(text):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.001)
        try:
            return parse(text)
        finally:
            inside.pop()

    monkeypatch.setattr(ast, "literal_eval", watched)
    read_predictions(loaded)
    assert len(most) >= 8
    assert set(most) == {1}


def of_project(study, values, truth=None):
    as_project(study.run(1), values=np.asarray(values), truth=truth)
    loaded, predictions = read_predictions(load_study(study.directory))
    (run,) = loaded.runs.run_id
    return predictions.labels[View.LAST][run], predictions.confidence[View.LAST][run], predictions.truth


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_confidence_of_scores_that_are_probabilities_is_the_largest(study, kind):
    _, confidence, _ = of_project(study, np.array([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9]], kind))
    assert confidence == pytest.approx([0.7, 0.9], abs=1e-3)


def test_scores_that_do_not_sum_to_one_have_a_softmax(study):
    _, confidence, _ = of_project(study, [[1.0, 0.0], [0.0, 3.0]])
    assert confidence == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-3))])


def test_votes_in_small_unsigned_integers_do_not_wrap_around(study):
    _, confidence, _ = of_project(study, np.array([[3, 1], [0, 2]], np.uint8))
    assert confidence == pytest.approx([1 / (1 + np.exp(-2))] * 2)


def test_a_one_hot_of_truth_values_is_read(study):
    labels, confidence, _ = of_project(study, np.eye(3, dtype=bool)[[0, 2]])
    assert (labels.tolist(), confidence.tolist()) == ([0, 2], [1.0, 1.0])


def test_samples_that_losses_ignore_are_left_out_and_unsigned_truth_counts(study):
    labels, _, truth = of_project(study, [0, 1, 2, 1], np.array([0, -100, 2, -100]))
    assert (labels.tolist(), truth["lenet5"].tolist()) == ([0, 2], [0, 2])


@pytest.mark.parametrize("truth", [[-1, 1, 1, -1], [0.5, 1.0, 2.0, 3.0]])
def test_a_truth_that_is_no_classes_is_not_known(study, truth):
    assert of_project(study, [0, 1, 1, 0], np.array(truth))[2] == {}


@pytest.mark.parametrize("truth", [np.array([False, True]), np.array([0, 1], np.uint64)])
def test_a_truth_of_booleans_or_unsigned_integers_is_classes(study, truth):
    assert of_project(study, [0, 1], truth)[2]["lenet5"].tolist() == [0, 1]


def test_a_truth_of_other_samples_is_damage_to_verify_and_to_analyse(study):
    as_project(study.run(1), values=np.array([0, 1, 1]), truth=np.array([0, 1]))
    (problem,) = verify(study.directory).damaged
    assert "y_true has other samples" in str(problem)
    with pytest.raises(NothingToAnalyse, match="y_true has other samples"):
        read_predictions(load_study(study.directory))
