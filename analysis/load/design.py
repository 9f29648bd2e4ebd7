"""What a study declared before its runs: the table [analysis] of its study file. Without it, and without a
file, the defaults count."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.load.runs import Problem
from guest.records import bounded
from guest.records.bounded import read_bounded

STUDY_FILE = "study.toml"
MARGIN = 0.01
"""Means nearer than this count as the same. A metric of ours (`Metric`) is a share, and one in a hundred test
samples is less than what papers report as progress between methods."""
ALLOWED = "allowed are primary, the name of a metric, and margin, a number above 0"


class StudyFileError(ValueError):
    """A study file that is not TOML; the text states where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`primary` is the metric that findings are decided by, "" for the first of each workload, and `margin`
    its margin of equivalence, None where the study declared none. `selected` says whether the models with
    the best validation metric are decided by, and not the last ones. `declared`: the study has the table."""

    primary: str = ""
    margin: float | None = None
    selected: bool = False
    declared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many runs of each condition the study file plans, None where that is not known; and what to do
    `instead` of a sweep, where none can begin: the arguments of vbstudy, and why. Where runs failed,
    they are those of a sweep, and what to mend first."""

    runs: Mapping[str, int] | None = None
    instead: tuple[str, str] | None = None


def read_study_file(path: Path) -> str:
    """Its text, without a byte order mark. Raises OSError and UnicodeDecodeError."""
    return read_bounded(path, bounded.STUDY_FILE).decode("utf-8-sig")


def read_design(directory: Path) -> tuple[Design, tuple[Problem, ...]]:
    """The design, and a reservation where the file has one that cannot be read: then defaults count."""
    path = directory / STUDY_FILE
    try:
        data = tomllib.loads(read_study_file(path))
        return _design(data), ()
    except FileNotFoundError:
        return Design(), ()
    except (OSError, ValueError, RecursionError) as error:  # tomllib's and UnicodeDecodeError are ValueErrors
        todo = "correct it; until then findings are decided by the first metric and the default margin"
        return Design(), (Problem(path=STUDY_FILE, what=str(error), todo=todo, skipped=False),)


def _design(data: dict[str, Any]) -> Design:
    table = data.get("analysis", {})
    if not isinstance(table, dict):
        raise ValueError(f"analysis = {table!r} is no table; {ALLOWED}")  # noqa: TRY004  (one kind for callers)
    odd = next((key for key in table if key not in ("primary", "margin")), None)
    if odd is not None:
        raise ValueError(f"analysis.{odd}: unknown key; {ALLOWED}")
    primary, margin = table.get("primary", ""), table.get("margin")
    if not isinstance(primary, str):
        raise ValueError(f"analysis.primary = {primary!r}; {ALLOWED}")  # noqa: TRY004
    if margin is not None and not _is_margin(margin):
        raise ValueError(f"analysis.margin = {margin!r}; {ALLOWED}")
    return Design(
        primary=primary,
        margin=None if margin is None else float(margin),
        selected=data.get("model_selection") == "selected",
        declared="analysis" in data,
    )


def _is_margin(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
