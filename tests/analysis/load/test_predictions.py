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

from analysis.load.predictions import read_predictions
from analysis.load.study import NothingToAnalyse, View, load_study
from analysis.stats.observations import mark_failures
from guest.records.codec import digest
from guest.records.run import PREDICTIONS, RECORD


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
    assert problem.what == "1 of 2 different trainings failed (last model)"


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
