"""Reads what the models predicted. Apart from `analysis.load`, because these are the large files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from analysis.load import FOREIGN, READERS, REDO, Problem, Study, View, checked_bytes
from guest.records import PREDICTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predicted classes of the test samples: for each view, run_id -> (N,) integers. Every run of a
    workload has the same N and the same truth."""

    labels: dict[View, dict[str, np.ndarray]]
    confidence: dict[View, dict[str, np.ndarray]] = field(default_factory=dict)
    """run_id -> (N,) float32: the softmax of the predicted class"""
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    """workload -> (N,) the true classes"""

    def stack(self, view: View, run_ids: Iterable[str]) -> np.ndarray:
        """(R, N): one row a run."""
        return np.stack([self.labels[view][run] for run in run_ids])


def read_predictions(study: Study) -> tuple[Study, Predictions]:
    """Every run's predictions, and the study without the runs whose predictions are damaged or of
    other test samples than the workload's first run."""
    pairs = list(zip(study.runs.run_id, study.runs.predictions_file_sha256, strict=True))
    with ThreadPoolExecutor(READERS) as pool:
        outcomes = list(pool.map(lambda pair: _read_labels(study.directory, *pair), pairs))
    labels: dict[View, dict[str, np.ndarray]] = {View.LAST: {}, View.SELECTED: {}}
    confidence: dict[View, dict[str, np.ndarray]] = {View.LAST: {}, View.SELECTED: {}}
    truth: dict[str, str] = {}
    classes: dict[str, np.ndarray] = {}
    problems = []
    for (run, _), workload, outcome in zip(pairs, study.runs.workload, outcomes, strict=True):
        if isinstance(outcome, Problem):
            problems.append(outcome)
        elif truth.setdefault(workload, outcome.truth) != outcome.truth:
            what = f"predicts other test samples than the first run of {workload}"
            problems.append(Problem(path=f"runs/{run}", what=what, todo=FOREIGN))
        else:
            labels[View.LAST][run], labels[View.SELECTED][run] = outcome.last, outcome.selected
            confidence[View.LAST][run], confidence[View.SELECTED][run] = outcome.confidence
            classes.setdefault(workload, outcome.y_true)
    return study.without(problems) if problems else study, Predictions(
        labels=labels, confidence=confidence, truth=classes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    truth: str  # SHA-256 of y_true
    y_true: np.ndarray
    last: np.ndarray
    selected: np.ndarray
    confidence: tuple[np.ndarray, np.ndarray]  # of the last and of the selected model


def _read_labels(directory: Path, run: str, sha256: str) -> _Labels | Problem:
    path = f"runs/{run}"
    try:
        data = checked_bytes(directory / path, PREDICTIONS, sha256)
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            truth, last, selected = arrays["y_true"], arrays["last"], arrays["selected"]
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        return Problem(path=path, what=f"{PREDICTIONS}: {error}", todo=REDO)
    if truth.ndim != 1 or last.ndim != 2 or last.shape != selected.shape or len(last) != len(truth):
        return Problem(path=path, what=f"{PREDICTIONS} has arrays of unlike shapes", todo=REDO)
    # The smallest integers that hold the classes: thousands of runs fit in memory.
    kind = np.min_scalar_type(max(last.shape[1] - 1, 0))
    return _Labels(
        truth=hashlib.sha256(truth.tobytes()).hexdigest(),
        y_true=truth,
        last=last.argmax(axis=1).astype(kind),
        selected=selected.argmax(axis=1).astype(kind),
        confidence=(_confidence(last), _confidence(selected)),
    )


def _confidence(logits: np.ndarray) -> np.ndarray:
    """(N,) the largest softmax of each row; NaN where a logit is not finite."""
    with np.errstate(invalid="ignore"):
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        confidence: np.ndarray = 1 / np.exp(shifted).sum(axis=1)
    return confidence.astype(np.float32)
