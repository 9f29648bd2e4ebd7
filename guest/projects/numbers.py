"""A project's metrics: read from the lines it prints, the files it leaves, or what it reports."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from guest.projects import events
from guest.records import bounded
from guest.records.run import MetricSource, history_columns, most_epochs

REPORTED = "metrics.jsonl"  # what vbstudy.report writes
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")  # 0,93 is a mistake, not 93
Row = dict[str, Any]


class MetricError(ValueError):
    """A metric that cannot be read; the text names it, and what was there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of a metric. `epoch` is None where the project does not number it."""

    value: float
    epoch: int | None = None
    elapsed_s: float = math.nan


class Patterns:
    """Watches the lines of output for the metrics that are declared by a pattern."""

    def __init__(self, sources: Sequence[MetricSource]) -> None:
        self._patterns = {s.name: re.compile(s.pattern) for s in sources if s.pattern}
        self.values: dict[str, list[Value]] = {name: [] for name in self._patterns}
        self.notes: list[str] = []

    def line(self, text: str, elapsed_s: float) -> dict[str, float]:
        """Reads one line; the metrics that are new. A line that matches more than once counts once, with its
        last match, and is noted. Raises MetricError when what matched is not a number."""
        new = {}
        for name, pattern in self._patterns.items():
            matches = list(pattern.finditer(text))
            if not matches:
                continue
            if len(matches) > 1:
                times = f"{len(matches)} times on one line"
                note = f"metric {name}: its pattern matches {times}, the last match counts"
                if not any(known.startswith(note) for known in self.notes):
                    self.notes.append(f"{note}: {text.strip()[:160]!r}")
            match = matches[-1]
            epoch = match.groupdict().get("epoch")
            found = match.groupdict().get("value") or match[1]
            new[name] = number(found, name, f"the line {text.strip()[:160]!r}")
            numbered = int(epoch) if epoch and epoch.isdigit() else None
            self.values[name].append(Value(value=new[name], epoch=numbered, elapsed_s=elapsed_s))
        return new


def number(text: object, name: str, where: str) -> float:
    """A number as printed: `0.93`, `1e-3`, `nan`, `1,334.5`, `93.1 %` (the sign is dropped)."""
    plain = str(text).strip().removesuffix("%").strip()
    try:
        return float(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
    except ValueError:
        raise MetricError(f"metric {name}: {text!r} is not a number, in {where}") from None


def collect(
    sources: Sequence[MetricSource], printed: Patterns, folder: Path, reported: Path, last_lines: str
) -> dict[str, list[Value]]:
    """All values of all metrics, in the order of their appearance. `folder` is the project's, `reported`
    where vbstudy.report writes. Raises MetricError for one that has no value, with the last lines of
    output."""
    found = {}
    for source in sources:
        if source.pattern:
            values = printed.values[source.name]
            if not values:
                raise MetricError(
                    f"metric {source.name}: pattern {source.pattern!r} matched no line of the output; "
                    f"its last lines:\n{last_lines or '(there is no output)'}"
                )
        elif source.file:
            values = _from_file(source, folder)
        else:
            values = _reported(source.name, reported)
        found[source.name] = values
    return found


def history(values: Mapping[str, Sequence[Value]], wall_s: float) -> list[Row]:
    """One row an epoch with the columns of `guest.records.run.history_columns`. A metric that was given fewer
    times than another belongs to the last epochs, unless it has numbers; unknown values are NaN or "". Raises
    MetricError for more rows than are read again."""
    longest = max(values, key=lambda name: _length(values[name]))
    epochs = max(1, _length(values[longest]))
    metrics = [name for name in values if name not in ("train_loss", "validation_loss", "test_loss")]
    empty: Row = dict.fromkeys(history_columns(metrics), math.nan)
    if epochs > (most := most_epochs(metrics)):
        raise MetricError(
            f"metric {longest}: has {epochs} values, of which at most {most} are kept: give one an epoch"
        )
    empty |= dict.fromkeys((name for name in empty if name.endswith("sha256")), "")
    empty |= {"step": 0, "selected_epoch": 0, "elapsed_s": wall_s}
    rows = [empty | {"epoch": epoch} for epoch in range(1, epochs + 1)]
    for name, each in values.items():
        column = name if name not in metrics else f"test_{name}"
        numbered = _numbered(each)
        for i, value in enumerate(each):
            at = (value.epoch or 1) - 1 if numbered else epochs - len(each) + i
            rows[at][column] = value.value
            if math.isfinite(value.elapsed_s):
                rows[at]["elapsed_s"] = value.elapsed_s
    return rows


def _numbered(values: Sequence[Value]) -> bool:
    """Whether the project's own numbers can be taken: one each, counted from 1, none twice, few left out."""
    numbers = [value.epoch for value in values if value.epoch is not None]
    complete = len(set(numbers)) == len(values) and min(numbers) >= 1
    return complete and max(numbers) <= 100 * len(values)


