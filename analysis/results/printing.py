"""The result as text: for a terminal, for a program, for a paper."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from analysis.results import latex
from analysis.results.cells import NUMERIC, headers, missing, rows
from analysis.results.model import (
    MAIN,
    WHERE,
    Analysis,
    Finding,
    Kind,
    Table,
    bound_names,
    col,
    cols,
    interval,
)

SCHEMA_VERSION = 1  # of findings.json and `--format json`
PAGE_WIDTH = 160  # characters, where there is no terminal to ask
GAP = 2  # characters between columns


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


def console_for(file: TextIO) -> Console:
    """As wide as the terminal or COLUMNS say, or as a page where neither is there."""
    known = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, width=None if known else PAGE_WIDTH, highlight=False)


def print_tables(tables: Sequence[Table], file: TextIO) -> None:
    """For a person."""
    console_for(file).print(*map(TableText, tables), sep="\n")


def render(analysis: Analysis, form: Format) -> str:
    """The whole result as text, ending in a newline; as CSV its findings, for a file of CSV is one table."""
    match form:
        case Format.JSON:
            tables = {name: _records(table) for name, table in analysis.tables.items()}
            return to_json(as_data(analysis) | {"tables": tables})
        case Format.MARKDOWN:
            return _markdown(analysis)
        case Format.LATEX:
            return _latex(analysis)
        case Format.CSV:
            return to_csv(findings_table(analysis))
        case Format.TABLE:
            return render_tables(all_tables(analysis), form)


def render_tables(tables: Sequence[Table], form: Format, console: Console | None = None) -> str:
    """Tables as text, ending in a newline; in the width and colours of a console where one is given. Raises
    ValueError for CSV of several: readers of CSV know one table a file."""
    match form:
        case Format.JSON:
            return to_json({"tables": {table.name: _records(table) for table in tables}})
        case Format.MARKDOWN:
            return "\n\n".join(map(markdown_table, tables)) + "\n"
        case Format.LATEX:
            return "\n\n".join([latex.NEEDS, *map(latex_table, tables)]) + "\n"
        case Format.CSV:
            if len(tables) != 1:
                raise ValueError(f"{len(tables)} tables are no CSV file; name one")
            return to_csv(tables[0])
        case Format.TABLE:
            console = console or console_for(io.StringIO())
            with console.capture() as captured:
                console.print(*map(TableText, tables), sep="\n")
            return captured.get()


def all_tables(analysis: Analysis) -> list[Table]:
    """The findings, the main text and the appendix: all that have rows."""
    return [findings_table(analysis), *main_tables(analysis), *appendix_tables(analysis)]


def chosen(analysis: Analysis, names: Sequence[str]) -> list[Table]:
    """The tables of these names. Raises NoTableError for one that this study does not have."""
    every = {"findings": findings_table(analysis), **analysis.tables}
    if lacking := next((name for name in names if name not in every), None):
        raise NoTableError(f"no table {lacking!r} in this study; there are {', '.join(every)}")
    return [every[name] if every[name].columns else _whole(every[name]) for name in names]


def _whole(table: Table) -> Table:
    """A long table, which has no columns for the report, with all of its frame."""
    names = list(table.frame.columns)
    bounds = {bound for name in names for bound in bound_names(name) if bound in names}
    columns = [
        interval(name) if bound_names(name)[0] in names else col(name, kind=_kind(table.frame[name]))
        for name in names
        if name not in bounds
    ]
    return dataclasses.replace(table, columns=tuple(sorted(columns, key=lambda c: c.kind is not Kind.TEXT)))


def _kind(values: pd.Series) -> Kind:
    if pd.api.types.is_integer_dtype(values):
        return Kind.COUNT
    return Kind.METRIC if pd.api.types.is_float_dtype(values) else Kind.TEXT


class NoTableError(ValueError):
    """A table that the study does not have; the text names those there are."""


def findings_table(analysis: Analysis) -> Table:
    """The findings as a table among the others."""
    rows_ = [
        {"id": f.id, "workload": f.workload or "all", "verdict": f.verdict.value}
        | {"statement": f.statement, "why": f.why}
        for f in shown_findings(analysis)
    ]
    return Table.of(
        rows_,
        col("id", "finding"),
        *cols("workload", "verdict", "statement", "why"),
        name="findings",
        title="Findings",
        note="",
    )


def shown_findings(analysis: Analysis) -> list[Finding]:
    """All findings that have data (F6 has none where nothing was scanned); with a single workload only the
    ones over all, which say the same."""
    single = len(analysis.study.metrics) == 1
    return [f for f in analysis.findings if f.table and not (single and f.workload)]


def main_tables(analysis: Analysis) -> list[Table]:
    """Those of the main text that have rows."""
    return [
        analysis.tables[name] for name in MAIN if name in analysis.tables and _shows(analysis.tables[name])
    ]


def appendix_tables(analysis: Analysis) -> list[Table]:
    """The others that have rows."""
    return [table for name, table in analysis.tables.items() if name not in MAIN and _shows(table)]


def _shows(table: Table) -> bool:
    return bool(table.columns) and len(table.frame) > 0


# ---- for a terminal ------------------------------------------------------------------------------


class TableText:
    """A table for a terminal, as wide as that: whole words in every column. Where there is no room, what all
    rows share stands once, above; then cells are broken between words; then workload and variant become
    headings; then columns are left out, the last first, for they stand by importance."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table, width = self.table, options.max_width
        body, kept = rows(table), list(range(len(table.columns)))
        texts = [[head, *(row[i] for row in body)] for i, head in enumerate(headers(table))]
        widths = [max(map(cell_len, cells)) for cells in texts]
        least = [
            max((cell_len(word) for text in cells for word in text.split()), default=0) for cells in texts
        ]
        shared: list[int] = []
        if _wide(widths, kept) > width and len(body) > 1:
            shared = [i for i in kept if len(set(texts[i][1:])) == 1]
            kept = [i for i in kept if i not in shared]
        keys: list[int] = []
        while _wide(least, kept) > width and len(kept) > 1 and table.columns[kept[0]] in WHERE:
            keys.append(kept.pop(0))
        dropped: list[str] = []
        while _wide(least, kept) > width and len(kept) > 1:
            dropped.insert(0, texts[kept.pop()][0])
        while _wide(widths, kept) > width and (broken := [i for i in kept if widths[i] > least[i]]):
            widths[max(broken, key=lambda i: widths[i])] -= 1
        title = "; ".join([table.title, *(f"{texts[i][0]}: {texts[i][1]}" for i in shared)])
        yield Text(f"\n{title}", style="bold")
        blocks = groupby(body, key=lambda row: ", ".join(row[i] for i in keys))
        for number, (heading, block) in enumerate(blocks or [("", [])]):
            if heading:
                yield Text(heading, style="bold")
            yield self._grid(list(block), kept, widths, head=number == 0)
        notes = [
            f"Left out, as the terminal is too narrow: {', '.join(dropped)}." if dropped else "",
            "" if body else "No rows.",
            table.note,
        ]
        if note := " ".join(filter(None, notes)):
            yield Text(note, style="dim")

    def _grid(
        self, body: Sequence[Sequence[str]], kept: Sequence[int], widths: Sequence[int], *, head: bool
    ) -> RichTable:
        grid = RichTable(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_header=head
        )
        columns = [self.table.columns[i] for i in kept]
        for column, i in zip(columns, kept, strict=True):
            grid.add_column(
                column.header, justify="right" if column.kind in NUMERIC else "left", width=widths[i]
            )
        keys = sum(column in WHERE for column in columns)
        before: list[str] = []
        for row in body:
            cells = [row[i] for i in kept]
            grid.add_row(*(Text(text) for text in _unrepeated(cells, before, keys)))
            before = cells
        return grid


