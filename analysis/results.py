"""The vocabulary of the analysis: tables, findings, implications, and the whole they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.load import Study, View
from analysis.predictions import Predictions

ALPHA = 0.05
ACROSS = "across thread counts"


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


class Kind(StrEnum):
    """How a column's numbers are written; see `analysis.cells`."""

    TEXT = "text"
    COUNT = "count"
    METRIC = "metric"  # five decimals
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


VIEWS_NOTE = "View 'last' is without model selection, 'selected' the model with the best validation metric."
WHERE = (Column(header="workload", source="workload"), Column(header="variant", source="variant"))
"""The columns by which most tables begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with everything needed to read it. `frame` holds the raw numbers (NaN: not
    applicable); `columns` say what is shown, in order. A table that is not `shown` is written to
    CSV and JSON only."""

    name: str
    title: str
    note: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    shown: bool = True


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

    study: Study
    tables: dict[str, Table]
    findings: tuple[Finding, ...]
    implications: tuple[Implication, ...]
    alarms: tuple[str, ...]
    predictions: Predictions
    views: tuple[View, ...]  # the ones its tables show