def _length(values: Sequence[Value]) -> int:
    return max(value.epoch or 0 for value in values) if _numbered(values) else len(values)


# ---- files ------------------------------------------------------------------------------------------


def _from_file(source: MetricSource, folder: Path) -> list[Value]:
    path, where = folder / source.file, f"metric {source.name}: {source.file}"
    if not path.resolve().is_relative_to(folder.resolve()):  # as by a link
        raise MetricError(f"{where} leads out of the project's folder")
    if path.is_dir():
        try:
            found = events.scalars(path, source.key)
        except (events.EventError, OSError) as error:
            raise MetricError(f"{where} {error}") from None
        return [Value(value=value) for _, value in found]
    if not path.is_file():
        raise MetricError(f"{where}: the project wrote no such file")
    try:
        text = path.read_text(encoding="utf-8")
        raw = _READERS.get(path.suffix.lower(), _json)(text, source.key)
    except (OSError, UnicodeDecodeError, csv.Error, RecursionError) as error:
        raise MetricError(f"{where}: cannot be read: {error}") from None
    except ValueError as error:
        raise MetricError(f"{where}: {error}") from None
    return [Value(value=number(each, source.name, source.file)) for each in raw]


def _json(text: str, key: str) -> list[Any]:
    """The value at a dotted key; a list there is one value an epoch."""
    found = _at(json.loads(text), key)
    return list(_flat(found)) or [found]


def _json_lines(text: str, key: str) -> list[Any]:
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    values: list[Any] = []
    for row in rows:
        with contextlib.suppress(ValueError):  # lines of another kind
            values += _flat(_at(row, key))
    if not values:
        raise ValueError(f"none of its {len(rows)} lines has the key {key!r}")
    return values


def _at(data: Any, key: str, before: str = "") -> Any:
    """The value at a dotted key. A key may have dots in it; of a list, a key that is no index is that of each
    table which has it. `value` is a file's number without a key, as `vbstudy try` names it."""
    if not key:
        return data
    if isinstance(data, dict):
        name = max((known for known in data if f"{key}.".startswith(f"{known}.")), key=len, default=None)
        if name is not None:
            return _at(data[name], key[len(name) + 1 :], f"{before}{name}.")
    elif isinstance(data, list):
        part, _, rest = key.partition(".")
        if re.fullmatch(r"-?\d+", part) and -len(data) <= int(part) < len(data):
            return _at(data[int(part)], rest, f"{before}{part}.")
        found = []
        for each in data:
            with contextlib.suppress(ValueError):
                found.append(_at(each, key, before))
        if found:
            return found
    elif key == "value" and not before:
        return data
    there = ", ".join(map(str, data)) if isinstance(data, dict) else f"a {type(data).__name__}"
    raise ValueError(f"has no key {before + key!r}; {before[:-1] or 'the file'} has {there[:200]}")


def _flat(value: Any) -> Iterator[Any]:
    """What is in nested lists, in order."""
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _column(text: str, key: str, separator: str = ",") -> list[Any]:
    head, *rows = csv.reader(text.splitlines() or [""], delimiter=separator)
    columns = {name.strip(): i for i, name in enumerate(head)}
    if key.strip() not in columns:
        raise ValueError(f"has no column {key!r}; there are {', '.join(columns) or 'none'}")
    at = columns[key.strip()]
    values = [row[at] for row in rows if row[at:] and row[at].strip()]
    if not values:
        raise ValueError(f"column {key!r} is empty")
    return values


_READERS: dict[str, Callable[[str, str], list[Any]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _column,
    ".tsv": partial(_column, separator="\t"),
}


def reported(folder: Path) -> list[tuple[str, Value]]:
    """What `vbstudy.report.metric` was given, by name. Raises MetricError for a file that is not its own."""
    path = folder / REPORTED
    if not path.exists():
        return []
    try:
        rows = list(map(json.loads, bounded.read_bounded(path, bounded.HISTORY).decode().splitlines()))
        return [(row["name"], Value(value=float(row["value"]), epoch=row["epoch"])) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise MetricError(f"{REPORTED}: cannot be read: {error}") from None


def _reported(name: str, folder: Path) -> list[Value]:
    rows = reported(folder)
    values = [value for known, value in rows if known == name]
    if not values:
        others = ", ".join(dict.fromkeys(known for known, _ in rows)) or "nothing"
        raise MetricError(
            f"metric {name}: the project did not report it (it reported {others}); give it a pattern or a "
            f"file, or call vbstudy.report.metric({name!r}, ...)"
        )
    return values
