"""Reads one run's folder: its record and its history, checked against the SHA-256 in the record."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.records.bounded import read_bounded
from guest.records.codec import NewerSchemaError, RecordError
from guest.records.run import (
    ARTIFACTS,
    HISTORY,
    PREDICTIONS,
    RECORD,
    RECORDING,
    RunRecord,
    RunSpec,
    decode_record,
    history_columns,
)

LARGEST_RECORD_BYTES = 64 << 20
LARGEST_FILE_BYTES = 8 << 30
MOST_STEPS = 2**53  # of a float that is exact
REDO = "run `vbstudy sweep`: it quarantines damaged runs and repeats them"
FOREIGN = "move the folder out of runs/; `vbstudy sweep` redoes what is missing"

History = list[list[Any]]  # one list an epoch, in the order of history_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something a reader should know: which path, what is the matter, what to do about it."""

    path: str
    what: str
    todo: str
    skipped: bool = True  # the run is in no table; False: it is, with this reservation

    def __str__(self) -> str:
        return f"{self.path}: {self.what} ({self.todo})"


def run_folders(directory: Path) -> list[Path]:
    """`runs/<workload>/<variant>/<label>/<repetition>`; names with a leading dot are being written."""
    return sorted(
        folder
        for folder in (directory / "runs").glob("*/*/*/*")
        if folder.is_dir() and not any(part.startswith(".") for part in folder.relative_to(directory).parts)
    )


def check_run(directory: Path, folder: Path) -> tuple[RunRecord, History] | Problem:
    """The record and the history, checked, or why not."""
    path = folder.relative_to(directory).as_posix()
    try:
        record = _record(folder)
        if f"runs/{record.spec.run_id}" != path:
            what = f"the record inside is of {record.spec.run_id}: this run belongs elsewhere"
            return Problem(path=path, what=what, todo=FOREIGN)
        _check_complete(record)
        for name, artifact in record.result.artifacts.items():
            size = (folder / name).stat().st_size
            if size != artifact.size_bytes:
                what = f"{name} has {size} bytes, not {artifact.size_bytes}"
                return Problem(path=path, what=what, todo=REDO)
        data = checked_bytes(folder, HISTORY, record.result.artifacts[HISTORY].sha256)
        history = _parse_history(data, history_columns(record.spec.workload.metric_names))
    except NewerSchemaError:
        raise
    except FileNotFoundError as error:
        return Problem(path=path, what=f"{Path(error.filename).name} is missing", todo=REDO)
    except (OSError, RecordError) as error:
        return Problem(path=path, what=str(error), todo=REDO)
    return record, history


def _record(folder: Path) -> RunRecord:
    if (folder / RECORD).is_symlink():
        raise RecordError(f"{RECORD} is not a plain file")
    try:
        return decode_record(read_bounded(folder / RECORD, LARGEST_RECORD_BYTES))
    except NewerSchemaError:
        raise
    except RecordError as error:
        raise RecordError(f"{RECORD}: {error}") from None


def checked_bytes(folder: Path, name: str, sha256: str) -> bytes:
    """The bytes of a run's file. Raises RecordError when they are not those the record names."""
    data = read_bounded(folder / name, LARGEST_FILE_BYTES)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RecordError(f"{name} does not match its SHA-256")
    return data


def _check_complete(record: RunRecord) -> None:
    """Raises RecordError for a record that no vbstudy wrote, though its checksum fits."""
    result, workload = record.result, record.spec.workload
    odd = sorted({*result.artifacts} - {*ARTIFACTS, RECORDING})
    if odd:
        raise RecordError(f"the record names {odd[0]!r:.80}, which is no file of a run")
    if not workload.metric_names:
        raise RecordError("the record has no metric")
    if not all(re.fullmatch("[1-9][0-9]{0,17}", step) for step in result.step_hashes):
        raise RecordError("the record has hashes of steps that are no numbers")
    scores = (result.last,) if workload.project else (result.last, result.selected)
    files = (HISTORY,) if workload.project else (HISTORY, PREDICTIONS)
    lacking = [name for name in files if name not in result.artifacts]
    lacking += [m for m in workload.metric_names if any(m not in each for each in scores)]
    if lacking:
        raise RecordError(f"the record has no {lacking[0]}")


def _parse_history(data: bytes, columns: list[str]) -> History:
    """The lines of history.csv: hashes as text, everything else as the exact float it was."""
    try:
        lines = [line.split(",") for line in data.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise RecordError(f"{HISTORY}: {error}") from error
    if not lines or lines[0] != columns:
        raise RecordError(f"{HISTORY} has other columns than {', '.join(columns)}")
    texts = [name.endswith("sha256") for name in columns]
    try:
        rows = [
            [cell if text else float(cell) for cell, text in zip(line, texts, strict=True)]
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


def workload_text(spec: RunSpec) -> str:
    """What is compared across thread counts: a workload, on one CPU model where a study compares
    several: `lenet5`, `lenet5@Haswell`. (No workload's own name has an @.)"""
    return f"{spec.workload.name}@{spec.cpu_model}" if spec.cpu_model else spec.workload.name
