"""The vocabulary of the analysis: tables, findings, implications, and the whole they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, View, select
from guest.records.printable import printable

ALPHA = 0.05
ACROSS = "across thread counts"


class Verdict(StrEnum):
    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    MIXED = "mixed"  # over all workloads: supported for some, not supported for others
    INCONCLUSIVE = "inconclusive"


class Kind(StrEnum):
    """How a column's numbers are written; see `analysis.results.cells`."""

    TEXT = "text"
    COUNT = "count"
    METRIC = "metric"  # five decimals; three significant digits below 0.001
    SPREAD = "spread"  # two significant digits: differences, standard deviations
    SECONDS = "seconds"
    RATIO = "ratio"
    P = "p"
    LEVEL = "level"  # identical / differ, with how many distinct of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One shown column. `low` and `high` name the columns of an interval; for Kind.LEVEL they name
    the number of distinct values and n."""

    header: str
    source: str
    kind: Kind = Kind.TEXT
    low: str = ""
    high: str = ""


def col(source: str, header: str = "", kind: Kind = Kind.TEXT) -> Column:
    """A column under its source's name, or under `header`."""
    return Column(header=header or source.replace("_", " "), source=source, kind=kind)


def cols(*sources: str, kind: Kind = Kind.TEXT) -> tuple[Column, ...]:
    """Columns of one kind under their sources' names."""
    return tuple(col(source, kind=kind) for source in sources)


def count(source: str, header: str = "") -> Column:
    return col(source, header, Kind.COUNT)


def counts(*sources: str) -> tuple[Column, ...]:
    return cols(*sources, kind=Kind.COUNT)


def several_seeds(rows: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The column of seeds, where some row is of more than one."""
    return counts("seeds") if any((row["seeds"] or 0) > 1 for row in rows) else ()


def interval(source: str, header: str = "", kind: Kind = Kind.SPREAD, *, bounds: str | None = None) -> Column:
    """An estimate with its bounds, in the columns of `Estimate.cells(source, bounds)`."""
    low, high = bound_names(source if bounds is None else bounds)
    return dataclasses.replace(col(source, header, kind), low=low, high=high)


def bound_names(name: str) -> tuple[str, str]:
    """The columns of an interval: `mean_low` and `mean_high`; `low` and `high` of an empty name."""
    return (f"{name}_low", f"{name}_high") if name else ("low", "high")


VIEWS_NOTE = "View 'last' is without model selection, 'selected' the model with the best validation metric."
WHERE = cols("workload", "variant")
"""The columns by which most tables begin."""
SCOPE = (*WHERE, col("view"), col("scope", "threads"), count("n"))
"""... and those of the sets and of what lies across them."""


MAIN = (
    "verdicts",  # the same model?
    "performance",  # quality, with the SD between thread counts relative to that between seeds
    "tests",  # differences
    "time",
    "churn",
    "traces", "hardening",  # cause and cure
    "imported", "against",  # asked for by name
)  # fmt: skip
"""The tables of the main text, in the order of reading; all others are in the appendix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with everything needed to read it. `frame` holds the raw numbers (NaN: not
    applicable); `columns` say what is shown, in order. A table without any is written to CSV and JSON
    only."""

    name: str
    title: str
    note: str
    frame: pd.DataFrame
    columns: tuple[Column, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Any]],
        *columns: Column,
        name: str,
        title: str,
        note: str,
        hidden: Sequence[str] = (),
    ) -> Table:
        """A table of rows by column name, with texts that can be shown: many are a stranger's. Its frame has
        what the rows have, in their order, then the columns that no row has, shown and `hidden`."""
        frame = pd.DataFrame([{name: _shown(value) for name, value in row.items()} for row in rows])
        wanted = [n for c in columns for n in (c.source, c.low, c.high) if n] + list(hidden)
        lacking = [n for n in dict.fromkeys(wanted) if n not in frame.columns]
        frame = frame.reindex(columns=[*frame.columns, *lacking]) if lacking else frame
        return cls(name=name, title=title, note=printable(note), frame=frame, columns=columns)

    def rows_of(self, workload: str, **where: str) -> pd.DataFrame:
        """Its rows of a workload in which the named columns have these values."""
        return select(self.frame, workload=workload, **where)


def _shown(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the reference study, decided from this study's tables. `workload` is empty for
    the finding over all workloads."""

    id: str
    workload: str
    statement: str
    verdict: Verdict
    why: str
    numbers: dict[str, Any] = field(default_factory=dict)
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Implication:
    """What to do about it, with this study's numbers."""

    id: str
    advice: str
    evidence: tuple[str, ...]  # one line a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The whole result. `alarms` are what a reader must not miss."""

    study: StudyData
    tables: dict[str, Table]
    findings: tuple[Finding, ...]
    implications: tuple[Implication, ...]
    alarms: tuple[str, ...]
    predictions: Predictions
    views: tuple[View, ...]  # the ones its tables show
