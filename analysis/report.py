"""Writes the report: one page that needs no network, and the tables, figures and findings as files."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from analysis.cells import NUMERIC, rows
from analysis.figures import Picture, write_figures
from analysis.implications import provider_text
from analysis.load import by_threads
from analysis.printing import as_data, shown_findings, shown_tables, to_csv, to_json
from analysis.results import ACROSS, Analysis, Finding, Table, Verdict
from analysis.verdicts import DIFFER, IDENTICAL, LEVELS

PAGE = "index.html"
FINDINGS = "findings.json"
CLASSES = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.OPEN: "open"}
SIGNS = {IDENTICAL: ("same", "="), DIFFER: ("differ", "≠")}


class NotAReportError(FileExistsError):
    """The folder to write to holds something that is not a report; it is left as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPaths:
    """Where things were written."""

    page: Path
    findings: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(analysis: Analysis, output: Path) -> ReportPaths:
    """Writes the report into the folder `output`, in place of an earlier report there.

    It is complete or not there: everything is written beside it and moved in at the end. Raises
    NotAReportError when `output` is a file or a folder with other things in it.
    """
    if output.exists() and not _replaceable(output):
        raise NotAReportError(f"{output} holds other things than a report; name another folder")
    with _swapped_in(output) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        for table in analysis.tables.values():
            (folder / "tables" / f"{table.name}.csv").write_text(to_csv(table), encoding="utf-8")
        (folder / FINDINGS).write_text(to_json(as_data(analysis)), encoding="utf-8")
        pictures = write_figures(analysis, folder / "figures")
        (folder / PAGE).write_text(page(analysis, pictures), encoding="utf-8")
    return ReportPaths(
        page=output / PAGE,
        findings=output / FINDINGS,
        tables=tuple(output / "tables" / f"{name}.csv" for name in analysis.tables),
        figures=tuple(output / "figures" / path.name for p in pictures for path in (p.svg, p.png)),
    )


def _replaceable(output: Path) -> bool:
    """An earlier report, or an empty folder."""
    ours = {PAGE, FINDINGS, "tables", "figures"}
    return output.is_dir() and {path.name for path in output.iterdir()} <= ours


@contextmanager
def _swapped_in(output: Path) -> Iterator[Path]:
    """A temporary folder beside `output` that takes its place when all went well."""
    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        yield fresh
        fresh.chmod(0o777 & ~_umask())  # mkdtemp's folders are private
        if output.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{output.name}-old-", dir=output.parent))
            output.rename(old / output.name)
            fresh.rename(output)
            shutil.rmtree(old)
        else:
            fresh.rename(output)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---- the page ------------------------------------------------------------------------------------


def page(analysis: Analysis, pictures: list[Picture]) -> str:
    """The page as HTML. Figures are inlined; nothing is loaded from anywhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    study = analysis.study
    findings = [f for f in analysis.findings if not f.workload]
    return environment.get_template("report.html.j2").render(
        study=study,
        name=study.directory.resolve().name,
        variants=list(study.runs.variant.unique()),
        threads=list(study.runs.threads.unique()),
        provider=provider_text(study),
        alarms=analysis.alarms,
        findings=[
            (finding, CLASSES[finding.verdict], _by_workload(analysis, finding)) for finding in findings
        ],
        implications=analysis.implications,
        scopes=[ACROSS, *_settings(analysis)],
        matrix=_matrix(analysis),
        workloads={w: [_inlined(p) for p in pictures if p.workload == w] for w in study.metrics},
        tables=[_table(table) for table in shown_tables(analysis)],
        problems=study.problems,
    )


def _by_workload(analysis: Analysis, finding: Finding) -> list[tuple[Finding, str]]:
    return [
        (one, CLASSES[one.verdict])
        for one in shown_findings(analysis)
        if one.id == finding.id and one.workload
    ]


def _settings(analysis: Analysis) -> list[str]:
    """All thread settings of the study, in order."""
    return list(by_threads(analysis.study.runs.sort_values(["cpus", "intra_op", "inter_op"])))


def _matrix(analysis: Analysis) -> list[dict[str, Any]]:
    """One row a workload and variant, one cell a thread setting and one across them, each with its
    three levels; of the last models, or of the selected ones when only these are looked at."""
    frame = analysis.tables["verdicts"].frame
    frame = frame[frame["view"] == frame["view"].iloc[0]]
    matrix = []
    for (workload, variant), lines in frame.groupby(["workload", "variant"], sort=False):
        cells = {line["scope"]: _levels(line) for line in lines.to_dict("records")}
        matrix.append({"workload": workload, "variant": variant, "cells": cells})
    return matrix


def _levels(line: dict[Any, Any]) -> list[dict[str, Any]]:
    levels = []
    for level in LEVELS:
        css, sign = SIGNS.get(line[level], ("unknown", "?"))
        title = f"{level}: {line[level]}, {line[f'{level}_distinct']} distinct of {line['n']}"
        levels.append(
            {
                "name": level,
                "css": css,
                "sign": sign,
                "k": line[f"{level}_distinct"],
                "n": line["n"],
                "title": title,
            }
        )
    return levels


def _inlined(picture: Picture) -> dict[str, str]:
    data = base64.b64encode(picture.svg.read_bytes()).decode()
    return {
        "title": picture.title,
        "caption": picture.caption,
        "source": f"data:image/svg+xml;base64,{data}",
        "files": f"figures/{picture.svg.name}",
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "table": table,
        "headers": [(column.header, column.kind in NUMERIC) for column in table.columns],
        "rows": [
            [(text, column.kind in NUMERIC) for text, column in zip(row, table.columns, strict=True)]
            for row in rows(table)
        ],
    }
