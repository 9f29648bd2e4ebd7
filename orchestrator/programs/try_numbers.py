"""The named numbers in the files that a program wrote: JSON, CSV and TensorBoard's events."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from guest.projects import events
from guest.projects.artifacts import is_number

LIMIT_BYTES = 64 << 20
LIMIT_VALUES = 200_000  # of a file
DEPTH = 30
Named = Iterator[tuple[str, str]]
SEPARATED = {".csv": ",", ".tsv": "\t"}


class _Written(str):
    """A number as it is written: no digit is lost, and none added."""

    __slots__ = ()


def holds_numbers(name: str) -> bool:
    """By the file's name alone."""
    path = Path(name)
    return path.suffix.lower() in (".json", ".jsonl", *SEPARATED) or ".tfevents." in path.name


def read(path: Path) -> dict[str, tuple[str, ...]]:
    """The values of each name, in the order of the file. Nothing for a file that is too large or not of the
    format of its name."""
    if path.stat().st_size > LIMIT_BYTES:
        return {}
    try:
        named = list(itertools.islice(_named(path), LIMIT_VALUES + 1))
    except (OSError, ValueError, csv.Error, RecursionError):
        return {}
    return by_name(named) if len(named) <= LIMIT_VALUES else {}


def by_name(named: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The values of each name, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in named:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _named(path: Path) -> Named:
    suffix = path.suffix.lower()
    if ".tfevents." in path.name:
        return ((tag, repr(value)) for _, tag, value in events.read(path))
    if suffix in SEPARATED:
        return _columns(path, SEPARATED[suffix])
    text = path.read_text(encoding="utf-8")
    if suffix == ".jsonl":
        rows = (json.loads(line, parse_float=_Written) for line in text.splitlines() if line.strip())
        return (pair for row in rows for pair in _leaves(row, ""))
    return _leaves(json.loads(text, parse_float=_Written), "")


def _leaves(value: Any, name: str, depth: int = 0) -> Named:
    """Numbers as they are written, by their keys; those of a list are one after the other."""
    if depth > DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, name, depth + 1)
    elif isinstance(value, int | float | _Written) and not isinstance(value, bool):
        yield name or "value", str(value)


def _columns(path: Path, separator: str) -> Named:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        head = next(rows, [])
        named = not any(map(is_number, head))
        columns = [text.strip() for text in head] if named else [f"column {i + 1}" for i in range(len(head))]
        for row in rows if named else (head, *rows):
            for name, value in zip(columns, row, strict=False):
                if is_number(value):
                    yield name, value.strip()
