"""How numbers are written: few digits that mean something, the interval beside the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count
from typing import Any

import pandas as pd

from analysis.results.model import ALPHA, Column, Kind, Table

NOTHING = "–"
NUMERIC = (Kind.COUNT, Kind.METRIC, Kind.SPREAD, Kind.SECONDS, Kind.RATIO, Kind.P)


def headers(table: Table) -> list[str]:
    return [column.header for column in table.columns]


def rows(table: Table) -> list[list[str]]:
    """The shown cells of a table, row by row."""
    records = table.frame.to_dict("records")
    return [[cell(column, record) for column in table.columns] for record in records]


def cell(column: Column, record: Mapping[Any, Any]) -> str:
    """One cell. Lists are joined by " · "; what is missing is a dash, never NaN."""
    value = record[column.source]
    if isinstance(value, (list, tuple)):
        none = [None] * len(value)
        bounds = (record[column.low], record[column.high]) if column.low else (none, none)
        return " · ".join(_told(column.kind, *each) for each in zip(value, *bounds, strict=True)) or NOTHING
    if column.kind is Kind.LEVEL:
        return level(str(value), int(record[column.low]), int(record[column.high]))
    low, high = (record[column.low], record[column.high]) if column.low else (None, None)
    return _told(column.kind, value, low, high)


def _told(kind: Kind, value: Any, low: Any, high: Any) -> str:
    """A value with its interval, where it has one."""
    text = number(kind, value)
    if text == NOTHING or missing(low) or missing(high):
        return text
    if low == high == value:
        return f"{text} (exact)"
    return interval(kind, value, low, high)


def level(verdict: str, distinct: int, n: int) -> str:
    """`identical (n=3)`, of several seeds `identical for each seed (n=6)`, `differ (4 distinct of 12)`, or
    the verdict as it is."""
    if verdict == "identical":
        return f"identical{' for each seed' * (distinct > 1)} (n={n})"
    return f"differ ({distinct} distinct of {n})" if verdict == "differ" else verdict


def interval(kind: Kind, value: float, low: float, high: float) -> str:
    """`0.0012 [0.0006, 0.0074]`: the bounds with as many decimals as the estimate; all three with exponents
    where one has one."""
    like = value or max(low, high, key=abs)
    texts = {value: number(kind, value), low: _bound(kind, low, like), high: _bound(kind, high, like)}
    if any("e" in text for text in texts.values()):
        texts |= {x: f"{x:.1e}" for x in texts if x and math.isfinite(x)}
    return f"{texts[value]} [{texts[low]}, {texts[high]}]"


def _bound(kind: Kind, bound: float, like: float) -> str:
    """With its own first digit where it would seem to be 0: on which side of 0 it lies is a verdict."""
    text = number(kind, bound, like=like)
    return significant(bound, bound, digits=1) if bound and not text.strip("-0.") else text


def number(kind: Kind, value: Any, like: float | None = None) -> str:
    """One value as text; `like` is the number whose decimals are used."""
    if missing(value):
        return NOTHING
    if isinstance(value, str):
        return value or NOTHING
    if isinstance(value, bool) or kind is Kind.TEXT:
        return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    return _finite(kind, float(value), float(value) if like is None else float(like))


def spread(value: Any) -> str:
    """A difference or a standard deviation in a sentence."""
    return number(Kind.SPREAD, value)


def p_value(value: Any) -> str:
    """A p value in a sentence: `= 0.012`, `< 0.001`."""
    text = number(Kind.P, value)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def _finite(kind: Kind, value: float, like: float) -> str:
    match kind:
        case Kind.COUNT:
            return f"{value:.10g}"
        case Kind.METRIC if like == 0 or abs(like) >= 1e-3:
            return f"{value:.5f}"
        case Kind.RATIO:
            return f"{value:.2f}"
        case Kind.P:
            if value < 0.001:
                return "<0.001"
            texts = (f"{value:.{digits}f}" for digits in count(3))
            # On the side of ALPHA on which a verdict has it.
            return next(text for text in texts if value == ALPHA or float(text) != ALPHA)
        case Kind.METRIC | Kind.SECONDS:
            return significant(value, like, digits=3)
        case _:
            return significant(value, like, digits=2)


def significant(value: float, like: float, digits: int) -> str:
    """`value` with the decimals that give `like` so many significant digits."""
    if value == 0:
        return "0"
    if like == 0 or abs(like) < 1e-6 or abs(like) >= 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(like))))}f}"


def missing(value: Any) -> bool:
    """Whether a cell of a frame holds nothing: None or NaN."""
    return value is None or (not isinstance(value, (list, tuple, str)) and bool(pd.isna(value)))
