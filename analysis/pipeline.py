"""The whole analysis, from a study's folder to its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from analysis.diagnosis.hardening import hardening_tables, read_hardenings
from analysis.diagnosis.traces import read_traces
from analysis.exchange.comparison import imported_tables
from analysis.exchange.imported import read_imports
from analysis.findings.findings import decide
from analysis.findings.implications import draw
from analysis.inference.interim import read_looks
from analysis.inference.published import against as published_beside
from analysis.inference.published import load_published
from analysis.load.design import Plan
from analysis.load.predictions import read_predictions
from analysis.load.runs import Problem
from analysis.load.study import View, load_study
from analysis.provenance.checks import refuse_mixed, reservations
from analysis.quality.robustness import read_robustness
from analysis.results.model import Analysis, Table
from analysis.sameness.verdicts import alarms
from analysis.scan.kept import NAME, KeptScanError, read_scan
from analysis.scan.requirements.shares import requirements_finding, requirements_table
from analysis.scan.results import Scan
from analysis.stats.observations import mark_failures
from analysis.tables import build_tables


def analyze(
    directory: Path,
    views: Sequence[View] = tuple(View),
    *,
    against: str = "",
    allow_mixed: bool = False,
    edited: str = "",
    plan: Plan | None = None,
) -> Analysis:
    """load -> tables -> findings -> implications. Writes nothing; `analysis.report.report.write_report` does.
    Tables show the given views; findings are decided from all of them. `against` names published numbers
    to set beside ours, in one more table. `edited` is in what the runs differ from the study file, and `plan`
    what it plans.

    Raises NothingToAnalyse when there is no usable run, NewerSchemaError when a run was written by
    a newer vbstudy, MixedHardwareError when a set has runs of different hardware and that is not allowed,
    UnknownPublishedError for numbers that nobody published.
    """
    if against:
        load_published(against)  # before anything that takes time
    study, predictions = read_predictions(load_study(directory))
    study = dataclasses.replace(mark_failures(study, predictions), edited=edited, plan=plan or Plan())
    if not allow_mixed:
        refuse_mixed(study)
    imports, unread = read_imports(directory)
    measured, stale = read_robustness(study)
    traces, odd = read_traces(study)
    looks, unreadable = read_looks(directory)
    scan, unscanned = _kept_scan(directory)
    hardenings, unjudged = read_hardenings(study)
    left = (*stale, *odd, *unreadable, *unscanned, *unjudged)
    study = dataclasses.replace(study, problems=(*study.problems, *unread, *reservations(study), *left))
    tables = build_tables(study, predictions, measured, looks, traces)
    tables |= hardening_tables(hardenings) | imported_tables(imports)
    findings = (*decide(study, tables), requirements_finding(scan))
    if scan is not None:
        tables["requirements"] = requirements_table(scan)
    if against:
        tables["against"] = published_beside(against, study, tables)
    return Analysis(
        study=study,
        tables={name: _only(table, views) for name, table in tables.items()},
        findings=findings,
        implications=draw(study, tables, findings),
        alarms=alarms(study, tables["verdicts"]),
        predictions=predictions,
        views=tuple(views),
    )


def _kept_scan(directory: Path) -> tuple[Scan | None, list[Problem]]:
    try:
        return read_scan(directory / NAME), []
    except KeptScanError as error:
        todo = "F6 is decided without it; scan again with --keep"
        return None, [Problem(path=NAME, what=str(error), todo=todo, skipped=False)]


def _only(table: Table, views: Sequence[View]) -> Table:
    if "view" not in table.frame.columns:
        return table
    return dataclasses.replace(table, frame=table.frame[table.frame["view"].isin(views)])
