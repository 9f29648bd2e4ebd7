"""Findings as SARIF 2.1.0 (OASIS, 2020), which code hosts show in the code."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from analysis.scan.lint.rules import RULES, explained
from analysis.scan.results import LintFinding, Note, Project, Scan

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(scan: Scan, version: str) -> str:
    """One run. Notes on files that could not be linted are the invocation's notifications."""
    numbers = {rule: index for index, rule in enumerate(RULES)}
    run = {
        "tool": {
            "driver": {
                "name": "vbstudy",
                "version": version,
                "rules": [
                    {
                        "id": name,
                        "shortDescription": {"text": rule.title},
                        "help": {"text": explained(name)},
                        "defaultConfiguration": {"level": rule.level},
                    }
                    for name, rule in RULES.items()
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(p, f, numbers[f.rule]) for p in scan.projects for f in p.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification(p, n) for p in scan.projects for n in p.notes],
            }
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(project: Project, found: LintFinding, index: int) -> dict[str, Any]:
    place = found.place
    result: dict[str, Any] = {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": found.level,  # SARIF's levels have the same names
        "message": {"text": f"{found.why}. To do: {found.advice}."},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(project, place.path)}}}],
    }
    location = result["locations"][0]
    if place.cell:  # SARIF has no cells, and a line of a cell is no line of the file
        location["logicalLocations"] = [{"name": f"cell {place.cell}, line {place.line}", "kind": "module"}]
        result["message"]["text"] = f"Cell {place.cell}, line {place.line}: {result['message']['text']}"
    else:
        location["physicalLocation"]["region"] = {"startLine": place.line, "startColumn": place.column}
    return result


def _notification(project: Project, note: Note) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": note.text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(project, note.path)}}}],
    }


def uri(project: Project, path: str) -> str:
    """The file as a URI reference, relative to where the scan was started if it lies below."""
    name, here = PurePath(joined(project, path)), Path.cwd()
    return quote(os.fsencode((name.relative_to(here) if name.is_relative_to(here) else name).as_posix()))


def joined(project: Project, path: str) -> str:
    """A path of a project, as seen from where the scan was started."""
    base = PurePath(project.path)
    if base.suffix in (".py", ".ipynb") and base.name == path:
        return base.as_posix()
    return (base / path).as_posix()
