"""Traces: where two thread counts part (`trace/<id>/trace.json`), as tables and figures. The tracer's
numbers are computed here too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.numerics import ulp_distance
from analysis.printing import to_csv
from analysis.results import Column, Kind, Table
from guest.trace_records import STATES, TRACE, Origin, Outcome, Trace, encode

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
    l2 = float(np.linalg.norm(np.subtract(x, y, dtype=np.float64)))
    length = float(np.linalg.norm(x.astype(np.float64)))
    return differing, int(ulp_distance(x, y).max()) // unit, l2, l2 / length if length else float(l2 > 0)


def floats(bits: np.ndarray, dtype: str) -> np.ndarray | None:
    """The numbers (D,) that unsigned integers stand for; a bfloat16 as the float32 that it is the upper half
    of. None for types that are no floats."""
    bits = bits.reshape(-1)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(FLOATS[dtype]) if dtype in FLOATS else None


# ---- as text and as files ------------------------------------------------------------------------

WHY = {
    Outcome.SEQUENCE: "The two run other operations, from equal inputs: see the notes",
    Outcome.UNLOCATED: "No operation was seen whose inputs are equal and whose outputs are not: what makes "
    "the difference lies outside the operations that were looked at",
    Outcome.UNREPEATABLE: "One side does not repeat itself, so that nothing follows: see the notes",
}
NAMED = 12  # operations that a terminal shows
GROWTH = "growth"


def verdict(trace: Trace) -> str:
    """What the trace found, in a sentence or two."""
    first, second = (side.threads.label for side in trace.sides)
    pair = f"{trace.workload.name} ({trace.workload.framework}, {trace.variant}) on {first} and {second}"
    if trace.outcome is Outcome.EQUAL:
        compared = ", ".join(s for s in STATES if s != "gradients" or trace.workload.framework == "torch")
        return f"{pair}: equal to the last bit in {trace.steps} steps ({compared})"
    why = WHY.get(trace.outcome) or started(trace)
    return f"{pair}: parts at step {trace.step}, in its {trace.differs}. {why}"


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
    return f"Governed by {origin.knob}" if origin.knob else "The registry of operations does not know it"


def origins_table(trace: Trace) -> Table:
    """The operations that part by themselves, in the order of execution."""
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
            "knob": o.knob or "unknown to the registry",
        }
        for o in trace.origins
    ]
    columns = {
        "number": Kind.COUNT, "phase": Kind.TEXT, "op": Kind.TEXT, "module": Kind.TEXT, "source": Kind.TEXT,
        "outputs": Kind.TEXT, "differing": Kind.TEXT, "max_ulp": Kind.COUNT,
    }  # fmt: skip
    headers = {"op": "operation", "differing": "elements that differ", "max_ulp": "largest ULP"}
    return Table(
        name="origins",
        title=f"Operations of step {trace.step} with equal inputs and unequal outputs",
        note=f"{len(trace.origins)} of {trace.operations} operations, in the order of execution: the first "
        "started it, the others would have. Inputs and outputs are compared bit by bit; ULPs are units in "
        "the last place.",
        frame=pd.DataFrame(rows, columns=[*columns, "knob"]),
        columns=tuple(Column(header=headers.get(c, c), source=c, kind=kind) for c, kind in columns.items()),
    )


def growth_table(trace: Trace) -> Table:
    """How far the weights lie apart, layer by layer and step by step."""
    names = ["step", "layer", "elements", "differing", "max_ulp", "l2", "relative_l2"]
    kinds = [Kind.COUNT, Kind.TEXT, Kind.COUNT, Kind.COUNT, Kind.COUNT, Kind.SPREAD, Kind.SPREAD]
    frame = pd.DataFrame([{name: getattr(g, name) for name in names} for g in trace.growth], columns=names)
    return Table(
        name=GROWTH,
        title="How the difference grows",
        note="After each of these steps: elements of the weight that differ, the largest distance in ULPs, "
        "|a-b|, and |a-b| / |a|. n = 2 models.",
        frame=frame,
        columns=tuple(Column(header=n, source=n, kind=k) for n, k in zip(names, kinds, strict=True)),
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
        f"after step {end.name} {end['share']:.1%} of the weights differ, |a-b| = {end['l2']:.2g}"
        for end in ends
    )


def write(trace: Trace, folder: Path) -> None:
    """`trace.json`, and where there is something to draw, `growth.csv`, `growth.svg` and `growth.png`."""
    from analysis.drawing import alone, save
    from analysis.trace_figures import growth_map

    (folder / TRACE).write_text(encode(trace), encoding="utf-8")
    if trace.growth:
        (folder / f"{GROWTH}.csv").write_text(to_csv(growth_table(trace)), encoding="utf-8")
        save(alone(growth_map(trace)), "", folder)


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
