"""A scan as a file, `scan.json`: written by `vbstudy scan`, read again by `vbstudy analyze` for finding
F6."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from analysis.scan.results import PROGRAMS, SCHEMA_VERSION, LintFinding, Scan
from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from guest.records.codec import RecordError, from_json, to_json

NAME = "scan.json"
_NUMBER_OF_PLACE = re.compile(r"(?<=line )\d+|(?<=cell )\d+|(?<=:)\d+")


class KeptScanError(ValueError):
    """A scan.json that cannot be used; the text says why."""


def encode(scan: Scan) -> str:
    return json.dumps(to_json(scan), indent=1) + "\n"


def read_scan(path: Path) -> Scan | None:
    """A scan that `--format json` or `--keep` has written; None where there is none. Raises KeptScanError."""
    try:
        data = plain_json.parse(read_bounded(path, bounded.IMPORTED), bounded.IMPORTED)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise KeptScanError(f"cannot be read: {error}") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise KeptScanError("was written by a newer vbstudy")
    try:
        return from_json(Scan, data, path.name)
    except RecordError as error:
        raise KeptScanError(str(error)) from None


def without(scan: Scan, baseline: Scan) -> Scan:
    """The findings that a former scan does not have. Lines and cells may have moved: a finding is known by
    its project, its rule, its file and what it says, as often as the former scan has it. Projects are known
    by their paths as they were given; of two scans of one project each, the path does not matter."""
    alone = len(scan.projects) == len(baseline.projects) == 1
    known = Counter(
        _identity("" if alone else project.path, found)
        for project in baseline.projects
        for found in project.findings
    )
    projects = []
    for project in scan.projects:
        new = []
        for found in project.findings:
            identity = _identity("" if alone else project.path, found)
            if known[identity]:
                known[identity] -= 1
            else:
                new.append(found)
        projects.append(replace(project, findings=tuple(new)))
    return replace(scan, projects=tuple(projects))


def _identity(project: str, found: LintFinding) -> tuple[str, ...]:
    """As a file has it, where bytes of a name that are no text are written out."""
    why = _NUMBER_OF_PLACE.sub("", found.why.partition(PROGRAMS)[0])
    return tuple(to_json((project, found.rule, found.place.path, why)))
