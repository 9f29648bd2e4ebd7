"""The JSON schemas of what a study stores and of every `--json` output, made from the types that are printed.
One that changes gets a new version; `tests/golden/json-schemas.json` has a digest of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from analysis.exchange.verify import Verification
from analysis.load.runs import Problem
from analysis.results.model import Implication, Verdict
from analysis.results.printing import SCHEMA_VERSION as FINDINGS_VERSION
from analysis.scan.results import Scan
from guest.records.harden import Hardening
from guest.records.probe import ProbeReport
from guest.records.run import SCHEMA_VERSION as RUN_VERSION
from guest.records.run import RunRecord
from guest.records.trace import Trace
from guest.replay.recording import Header
from orchestrator.engine import Summary
from orchestrator.experiments.assessment import Measured
from orchestrator.experiments.trace_program import ProgramTrace
from orchestrator.forecast.fleet import FleetForecast
from orchestrator.forecast.model import Forecast
from orchestrator.inventory import Inventory
from orchestrator.programs.harden_program import Hardened
from orchestrator.programs.try_report import Report
from orchestrator.programs.try_saved import Against
from orchestrator.programs.try_which import Which
from orchestrator.providers.virtualbox.checklist import Check
from orchestrator.sweep.status import Status
from orchestrator.sweep.watch import Watched

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, kw_only=True)
class FindingData:
    id: str
    workload: str | None
    statement: str
    verdict: Verdict
    why: str
    numbers: dict[str, Any]
    table: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """`findings.json`."""

    schema_version: int
    runs: int
    workloads: list[str]
    variants: list[str]
    threads: list[str]
    alarms: list[str]
    findings: list[FindingData]
    implications: list[Implication]
    problems: list[Problem]


@dataclass(frozen=True, kw_only=True)
class Analyzed(Findings):
    """A table is a list of rows, each with its columns by name."""

    tables: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Tried(Report):
    against: Against | None = None


@dataclass(frozen=True, kw_only=True)
class Planned(Forecast):
    fleet: FleetForecast | None = None


@dataclass(kw_only=True)
class Swept(Summary):
    rule: str = ""
    interim: tuple[int, ...] = ()
    interim_done: int = 0
    answers: tuple[dict[str, Any], ...] = ()
    open_sets: tuple[str, ...] = ()
    without_runs: tuple[str, ...] = ()
    robustness: Measured | None = None


@dataclass(frozen=True, kw_only=True)
class Rerun:
    run_id: str
    equal: bool
    difference: str
    failure: str
    stored_on: str
    computed_on: str
    fields_that_differ: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verified(Verification):
    path: str
    rerun: tuple[Rerun, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recorded(Header):
    draws: int
    size_bytes: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Exported:
    target: str
    format: str


@dataclass(frozen=True, kw_only=True)
class ImportedResults:
    file: str
    runs: int
    left_out: tuple[Any, ...]


def _one(name: str) -> dict[str, Any]:
    """An object with one text."""
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


# By command, or file: the version, and the type (a schema where there is none).
SCHEMAS: dict[str, tuple[int, Any]] = {
    "run.json": (RUN_VERSION, RunRecord),
    "findings.json": (FINDINGS_VERSION, Findings),
    "init": (1, _one("study")),
    "doctor": (1, list[Check]),
    "provision": (2, Inventory),
    "destroy": (
        1,
        {"type": "object", "properties": {"destroyed": {"type": "array", "items": {"type": "string"}}}},
    ),
    "plan": (1, Planned),
    "sweep": (1, Swept),
    "status": (2, Status),
    "watch": (2, Watched),
    "analyze": (FINDINGS_VERSION, Analyzed),
    "analyze --list-tables": (1, dict[str, str]),
    "report": (1, _one("report")),
    "report --live": (1, _one("url")),
    "verify": (1, Verified),
    "export": (1, Exported),
    "import an archive": (1, _one("folder")),
    "import": (1, ImportedResults),
    "trace": (1, Trace),
    "trace -- PROGRAM": (3, ProgramTrace),
    "harden": (1, list[Hardening]),
    "harden -- PROGRAM": (1, Hardened),
    "probe": (1, ProbeReport),
    "scan": (1, Scan),
    "try": (2, Tried),
    "try --which": (1, Which),
    "record": (1, Recorded),
    "replay": (1, Recorded),
}


def schema(name: str) -> dict[str, Any]:
    """The schema of a command's `--json`, or of a stored file. Raises KeyError."""
    version, kind = SCHEMAS[name]
    body = kind if isinstance(kind, dict) else TypeAdapter(kind).json_schema(mode="serialization")
    return {"$schema": DIALECT, "$id": f"vbstudy:{name.replace(' ', '-')}:{version}", **body}