def _wide(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)


def _unrepeated(row: Sequence[str], before: Sequence[str], keys: int) -> list[str]:
    """The row without the leading keys that it shares with the row above."""
    same = 0
    while same < keys and before and row[same] == before[same]:
        same += 1
    return [""] * same + list(row[same:])


# ---- for a program -------------------------------------------------------------------------------


def as_data(analysis: Analysis) -> dict[str, Any]:
    """findings.json: everything decided, without the tables."""
    study = analysis.study
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": len(study.runs),
        "workloads": list(study.metrics),
        "variants": list(study.runs.variant.unique()),
        "threads": list(study.runs.threads.unique()),
        "alarms": list(analysis.alarms),
        "findings": [asdict(f) | {"workload": f.workload or None} for f in analysis.findings],
        "implications": list(map(asdict, analysis.implications)),
        "problems": list(map(asdict, study.problems)),
    }


def to_json(data: Any) -> str:
    """Valid JSON: what is missing or not finite becomes null."""
    return json.dumps(_plain(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def _records(table: Table) -> list[dict[Any, Any]]:
    return table.frame.to_dict("records")


def to_csv(table: Table) -> str:
    """The raw numbers of a table, in full; a list in one cell is joined by semicolons."""
    frame = table.frame.map(lambda v: ";".join(map(str, v)) if isinstance(v, (list, tuple)) else v)
    return str(frame.to_csv(index=False, lineterminator="\n"))


# ---- for a paper ---------------------------------------------------------------------------------


def _markdown(analysis: Analysis) -> str:
    parts = [markdown_table(findings_table(analysis))]
    parts += [f"**{_pipe(alarm)}**" for alarm in analysis.alarms]
    parts.append("## Implications")
    for i in analysis.implications:
        parts.append("\n".join([f"**{i.id}** {_pipe(i.advice)}", "", *(f"- {_pipe(e)}" for e in i.evidence)]))
    parts += map(markdown_table, main_tables(analysis))
    if others := appendix_tables(analysis):
        parts += ["# Appendix", *map(markdown_table, others)]
    if analysis.study.problems:
        parts.append("## Problems\n\n" + "\n".join(f"- {_pipe(str(p))}" for p in analysis.study.problems))
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A table with its title and note."""
    rules = ["---:" if column.kind in NUMERIC else "---" for column in table.columns]
    return f"## {table.title}\n\n{_pipe_table(headers(table), rows(table), rules)}\n\n{table.note}".rstrip()


def _pipe_table(head: Sequence[str], body: Sequence[Sequence[str]], rules: Sequence[str]) -> str:
    lines = [[_pipe(cell) for cell in head], list(rules), *([_pipe(cell) for cell in row] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pipe(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*_<>[]#" else c for c in text).replace("\n", " ")


def latex_table(table: Table) -> str:
    """A table with its title and note; `latex.NEEDS` says what it needs."""
    numbers = [column.kind in NUMERIC for column in table.columns]
    return latex.table(table.name, table.title, table.note, headers(table), rows(table), numbers)


def _latex(analysis: Analysis) -> str:
    parts = [latex.NEEDS, latex_table(findings_table(analysis))]
    parts += map(latex_table, main_tables(analysis))
    parts += ["% appendix", *map(latex_table, appendix_tables(analysis))]
    return "\n\n".join(parts) + "\n"
