"""The stored traces of a study, beside its runs: which operation started the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.load import Problem, Study, workload_digest
from analysis.results import WHERE, Column, Kind, Table
from analysis.traces import growth_text, started
from guest.records import RecordError
from guest.trace_records import TRACE, Outcome, Trace, decode


def read_traces(study: Study) -> tuple[tuple[Trace, ...], tuple[Problem, ...]]:
    """The traces of the study's workloads, oldest first, and a reservation for each that is of none of them
    or cannot be read."""
    digests = dict(zip(study.runs.workload_name, study.runs.workload_digest, strict=True))
    found, problems = [], []
    for path in sorted((study.directory / "trace").glob(f"*/{TRACE}")):
        try:
            found.append(_checked(decode(path.read_bytes()), digests))
        except (OSError, RecordError, UnicodeDecodeError) as error:
            place = str(path.relative_to(study.directory))
            todo = "it is left out; trace again, or remove its folder"
            problems.append(Problem(path=place, what=str(error), todo=todo, skipped=False))
    return tuple(sorted(found, key=lambda trace: trace.created_at)), tuple(problems)


def _checked(trace: Trace, digests: Mapping[str, str]) -> Trace:
    if digests.get(trace.workload.name) != workload_digest(trace.workload):
        raise RecordError("is of a workload that has no runs here, or had other settings")
    return trace


def trace_tables(study: Study, traces: Sequence[Trace]) -> tuple[Table, ...]:
    """One row a trace; no table without any."""
    if not traces:
        return ()
    names = study.runs.drop_duplicates("workload")[["workload", "workload_name"]]
    rows = [
        _row(trace, workload)
        for workload, name in names.itertuples(index=False)
        for trace in traces
        if trace.workload.name == name
    ]
    table = Table(
        name="traces",
        title="Which operation started it?",
        note="By `vbstudy trace`: the first operation of the first step that differs whose inputs are equal "
        "and whose outputs are not, bit by bit. n = 2 models a trace, equal seeds.",
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="threads", source="threads"),
            Column(header="found", source="found"),
            Column(header="step", source="step", kind=Kind.COUNT),
            Column(header="operation", source="op"),
            Column(header="phase", source="phase"),
            Column(header="module", source="module"),
            Column(header="largest ULP", source="max_ulp", kind=Kind.COUNT),
            Column(header="governed by", source="knob"),
        ),
    )
    return (table,)


FOUND = {
    Outcome.EQUAL: "equal to the last bit",
    Outcome.OPERATION: "an operation",
    Outcome.SEQUENCE: "other operations",
    Outcome.UNLOCATED: "no operation",
    Outcome.UNREPEATABLE: "a side that does not repeat itself",
}


def _row(trace: Trace, workload: str) -> dict[str, object]:
    origin = trace.origins[0] if trace.origins else None
    first, second = (side.threads.label for side in trace.sides)
    return {
        "workload": workload,
        "variant": trace.variant,
        "threads": f"{first} | {second}",
        "outcome": trace.outcome.value,
        "found": FOUND[trace.outcome]
        + (f" in {trace.steps} steps" if trace.outcome is Outcome.EQUAL else ""),
        "step": np.nan if trace.step is None else trace.step,
        "op": origin.op if origin else "",
        "phase": origin.phase.value if origin else "",
        "module": origin.module if origin else "",
        "source": origin.source if origin else "",
        "differing": origin.differing if origin else np.nan,
        "elements": origin.elements if origin else np.nan,
        "max_ulp": np.nan if origin is None or origin.max_ulp is None else origin.max_ulp,
        "knob": origin.knob if origin else "",
        "growth": growth_text(trace),
        "started": started(trace) if origin else "",
    }
