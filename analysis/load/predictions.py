"""Reads what the models predicted. Apart from `analysis.load.study`, because these are the large files."""

from __future__ import annotations

import hashlib
import io
import math
import threading
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import IO
from zipfile import BadZipFile, ZipFile

import numpy as np

from analysis.load.runs import FOREIGN, REDO, Problem, alone, checked_bytes
from analysis.load.study import READERS, StudyData, View
from guest.records import bounded
from guest.records.bounded import opened_bounded
from guest.records.codec import RecordError
from guest.records.run import PREDICTIONS, RunRecord

# What numpy, pandas and zip files raise for data that is none of theirs.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    zlib.error,
)

IGNORED = -100  # the true class of samples that PyTorch's losses skip, such as padding
BLOCK_NUMBERS = 1 << 22  # logits whose softmax is computed at once
# Before Python 3.11.8 two threads that parse at once can fail with a SystemError (python/cpython#106905), and
# numpy parses the head of each array.
_parsing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predicted classes of the test samples: for each view, run_id -> (N,) integers. Every run of a
    workload has the same N and the same truth: `truth`, workload -> (N,) integers."""

    labels: dict[View, dict[str, np.ndarray]]
    confidence: dict[View, dict[str, np.ndarray]] = field(default_factory=dict)
    """run_id -> (N,) float32: the softmax of the predicted class, or its probability as a project gave it"""
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    workloads: frozenset[str] = frozenset()
    """those with the classes of all their runs; a project may have them and not the truth"""

    def stack(self, view: View, run_ids: Iterable[str]) -> np.ndarray:
        """(R, N): one row a run."""
        return np.stack([self.labels[view][run] for run in run_ids])


def read_predictions(study: StudyData) -> tuple[StudyData, Predictions]:
    """Every run's predictions, and the study without the runs whose predictions are damaged, or of other
    test samples or classes than the workload's first run. Sets with logits that are not finite, or, where the
    truth is unknown, with runs that put all samples in one class, stay in with a reservation."""
    known = study.runs[study.runs.predictions_file_sha256 != ""]
    own = known.workload.isin(study.projects)
    pairs = list(zip(known.run_id, known.predictions_file_sha256, own, strict=True))
    with ThreadPoolExecutor(READERS) as pool:
        outcomes = list(pool.map(lambda pair: _read_labels(study.directory, *pair), pairs))
    labels: dict[View, dict[str, np.ndarray]] = {view: {} for view in View}
    confidence: dict[View, dict[str, np.ndarray]] = {view: {} for view in View}
    first: dict[str, _Labels] = {}  # of each workload
    problems = []
    kept: dict[str, list[_Labels]] = {}
    where = zip(pairs, known.workload, known.set_id, outcomes, strict=True)
    for (run, *_), workload, set_id, outcome in where:
        if outcome is None:
            continue  # a project's numbers that are no classes: their hash is compared, and no more
        if isinstance(outcome, Problem):
            problems.append(outcome)
        elif what := _unlike(outcome, first.setdefault(workload, outcome), workload):
            problems.append(Problem(path=f"runs/{run}", what=what, todo=FOREIGN))
        else:
            kept.setdefault(set_id, []).append(outcome)
            labels[View.LAST][run], labels[View.SELECTED][run] = outcome.last, outcome.selected
            confidence[View.LAST][run], confidence[View.SELECTED][run] = outcome.confidence
    problems += [problem for set_id, runs in kept.items() for problem in _reservations(set_id, runs)]
    left = study.without(problems) if problems else study
    every = left.runs.run_id.isin(list(labels[View.LAST])).groupby(left.runs.workload).all()
    whole = frozenset(str(name) for name in every.index[every])
    return left, Predictions(
        labels=labels,
        confidence=confidence,
        truth={w: one.truth for w, one in first.items() if one.truth is not None and w in whole},
        workloads=whole,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    truth: np.ndarray | None  # None: a project that did not write it
    classes: int
    not_finite: int  # samples with a logit that is NaN or infinite, in either view
    last: np.ndarray
    selected: np.ndarray
    confidence: tuple[np.ndarray, np.ndarray]  # of the last and of the selected model


def _unlike(mine: _Labels, first: _Labels, workload: str) -> str:
    """Why predictions cannot be compared with those of the workload's first run; empty where they can."""
    if len(mine.last) != len(first.last):
        return f"predicts {len(mine.last)} samples, the first run of {workload} {len(first.last)}"
    if mine.truth is not None and first.truth is not None and not np.array_equal(mine.truth, first.truth):
        return f"predicts other test samples than the first run of {workload}"
    if mine.classes != first.classes:
        return f"predicts {mine.classes} classes, the first run of {workload} {first.classes}"
    return ""


