"""Traces: where two thread counts diverge (`trace/<id>/trace.json`), as tables and figures. The tracer's
numbers are computed here too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load.runs import Problem, read_stored
from analysis.load.study import StudyData, workload_digest
from analysis.results.model import WHERE, Kind, Table, col, cols, count, counts
from analysis.stats.numerics import l2, ulp_distance
from guest.records.codec import RecordError
from guest.records.run import WorkloadSpec
from guest.records.trace import STATES, TRACE, Origin, Outcome, Trace, decode

FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def apart(a: np.ndarray, b: np.ndarray, dtype: str) -> tuple[int, int | None, float, float]:
    """(differing elements, largest distance in ULPs, L2, L2 relative to |a|) of two results given as unsigned
    integers of their bits (D,). Differing means any bit; what is not finite on either side enters the first
    number only. ULPs are None for types that are no floats."""
    differing = int((a != b).sum())
    x, y = floats(a, dtype), floats(b, dtype)
    if x is None or y is None:
        return differing, None, 0.0, 0.0
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if not len(x):
        return differing, 0, 0.0, 0.0
    unit = 1 << 16 if dtype == "bfloat16" else 1
    distance = l2(x, y)
    length = float(np.linalg.norm(x.astype(np.float64)))
    relative = distance / length if length else float(distance > 0)
    return differing, int(ulp_distance(x, y).max()) // unit, distance, relative


def floats(bits: np.ndarray, dtype: str) -> np.ndarray | None:
    """The numbers (D,) that unsigned integers stand for; a bfloat16 as the float32 that it is the upper half
    of. None for types that are no floats."""
    bits = bits.reshape(-1)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(FLOATS[dtype]) if dtype in FLOATS else None


# ---- as text and as files ------------------------------------------------------------------------

WHY = {
    Outcome.SEQUENCE: "The two sides run different operations from equal inputs: see the notes",
    Outcome.UNLOCATED: "No operation was seen whose inputs are equal and whose outputs are not: what makes "
    "the difference lies outside the traced operations",
    Outcome.UNREPEATABLE: "One side does not repeat itself, so the trace is inconclusive: see the notes",
}
NAMED = 12  # operations that a terminal shows
GROWTH = "growth"


def verdict(trace: Trace) -> str:
    """What the trace found, in a sentence or two."""
    first, second = (side.threads.label for side in trace.sides)
    what = trace.workload.computes_with or "a project"
    pair = f"{trace.workload.name} ({what}, {trace.variant}) on {first} and {second}"
    if trace.outcome is Outcome.EQUAL:
        if trace.workload.project is not None:
            return f"{pair}: equal to the last bit in all {trace.operations:,} operations"
        compared = ", ".join(s for s in STATES if s != "gradients" or trace.workload.framework == "torch")
        return f"{pair}: equal to the last bit in {trace.steps} steps ({compared})"
    why = WHY.get(trace.outcome) or started(trace)
    return f"{pair}: diverges at step {trace.step}, in its {trace.differs}. {why}"


def started(trace: Trace) -> str:
    """The operation that started it, in a sentence."""
    origin = trace.origins[0]
    where = " ".join(
        filter(
            None,
            [f"of {origin.module}" if origin.module else "", f"at {origin.source}" if origin.source else ""],
        )
    )
    ulp = "" if origin.max_ulp is None else f", by up to {origin.max_ulp:,} ULP"
    return (
        f"{origin.op} ({origin.phase} {where}) gives unequal outputs from equal inputs: {origin.differing:,} "
        f"of {origin.elements:,} elements differ{ulp}. {governed(origin)}"
    )


def governed(origin: Origin) -> str:
    """What decides the order of its sums."""
    return (
        f"Governed by {origin.setting}" if origin.setting else "The registry of operations does not know it"
    )


def origins_table(trace: Trace) -> Table:
    """The operations that diverge by themselves, in the order of execution."""
    rows = [
        {
            "number": o.index,
            "phase": o.phase.value,
            "op": o.op.removeprefix("aten.").removesuffix(".default"),
            "module": o.module,
            "source": o.source.rpartition("/")[2],  # a terminal has no room for the folders
            "outputs": ", ".join(o.outputs),
            "differing": f"{o.differing:,} of {o.elements:,}",
            "max_ulp": np.nan if o.max_ulp is None else o.max_ulp,
            "setting": o.setting or "unknown to the registry",
        }
        for o in trace.origins
    ]
    return Table.of(
        rows,
        count("number"),
        col("phase"),
        col("op", "operation"),
        *cols("module", "source", "outputs"),
        col("differing", "elements that differ"),
        count("max_ulp", "largest ULP"),
        name="origins",
        title=f"Operations of step {trace.step} with equal inputs and unequal outputs",
        note=f"{len(trace.origins)} of {trace.operations} operations, in the order of execution: the first "
        "started it, the others would have. Inputs and outputs are compared bit by bit; ULPs are units in "
        "the last place.",
        hidden=["setting"],
    )


def growth_table(trace: Trace) -> Table:
    """How far the weights lie apart, layer by layer and step by step."""
    names = ("step", "layer", "elements", "differing", "max_ulp", "l2", "relative_l2")
    return Table.of(
        [{name: getattr(g, name) for name in names} for g in trace.growth],
        count("step"),
        col("layer"),
        *counts("elements", "differing", "max_ulp"),
        *cols("l2", "relative_l2", kind=Kind.SPREAD),
        name=GROWTH,
        title="How the difference grows",
        note="After each of these steps: elements of the weight that differ, the largest distance in ULPs, "
        "|a-b|, and |a-b| / |a|. n = 2 models.",
    )


def whole_model(trace: Trace) -> pd.DataFrame:
    """One row a step: share of elements that differ, largest ULP, L2 of all layers together."""
    by_step = growth_table(trace).frame.groupby("step")
    return pd.DataFrame(
        {
            "share": by_step.differing.sum() / by_step.elements.sum(),
            "max_ulp": by_step.max_ulp.max(),
            "l2": by_step.l2.apply(lambda parts: float(np.linalg.norm(parts))),
        }
    )


def growth_text(trace: Trace) -> str:
    """`step 1: 3.1 % of the weights differ, L2 1e-08; step 40: 99 %, L2 0.012`"""
    whole = whole_model(trace)
    if whole.empty:
        return ""
    ends = [whole.iloc[0], whole.iloc[-1]] if len(whole) > 1 else [whole.iloc[0]]
    return "; ".join(
        f"after step {end.name}, {percent(end['share'])} of the weights differ, |a-b| = {end['l2']:.2g}"
        for end in ends
    )


def percent(share: float) -> str:
    return "less than 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def summary(trace: Trace) -> list[str]:
    """What a reader must know, a line each."""
    lines = [verdict(trace)]
    if trace.origins and trace.origins[0].text:
        lines.append(f"The line: {trace.origins[0].text}")
    if grown := growth_text(trace):
        lines.append(f"Growth: {grown}")
    if trace.unknown:
        lines.append(f"Unknown to the registry, and not to be called safe: {_some(trace.unknown)}")
    return lines + [f"note: {note}" for note in trace.notes]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


# ---- the stored traces of a study ----------------------------------------------------------------


def require_runs_of(study: StudyData, workload: WorkloadSpec, tree_sha256: str) -> None:
    """Raises RecordError where no run of the study trained this."""
    digests = dict(zip(study.runs.workload_name, study.runs.workload_digest, strict=True))
    if digests.get(workload.name) != workload_digest(workload, tree_sha256):
        raise RecordError("is of a workload that has no runs here, or had other settings")


def read_traces(study: StudyData) -> tuple[tuple[Trace, ...], tuple[Problem, ...]]:
    """The traces of the study's workloads, oldest first, and a reservation for each that is of none of them
    or cannot be read."""

    def checked(content: bytes, _: Path) -> Trace:
        trace = decode(content)
        require_runs_of(study, trace.workload, trace.tree_sha256)
        return trace

    paths = sorted((study.directory / "trace").glob(f"*/{TRACE}"))
    todo = "it is left out; trace again, or remove its folder"
    found, problems = read_stored(study.directory, paths, checked, todo)
    return tuple(sorted(found, key=lambda trace: trace.created_at)), problems


def trace_tables(study: StudyData, traces: Sequence[Trace]) -> tuple[Table, ...]:
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
    table = Table.of(
        rows,
        *WHERE,
        *cols("threads", "found"),
        count("step"),
        col("op", "operation"),
        *cols("phase", "module"),
        count("max_ulp", "largest ULP"),
        col("setting", "governed by"),
        name="traces",
        title="Which operation started it?",
        note="By `vbstudy trace`: the first operation of the first step that differs whose inputs are equal "
        "and whose outputs are not, bit by bit. n = 2 models a trace, equal seeds.",
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
        "line": origin.text if origin else "",
        "differing": origin.differing if origin else np.nan,
        "elements": origin.elements if origin else np.nan,
        "max_ulp": np.nan if origin is None or origin.max_ulp is None else origin.max_ulp,
        "setting": origin.setting if origin else "",
        "growth": growth_text(trace),
        "started": started(trace) if origin else "",
    }
