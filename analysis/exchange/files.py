"""What a single file of results holds: a table, arrays, predicted and true classes. Nothing is unpickled."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import UNREADABLE, claimed_bytes, refuse_larger_inside
from guest.records import bounded, csv_values, plain_json
from guest.records.bounded import opened_bounded, read_bounded

CLASSES_OF = ("predictions", "y_pred", "predicted", "prediction", "labels", "logits", "last")
NAMES = ("workload", "variant")  # texts in a table, whatever they look like
UNNAMED = re.compile(r"(Unnamed: \d+)?")  # as pandas reads a name that is empty
TRUTH_OF = ("y_true", "truth", "labels_true")


class ImportFormatError(ValueError):
    """What was given cannot be read; the text names the file and what is allowed."""


class NotFiniteError(ImportFormatError):
    """Scores, as of a diverged training, whose largest is no number: they are no class."""


def table(source: Path) -> Any:
    """A CSV, or a list of objects in JSON, as a table; other JSON as it is."""
    content = read_bounded(source, bounded.IMPORTED).removeprefix(codecs.BOM_UTF8)
    if source.suffix == ".csv":
        _bound_cells(source, content.count(b"\n") + 1, content.partition(b"\n")[0].count(b",") + 1)
        return _csv(source, content)
    data = plain_json.parse(content, bounded.IMPORTED)
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        return data
    _bound_cells(source, len(data), len({key for row in data for key in row}))
    found = pd.DataFrame(data)
    for name in NAMES:
        if name in found:
            found[name] = ["" if row.get(name) is None else str(row[name]) for row in data]
    return found


def _csv(source: Path, content: bytes) -> pd.DataFrame:
    """A CSV; lines may end with commas beyond its columns, and the first column is no index for that. Spaces
    beside commas belong to no name."""
    _check_header(source, content)
    with warnings.catch_warnings(record=True) as longer:
        warnings.simplefilter("always", pd.errors.ParserWarning)
        found = _stripped(pd.read_csv(io.BytesIO(content), index_col=False, skipinitialspace=True))
        if names := [name for name in NAMES if name in found]:
            texts = pd.read_csv(
                io.BytesIO(content),
                index_col=False,
                skipinitialspace=True,
                usecols=lambda name: name.strip() in names,
                dtype=str,
                na_filter=False,
            )
            found[names] = _stripped(texts)[names].apply(lambda column: column.str.strip())
    if not longer:
        return found
    lines = _lines(source, content)
    columns = len(next(lines))
    for number, line in enumerate(lines, start=1):
        if any(line[columns:]):
            raise ImportFormatError(f"{source}: row {number} has more cells than there are columns")
    return found


def _lines(source: Path, content: bytes) -> Iterator[list[str]]:
    """The cells of the lines that are not empty."""
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")
    try:
        yield from filter(None, csv.reader(text, skipinitialspace=True))
    except csv.Error as error:
        raise ImportFormatError(f"{source}: cannot be read: {error}") from error


def _check_header(source: Path, content: bytes) -> None:
    """Raises ImportFormatError for names that pandas would change, or not separate."""
    names = [cell.strip() for cell in next(_lines(source, content), [])]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise ImportFormatError(f"{source}: there are two columns {twice}")
    if other := next((mark for mark in ";\t" if len(names) == 1 and mark in names[0]), None):
        between = "tabs" if other == "\t" else other
        raise ImportFormatError(
            f"{source}: its columns are separated by {between}; save it with commas and decimal points"
        )


def _stripped(read: pd.DataFrame) -> pd.DataFrame:
    return read.set_axis([str(name).strip() for name in read.columns], axis=1)


def _bound_cells(source: Path, rows: int, columns: int) -> None:
    """A table has all columns in all rows, also where its text has one each."""
    if rows * columns > bounded.IMPORTED.items:
        raise ImportFormatError(
            f"{source}: {rows} rows of {columns} columns; {bounded.IMPORTED.items} cells are read at most"
        )


def classes(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """(predicted classes (N,), true classes (N,) or None). Scores (N, C) count by their largest."""
    try:
        named = _columns(path) if path.suffix == ".csv" else _arrays(path)
    except UNREADABLE as error:
        raise ImportFormatError(f"{path}: {error!s:.300}") from error
    own = next((np.asarray(named[key]) for key in TRUTH_OF if key in named), None)
    rest = [key for key in named if key not in TRUTH_OF]
    key = next((key for key in CLASSES_OF if key in named), rest[0] if len(rest) == 1 else None)
    if key is None and own is not None and not rest:
        return _whole(path, own), None
    if key is None:
        raise ImportFormatError(
            f"{path}: which of {', '.join(named)} are the predictions? Name one predictions"
        )
    return _whole(path, named[key]), None if own is None else _whole(path, own)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV: those without names together as `predictions`."""
    content = read_bounded(path, bounded.IMPORTED)
    text = io.StringIO(content.decode("utf-8-sig"), newline=None)
    first = csv_values.cells(text.readline())
    if first == [""] or not all(name == "" or csv_values.is_number(name) for name in first):
        frame = table(path)
        return {str(column): frame[column].to_numpy() for column in frame.columns}
    _bound_cells(path, content.count(b"\n") + content.count(b",") + 1, 1)
    text.seek(0)
    return {CLASSES_OF[0]: csv_values.read(text)}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of numpy's: the one in an .npy as `predictions`."""
    with opened_bounded(path, bounded.ARRAY) as file:
        if path.suffix == ".npz":
            refuse_larger_inside(file, bounded.ARRAY.bytes)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        if claimed_bytes(file, path.name) > bounded.ARRAY.bytes:
            raise ValueError(f"says it has more than {bounded.ARRAY.bytes} bytes")
        file.seek(0)
        return {CLASSES_OF[0]: np.load(file, allow_pickle=False)}


def _whole(path: Path, values: np.ndarray) -> np.ndarray:
    """Classes, from classes or scores."""
    if values.ndim == 2 and values.shape[1] > 1 and np.issubdtype(values.dtype, np.number):
        broken = int((~np.isfinite(values.max(axis=1))).sum())
        if broken:
            raise NotFiniteError(f"scores that are not finite for {broken} of {len(values)} samples")
        return np.asarray(values.argmax(axis=1))
    flat = values.reshape(-1)
    whole = np.issubdtype(flat.dtype, np.number) and len(flat) and bool((flat == np.floor(flat)).all())
    if not whole or flat.min() < 0 or flat.max() >= 2**31:
        raise ImportFormatError(f"{path}: classes as whole numbers from 0 are expected, or scores (N, C)")
    return flat.astype(np.int64)
