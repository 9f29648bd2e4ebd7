"""The result as text: for a terminal, for a program, for a paper."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, TextIO

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from analysis.results import latex
from analysis.results.cells import NUMERIC, headers, missing, rows
from analysis.results.model import MAIN, Analysis, Finding, Implication, Table, Verdict

SCHEMA_VERSION = 1  # of findings.json and `--format json`
TERMINAL_ROWS = 60
PAGE_WIDTH = 160  # characters, where there is no terminal to ask
COLOURS = {Verdict.SUPPORTED: "green", Verdict.NOT_SUPPORTED: "red", Verdict.INCONCLUSIVE: "yellow"}


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


def print_to(analysis: Analysis, form: Format, file: TextIO, console: Console | None = None) -> None:
    """Writes the result to `file`. For Format.TABLE a console of the caller's is used when given."""
    if form is Format.TABLE:
        (console or console_for(file)).print(renderable(analysis))
    else:
        file.write(render(analysis, form))


def console_for(file: TextIO) -> Console:
    """As wide as the terminal, or as a page where there is none."""
    return Console(file=file, width=None if file.isatty() else PAGE_WIDTH)


def render(analysis: Analysis, form: Format) -> str:
    """The result as text, ending in a newline."""
    match form:
        case Format.JSON:
            tables = {name: _records(table) for name, table in analysis.tables.items()}
            return to_json(as_data(analysis) | {"tables": tables})
        case Format.MARKDOWN:
            return _markdown(analysis)
        case Format.LATEX:
            return _latex(analysis)
        case Format.CSV:
            parts = [f"# {table.name}: {table.title}\n{to_csv(table)}" for table in analysis.tables.values()]
            return "\n".join([f"# findings\n{_findings_csv(analysis)}", *parts])
        case Format.TABLE:
            file = io.StringIO()
            print_to(analysis, form, file)
            return file.getvalue()


def render_table(table: Table, form: Format) -> str:
    """One table as text, ending in a newline."""
    match form:
        case Format.JSON:
            return to_json({"name": table.name, "title": table.title, "rows": _records(table)})
        case Format.MARKDOWN:
            return markdown_table(table) + "\n"
        case Format.LATEX:
            return f"{latex.NEEDS}\n\n{latex_table(table)}\n"
        case Format.CSV:
            return to_csv(table)
        case Format.TABLE:
            file = io.StringIO()
            console_for(file).print(table_text(table))
            return file.getvalue()


def shown_findings(analysis: Analysis) -> list[Finding]:
    """All findings; with a single workload only the ones over all, which say the same."""
    single = len(analysis.study.metrics) == 1
    return [finding for finding in analysis.findings if not (single and finding.workload)]


def main_tables(analysis: Analysis) -> list[Table]:
    """Those of the main text that have rows."""
    return [
        analysis.tables[name] for name in MAIN if name in analysis.tables and _shows(analysis.tables[name])
    ]


def appendix_tables(analysis: Analysis) -> list[Table]:
    """The others that have rows."""
    return [table for name, table in analysis.tables.items() if name not in MAIN and _shows(table)]


def _shows(table: Table) -> bool:
    return table.shown and len(table.frame) > 0


# ---- for a terminal ------------------------------------------------------------------------------


def renderable(analysis: Analysis) -> RenderableType:
    """The tables of the main text first, then what to know of them; the findings stand last, where the eye
    is."""
    parts: list[RenderableType] = [table_text(table) for table in main_tables(analysis)]
    if others := [table.name for table in appendix_tables(analysis)]:
        listed = ", ".join(others)
        parts.append(Text(f"\nIn the report's appendix, and by --format csv, also: {listed}\n", style="dim"))
    parts += [Text.assemble(("note: ", "bold yellow"), str(problem)) for problem in analysis.study.problems]
    parts += [_rich_implication(implication) for implication in analysis.implications]
    parts.append(_rich_findings(analysis))
    parts += [Panel(Text(alarm, style="bold red"), border_style="red") for alarm in analysis.alarms]
    return Group(*parts)


def table_text(table: Table) -> RichTable:
    """A table for a terminal."""
    shown = RichTable(title=f"\n{table.title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in table.columns:
        shown.add_column(column.header, justify="right" if column.kind in NUMERIC else "left")
    cells = rows(table)
    before: list[str] = []
    for row in cells[:TERMINAL_ROWS]:
        shown.add_row(*(Text(text) for text in _unrepeated(row, before)))
        before = row
    left = len(cells) - TERMINAL_ROWS
    more = f"{left} more rows: --format csv prints them all. " if left > 0 else ""
    shown.caption, shown.caption_justify = more + table.note, "left"
    return shown


def _unrepeated(row: Sequence[str], before: Sequence[str], keys: int = 2) -> list[str]:
    """The row without the leading cells (workload, variant) it shares with the row above."""
    same = 0
    while same < keys and before and row[same] == before[same]:
        same += 1
    return [""] * same + list(row[same:])


def _rich_implication(implication: Implication) -> RenderableType:
    lines = [Padding(Text(line), (0, 0, 0, 3)) for line in implication.evidence]
    return Group(Text.assemble((f"{implication.id} ", "bold"), implication.advice), *lines)


def _rich_findings(analysis: Analysis) -> RichTable:
    shown = RichTable(title="\nFindings", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    shown.add_column("", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("statement and why")
    for finding in shown_findings(analysis):
        verdict = Text(finding.verdict, style=f"bold {COLOURS[finding.verdict]}")
        head = finding.workload or finding.statement
        why = Text.assemble((head, "" if finding.workload else "bold"), "\n", finding.why)
        shown.add_row("" if finding.workload else finding.id, verdict, why)
    return shown


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


def _findings_csv(analysis: Analysis) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([("id", *FINDING_HEADERS[1:]), *_finding_rows(analysis)])
    return file.getvalue()


# ---- for a paper ---------------------------------------------------------------------------------

FINDING_HEADERS = ("finding", "workload", "verdict", "statement", "why")


def _finding_rows(analysis: Analysis) -> list[list[str]]:
    return [
        [f.id, f.workload or "all", f.verdict.value, f.statement, f.why] for f in shown_findings(analysis)
    ]


def _markdown(analysis: Analysis) -> str:
    parts = ["## Findings", _pipe_table(FINDING_HEADERS, _finding_rows(analysis), ["---"] * 5)]
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
    return f"## {table.title}\n\n{_pipe_table(headers(table), rows(table), rules)}\n\n{table.note}"


def _pipe_table(head: Sequence[str], body: Sequence[Sequence[str]], rules: Sequence[str]) -> str:
    lines = [[_pipe(cell) for cell in head], list(rules), *([_pipe(cell) for cell in row] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pipe(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*_<>[]#" else c for c in text).replace("\n", " ")


def latex_table(table: Table) -> str:
    """A table with its title and note; `latex.NEEDS` says what it needs."""
    numbers = [column.kind in NUMERIC for column in table.columns]
    return latex.longtable(table.name, f"{table.title}. {table.note}", headers(table), rows(table), numbers)


def _latex(analysis: Analysis) -> str:
    findings = latex.longtable(
        "findings", "Findings", FINDING_HEADERS, _finding_rows(analysis), [False] * len(FINDING_HEADERS)
    )
    parts = [latex.NEEDS, findings]
    parts += map(latex_table, main_tables(analysis))
    parts += ["% appendix", *map(latex_table, appendix_tables(analysis))]
    return "\n\n".join(parts) + "\n"