def _reservations(set_id: str, runs: list[_Labels]) -> Iterator[Problem]:
    broken = [run.not_finite for run in runs if run.not_finite]
    if broken:
        what = (
            f"{len(broken)} of {len(runs)} runs have logits that are not finite, for up to {max(broken)} "
            f"of {len(runs[0].last)} samples; a sample's class is its first NaN, or else its largest logit"
        )
        yield Problem(path=f"runs/{set_id}", what=what, todo="lower the learning rate", skipped=False)
    stuck = sum(_constant(run.last) or _constant(run.selected) for run in runs)
    if stuck and runs[0].truth is None:  # with the truth, such a training counts as failed
        what = f"{stuck} of {len(runs)} runs put every test sample in one class"
        todo = "such a model did not learn: read accuracy, churn and agreement of this condition with care"
        yield Problem(path=f"runs/{set_id}", what=what, todo=todo, skipped=False)


def _constant(labels: np.ndarray) -> bool:
    return bool((labels == labels[0]).all())


def _read_labels(directory: Path, run: str, sha256: str, own: bool) -> _Labels | Problem | None:
    """None: the predictions of an `own` project that are no classes."""
    path, file = f"runs/{run}", directory / "runs" / run / PREDICTIONS
    try:
        with alone(file), opened_bounded(file, bounded.PREDICTIONS) as opened:
            if hashlib.file_digest(opened, "sha256").hexdigest() != sha256:
                raise RecordError("does not match its SHA-256")
            return _labels(path, opened, own)
    except UNREADABLE as error:
        return Problem(path=path, what=f"{PREDICTIONS}: {error}", todo=REDO)


def _labels(path: str, file: IO[bytes], own: bool) -> _Labels | Problem | None:
    with _parsing:
        refuse_larger_inside(file, file.tell())
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            if own:
                return _own_labels(path, arrays["last"], arrays.get("y_true"))
            truth, last, selected = arrays["y_true"], arrays["last"], arrays["selected"]
    shaped = truth.ndim == 1 and last.ndim == 2 and last.shape == selected.shape and last.size > 0
    if not shaped or len(last) != len(truth):
        return Problem(path=path, what=f"{PREDICTIONS} has empty arrays or different shapes", todo=REDO)
    if truth.dtype.kind not in "iu" or last.dtype.kind != "f" or selected.dtype.kind != "f":
        return Problem(path=path, what=f"{PREDICTIONS} has arrays of other types than a run's", todo=REDO)
    if truth.min() < 0 or truth.max() >= last.shape[1]:
        return Problem(path=path, what=f"{PREDICTIONS} has true classes without a logit", todo=REDO)
    # The smallest integers that hold the classes: thousands of runs fit in memory.
    kind = np.min_scalar_type(max(last.shape[1] - 1, 0))
    return _Labels(
        truth=truth,
        classes=last.shape[1],
        not_finite=int((~np.isfinite(last).all(axis=1) | ~np.isfinite(selected).all(axis=1)).sum()),
        last=last.argmax(axis=1).astype(kind),
        selected=selected.argmax(axis=1).astype(kind),
        confidence=(_confidence(last), _confidence(selected)),
    )


def refuse_larger_inside(file: IO[bytes], most_bytes: int) -> None:
    """Runs store their arrays as they are: a small file that would become a large array is none of theirs.
    Raises ValueError for arrays of more bytes, and what zip files raise."""
    with ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > most_bytes:
            raise ValueError(f"its arrays unpack to more than {most_bytes} bytes")
        for entry in archive.infolist():
            if entry.compress_type not in bounded.ZIP_METHODS:
                raise ValueError(f"{entry.filename:.80} is compressed in a way that no array is")
            with archive.open(entry) as member:
                size = claimed_bytes(member, entry.filename)
            if size > entry.file_size:
                raise ValueError(f"{entry.filename:.80} says it is larger than its file")


