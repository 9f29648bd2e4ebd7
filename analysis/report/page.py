"""The page of the report: everything on it, in order of reading."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from analysis.figures.charts import shown_view
from analysis.figures.overview import OVERVIEW
from analysis.figures.style import Picture
from analysis.findings.evidence import evidence
from analysis.findings.implications import hardware_sentence, provider_text
from analysis.findings.steps import untraceable
from analysis.findings.summary import differs, exact, headline, which_threads
from analysis.provenance.fingerprints import environments
from analysis.report.checklist import checklist, planned_analyses
from analysis.report.methods import methods_paragraph, recipe
from analysis.report.progress import Unfinished
from analysis.report.runs import runs_table
from analysis.report.story import causes, commands, cures, size_text, strips
from analysis.results.cells import NUMERIC, cell, missing
from analysis.results.model import Analysis, Column, Finding, Table, Verdict
from analysis.results.printing import appendix_tables, main_tables, shown_findings
from guest.records.printable import printable

CLASSES = {verdict: verdict.replace(" ", "-") for verdict in Verdict}  # of the style sheet
UNQUOTED = " !$()*+,/:;=?@"  # what a data URL in an attribute may hold as it is
LONG = 60  # characters from which a cell may be broken into lines
TEMPLATES = Path(__file__).parent / "templates"
NOTHING_IN = {"environments": "all runs have the same fingerprint."}


def detail_tables(analysis: Analysis) -> tuple[Table, ...]:
    """The tables that only the report has: the runs one by one, and in what their machines differ."""
    return runs_table(analysis.study, shown_view(analysis)), environments(analysis.study)


def page(analysis: Analysis, pictures: list[Picture], live: Unfinished | None = None) -> str:
    """The page as HTML. Figures are inlined; nothing is loaded from anywhere. A `live` one says how far the
    sweep is, marks sets that are not complete, and asks its server whether there is a newer one."""
    study = analysis.study
    details = detail_tables(analysis)
    shown = shown_findings(analysis)
    by_workload: dict[str, list[tuple[Finding, str]]] = {}
    for one in shown:
        if one.workload:
            by_workload.setdefault(one.id, []).append((one, CLASSES[one.verdict]))
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            name=printable(study.directory.resolve().name),
            headline=headline(analysis).partition(". "),
            size=f"{size_text(analysis)}; {provider_text(study)}",
            alarms=analysis.alarms,
            overview=[_inlined(p) for p in pictures if p.svg.stem == OVERVIEW],
            strips=strips(analysis, live.open_sets if live else {}),
            diverges=any(differs(analysis, workload) for workload in study.metrics),
            causes=causes(analysis),
            untraceable=untraceable(analysis),
            cures=cures(analysis),
            exact=exact(analysis),
            commands=commands(analysis),
            answers=which_threads(analysis),
            findings=[
                (one, CLASSES[one.verdict], evidence(analysis, one), by_workload.get(one.id, []))
                for one in shown
                if not one.workload
            ],
            workloads={
                w: [_inlined(p) for p in pictures if p.workload == w and p.svg.stem != OVERVIEW]
                for w in (*study.metrics, "")
            },
            tables=[_table(table) for table in main_tables(analysis)],
            appendix=[_table(table) for table in (*appendix_tables(analysis), *details[1:])],
            runs=_table(details[0]),
            checklist=checklist(analysis),
            differing=int(details[0].frame.differs.sum()),
            copies=_copies(analysis),
            problems=study.problems,
            live=live,
            **_script("report.js", "script"),
            **_script("live.js", "live_script"),
        )
    )


def waiting_page(name: str, live: Unfinished, why: str) -> str:
    """The live page of a study of which nothing can be said yet."""
    template = _environment().get_template("waiting.html.j2")
    words = {"name": printable(name), "why": printable(why, lines=True)}
    return template.render(**words, live=live, **_script("live.js", "live_script"))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = typeset
    return environment


def typeset(text: str) -> Markup:
    """Text as HTML, what stands in backticks as code. A backtick without a partner stays."""
    *pieces, last = text.split("`")
    if len(pieces) % 2:
        last = f"{pieces.pop()}`{last}"
    marked = [Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(pieces)]
    return Markup("").join([*marked, escape(last)])


def _script(file: str, name: str) -> dict[str, str]:
    """A script of ours under this name, and its hash for the page's content policy."""
    script = (TEMPLATES / file).read_text(encoding="utf-8")
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {name: Markup(script), f"{name}_sha256": sha256}  # noqa: S704


def _inlined(picture: Picture) -> dict[str, str]:
    svg = re.sub(r"\s*\n\s*", " ", picture.svg.read_text(encoding="utf-8"))
    svg = re.sub(r"\b(\d{2,}\.\d\d)\d+", r"\1", svg)  # hundredths of a point; scales are below 10
    return {
        "title": picture.title,
        "caption": picture.caption,
        "source": f"data:image/svg+xml,{quote(svg, safe=UNQUOTED)}",
        "files": f"figures/{picture.svg.name}",
    }


def _table(table: Table) -> dict[str, Any]:
    records = table.frame.to_dict("records")
    return {
        "table": table,
        "headers": [(column.header, column.kind in NUMERIC) for column in table.columns],
        "rows": [
            {
                "cells": [_cell(column, record) for column in table.columns],
                "differs": record.get("differs") is True,
            }
            for record in records
        ],
        "empty": NOTHING_IN.get(table.name, "no row."),
    }


def _cell(column: Column, record: Mapping[Any, Any]) -> dict[str, Any]:
    """The text of a cell, and the number by which it is sorted (None: by its text)."""
    text, value = cell(column, record), record[column.source]
    numeric = column.kind in NUMERIC and isinstance(value, (int, float)) and not missing(value)
    css = "number" if column.kind in NUMERIC else "long" if len(text) > LONG else ""
    return {"text": text, "value": _number(value) if numeric else None, "css": css}


def _number(value: float) -> str:
    """As JavaScript reads it."""
    return repr(float(value)) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _copies(analysis: Analysis) -> list[dict[str, Any]]:
    """What a reader takes along: texts for a paper, and what repeats the study."""
    study, how = analysis.study, recipe(analysis.study)
    methods = methods_paragraph(study, analysis.predictions.workloads, planned_analyses(analysis))
    blocks: list[dict[str, Any]] = [
        {"title": "Methods", "text": methods, "prose": True},
        {"title": "Hardware", "text": hardware_sentence(study), "prose": True},
        {"title": "Commands that repeat the study", "text": how.commands, "note": how.note},
        {"title": "study.toml", "text": how.study_file},
    ]
    return [{"prose": False, "note": ""} | block for block in blocks if block["text"]]
