"""Findings as SARIF 2.1.0 (OASIS, 2020), which code hosts show in the code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.scan.files import repository
from analysis.scan.lint.rules import RULES, examples, explained
from analysis.scan.results import LintFinding, Note, Project, Scan

BASE = "%SRCROOT%"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SIGN = re.compile(r"[*_`\[\]<>]")


def to_sarif(scan: Scan, version: str) -> str:
    """One run. Notes on files that could not be linted are the invocation's notifications. Files are relative
    to the root of the repository, as code hosts want them."""
    numbers = {rule: index for index, rule in enumerate(RULES)}
    root = _root(scan)
    run = {
        "tool": {
            "driver": {
                "name": "vbstudy",
                "version": version,
                "rules": [
                    {
                        "id": name,
                        "shortDescription": {"text": rule.title},
                        "help": {"text": explained(name), "markdown": _markdown(name)},
                        "defaultConfiguration": {"level": rule.level},
                    }
                    for name, rule in RULES.items()
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {BASE: {"uri": f"file://{_quoted(root).rstrip('/')}/"}},
        "results": [_result(root, p, f, numbers[f.rule]) for p in scan.projects for f in p.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    _notification(root, p, n) for p in scan.projects for n in p.notes
                ],
            }
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _markdown(rule: str) -> str:
    """What `explained` has, for a page."""
    said = _SIGN.sub(r"\\\g<0>", explained(rule).partition("\n\n")[0].replace("\n", "\n\n"))
    fails, passes = (f"```python\n{text}```\n" for text in examples()[rule])
    return f"{said}\n\nReported in\n\n{fails}\nbut not in\n\n{passes}"


def _result(root: Path, project: Project, found: LintFinding, index: int) -> dict[str, Any]:
    place = found.place
    result: dict[str, Any] = {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": found.level,  # SARIF's levels have the same names
        "message": {"text": f"{found.why}. To do: {found.advice}."},
        "locations": [_location(root, project, place.path)],
    }
    location = result["locations"][0]
    if place.cell:  # SARIF has no cells, and a line of a cell is no line of the file
        location["logicalLocations"] = [{"name": f"cell {place.cell}, line {place.line}", "kind": "module"}]
        result["message"]["text"] = f"Cell {place.cell}, line {place.line}: {result['message']['text']}"
    else:
        location["physicalLocation"]["region"] = {"startLine": place.line, "startColumn": place.column}
    return result


def _notification(root: Path, project: Project, note: Note) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": note.text},
        "locations": [_location(root, project, note.path)],
    }


def _location(root: Path, project: Project, path: str) -> dict[str, Any]:
    """A file, whose URI is relative to the root."""
    uri = _quoted((_folder(project) / path).relative_to(root))
    return {"physicalLocation": {"artifactLocation": {"uri": uri, "uriBaseId": BASE}}}


def _root(scan: Scan) -> Path:
    """The repository that all projects lie in; without one, where the scan was started or, if it was started
    elsewhere, the folder that has them all."""
    here = Path.cwd()
    common = Path(os.path.commonpath([_folder(project) for project in scan.projects] or [here]))
    return repository(common) or (here if common.is_relative_to(here) else common)


def _folder(project: Project) -> Path:
    path = Path(project.path)
    return (path.parent if path.is_file() else path).resolve()


def _quoted(path: Path) -> str:
    return quote(os.fsencode(path.as_posix()))


def joined(project: Project, path: str) -> str:
    """A path of a project, as seen from where the scan was started."""
    base = Path(project.path)
    return (base if base.name == path and base.is_file() else base / path).as_posix()
