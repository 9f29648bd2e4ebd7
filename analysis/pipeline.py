"""The whole analysis, from a study's folder to its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from analysis.checks import reservations
from analysis.findings import decide
from analysis.implications import draw
from analysis.load import View, load_study
from analysis.predictions import read_predictions
from analysis.results import Analysis, Table
from analysis.robustness import read_robustness
from analysis.tables import build_tables
from analysis.verdicts import alarms


def analyze(directory: Path, views: Sequence[View] = tuple(View)) -> Analysis:
    """load -> tables -> findings -> implications. Writes nothing; `analysis.report.write_report` does.
    Tables show the given views; findings are decided from all of them.

    Raises NothingToAnalyse when there is no usable run, NewerSchemaError when a run was written by
    a newer vbstudy.
    """
    study, predictions = read_predictions(load_study(directory))
    measured, stale = read_robustness(study)
    study = dataclasses.replace(study, problems=study.problems + reservations(study) + stale)
    tables = build_tables(study, predictions, measured)
    findings = decide(study, tables)
    return Analysis(
        study=study,
        tables={name: _only(table, views) for name, table in tables.items()},
        findings=findings,
        implications=draw(study, tables, findings),
        alarms=alarms(tables["verdicts"]),
    )


def _only(table: Table, views: Sequence[View]) -> Table:
    if "view" not in table.frame.columns:
        return table
    return dataclasses.replace(table, frame=table.frame[table.frame["view"].isin(views)])
