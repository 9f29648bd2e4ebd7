"""Reads one run's folder: its record and its history, checked against the SHA-256 in the record."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from guest.records import bounded
from guest.records.bounded import Limit, read_bounded
from guest.records.codec import NewerSchemaError, RecordError
from guest.records.printable import printable
from guest.records.run import (
    HISTORY,
    RECORD,
    RunRecord,
    RunSpec,
    decode_record,
    history_columns,
)

MOST_STEPS = 2**53  # of a float that is exact
DIVERGED_FROM = 1e100  # no axis, sum or ratio holds numbers far beyond
ZERO_BELOW = 1e-50  # squares of variances of smaller numbers underflow
REDO = "run `vbstudy sweep`: it quarantines and repeats damaged runs of the plan; move others out of runs/"
FOREIGN = "move the folder out of runs/; `vbstudy sweep` redoes what is missing"

_large = threading.Lock()

Stored = TypeVar("Stored")
History = list[list[Any]]  # one list an epoch, in the order of history_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something a reader should know: which path, what is the matter, what to do about it."""

    path: str
    what: str
    todo: str
    skipped: bool = True  # the run is in no table; False: it is, with this reservation

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.what} ({self.todo})")  # it may quote what it is about


def read_stored(
    directory: Path, paths: Iterable[Path], decode: Callable[[bytes, Path], Stored], todo: str
) -> tuple[tuple[Stored, ...], tuple[Problem, ...]]:
    """Files that lie beside the runs, by `decode`; and a reservation for each that cannot be read."""
    found, problems = [], []
    for path in paths:
        try:
            found.append(decode(read_bounded(path, bounded.RECORD), path))
        except (OSError, RecordError, UnicodeDecodeError) as error:
            where = path.relative_to(directory).as_posix()
            problems.append(Problem(path=where, what=str(error), todo=todo, skipped=False))
    return tuple(found), tuple(problems)


def run_folders(directory: Path) -> list[Path]:
    """`runs/<workload>/<variant>/<label>/<repetition>`; names with a leading dot are being written."""
    return sorted(
        folder
        for folder in (directory / "runs").glob("*/*/*/*")
        if folder.is_dir() and not is_hidden(folder, directory)
    )


def is_hidden(path: Path, directory: Path) -> bool:
    """Whether its name, or that of a folder on the way from `directory`, has a leading dot."""
    return any(part.startswith(".") for part in path.relative_to(directory).parts)


def check_run(directory: Path, folder: Path) -> tuple[RunRecord, History] | Problem:
    """The record and the history, checked, or why not."""
    path = folder.relative_to(directory).as_posix()
    try:
        with alone(folder / RECORD):
            record = _record(folder)
        if f"runs/{record.spec.run_id}" != path:
            what = f"the record inside is of {record.spec.run_id}: this run belongs elsewhere"
            return Problem(path=path, what=what, todo=FOREIGN)
        for name, artifact in record.result.artifacts.items():
            size = (folder / name).stat().st_size
            if size != artifact.size_bytes:
                what = f"{name} has {size} bytes, not {artifact.size_bytes}"
                return Problem(path=path, what=what, todo=REDO)
        with alone(folder / HISTORY):
            data = checked_bytes(folder, HISTORY, record.result.artifacts[HISTORY].sha256, bounded.HISTORY)
            history = _parse_history(data, history_columns(record.spec.workload.metric_names))
    except NewerSchemaError:
        raise
    except FileNotFoundError as error:
        return Problem(path=path, what=f"{Path(error.filename).name} is missing", todo=REDO)
    except (OSError, RecordError) as error:
        return Problem(path=path, what=str(error), todo=REDO)
    return record, history


def alone(path: Path) -> AbstractContextManager[object]:
    """Large files are read one at a time: many threads read."""
    return _large if path.stat().st_size > bounded.MIB else nullcontext()


def _record(folder: Path) -> RunRecord:
    if (folder / RECORD).is_symlink():
        raise RecordError(f"{RECORD} is not a plain file")
    try:
        return decode_record(read_bounded(folder / RECORD, bounded.RECORD))
    except NewerSchemaError:
        raise
    except RecordError as error:
        raise RecordError(f"{RECORD}: {error}") from None


def checked_bytes(folder: Path, name: str, sha256: str, limit: Limit = bounded.ARTIFACT) -> bytes:
    """The bytes of a run's file. Raises RecordError when they are not those the record names."""
    data = read_bounded(folder / name, limit)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RecordError(f"{name} does not match its SHA-256")
    return data


def _parse_history(data: bytes, columns: list[str]) -> History:
    """The lines of history.csv: hashes as text, everything else as the exact float it was."""
    if data.count(b",") + data.count(b"\n") > bounded.HISTORY.items:
        raise RecordError(f"{HISTORY} has more than {bounded.HISTORY.items} cells")
    try:
        lines = [line.split(",") for line in data.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise RecordError(f"{HISTORY}: {error}") from error
    if not lines or lines[0] != columns:
        raise RecordError(f"{HISTORY} has other columns than {', '.join(columns)}")
    texts = [name.endswith("sha256") for name in columns]
    try:
        rows = [
            [cell if text else number(float(cell)) for cell, text in zip(line, texts, strict=True)]
            for line in lines[1:]
        ]
    except ValueError as error:
        raise RecordError(f"{HISTORY}: {error}") from error
    if not rows or [row[0] for row in rows] != list(range(1, len(rows) + 1)):
        raise RecordError(f"{HISTORY} does not count its epochs from 1")
    for name in ("step", "selected_epoch"):
        at = columns.index(name)
        if not all(float(row[at]).is_integer() and abs(float(row[at])) < MOST_STEPS for row in rows):
            raise RecordError(f"{HISTORY} has a {name} that is no whole number")
    return rows


def number(value: float) -> float:
    """A number of a training; of one that diverged, infinite."""
    if abs(value) < ZERO_BELOW:
        return 0.0
    return value if not abs(value) > DIVERGED_FROM else math.copysign(math.inf, value)


def workload_text(spec: RunSpec) -> str:
    """What is compared across thread counts: a workload, on one CPU model where a study compares
    several: `lenet5`, `lenet5@Haswell`. (No workload's own name has an @.)"""
    return f"{spec.workload.name}@{spec.cpu_model}" if spec.cpu_model else spec.workload.name