def claimed_bytes(file: IO[bytes], name: str) -> int:
    """The bytes that the .npy of this name says its array has. Raises ValueError for what is none."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name:.80} is no array of numbers")
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    return math.prod(shape) * int(kind.itemsize)


def _own_labels(path: str, values: np.ndarray, truth: np.ndarray | None) -> _Labels | Problem | None:
    """Labels of a project's predictions: scores (N, C), or classes (N,), whose confidence is not known.
    Samples whose true class is IGNORED are left out; a truth that is no classes is none."""
    if truth is not None:
        if truth.shape != values.shape[:1]:
            return Problem(path=path, what=f"{PREDICTIONS}: y_true has other samples than last", todo=REDO)
        if truth.dtype.kind in "iub":
            values, truth = values[truth != IGNORED], truth[truth != IGNORED].astype(np.int64)
        if truth.dtype.kind != "i" or (truth < 0).any():
            truth = None
    if values.ndim == 2:
        finite, labels, count = np.isfinite(values).all(axis=1), values.argmax(axis=1), values.shape[1]
        scores = values.astype(np.float32) if values.dtype.kind in "biu" else values
        if _probabilities(scores[finite]):
            confidence = np.where(finite, scores.max(axis=1), np.nan).astype(np.float32)
        else:
            confidence = _confidence(scores)
    elif (
        values.ndim == 1
        and np.isfinite(values).all()
        and (values == np.rint(values)).all()
        and (values >= 0).all()
    ):
        finite, labels = np.ones(len(values), dtype=bool), values.astype(np.int64)
        count, confidence = 0, np.full(len(values), np.nan, dtype=np.float32)
    else:
        return None
    kind = np.min_scalar_type(max(int(labels.max()), count - 1, 0))
    return _Labels(
        truth=truth,
        classes=count,
        not_finite=int((~finite).sum()),
        last=labels.astype(kind),
        selected=labels.astype(kind),
        confidence=(confidence, confidence),
    )


def _probabilities(scores: np.ndarray) -> bool:
    """Whether all rows (N, C) are shares of 1, up to the rounding of float16."""
    sums = scores.sum(axis=1, dtype=np.float64)
    return bool(len(scores) and (scores >= 0).all() and (np.abs(sums - 1) <= 1e-3).all())


def read_logits(study: StudyData, view: View, run: str, sha256: str) -> np.ndarray:
    """(N, C) float32: the final logits of a run. Raises RecordError, OSError or ValueError."""
    data = checked_bytes(study.directory / "runs" / run, PREDICTIONS, sha256, bounded.PREDICTIONS)
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return np.asarray(arrays[view.value], dtype=np.float32)


def check_predictions(directory: Path, record: RunRecord) -> Problem | None:
    """What is the matter with a run's predictions, or nothing."""
    own = record.spec.workload.project is not None
    if own and PREDICTIONS not in record.result.artifacts:
        return None
    sha256 = record.result.artifacts[PREDICTIONS].sha256
    outcome = _read_labels(directory, record.spec.run_id, sha256, own)
    return outcome if isinstance(outcome, Problem) else None


def _confidence(logits: np.ndarray) -> np.ndarray:
    """(N,) float32: the largest softmax of each row; NaN where a logit is not finite."""
    rows = max(1, BLOCK_NUMBERS // max(1, logits.shape[1]))
    parts = [_confidence_of(logits[at : at + rows]) for at in range(0, len(logits), rows)]
    return np.concatenate(parts)


def _confidence_of(logits: np.ndarray) -> np.ndarray:
    by_class = np.ascontiguousarray(logits.T)  # long rows: nine times as fast
    with np.errstate(invalid="ignore"):
        below = np.exp(by_class - by_class.max(axis=0)).sum(axis=0)
    return np.asarray(1 / below, dtype=np.float32)
