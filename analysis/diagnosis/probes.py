"""Which operations give other bits on other thread counts, which do not even repeat: the tables of a
probe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.diagnosis.traces import floats
from analysis.results.model import Kind, Table, col, cols, count
from analysis.stats import numerics
from guest.records.printable import counted
from guest.records.probe import ProbeReport

SAME = "same bits"


def numbers(
    a: np.ndarray, b: np.ndarray, dtype: str
) -> tuple[float | None, float | None, float | None, int | None]:
    """(Vs, Vermv, Vc, largest distance in ULPs) of two outputs given by their bits (D,); a is the reference.
    Vs is of scalars only; where something is not finite, or no float, only Vc says how much differs."""
    x, y = floats(a, dtype), floats(b, dtype)
    share = float((a != b).mean()) if a.size else 0.0
    if x is None or y is None or not x.size or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None, None, share, None
    vs = numerics.vs(float(x[0]), float(y[0])) if x.size == 1 else None
    unit = 1 << 16 if dtype == "bfloat16" else 1
    return (
        vs if vs is None or np.isfinite(vs) else None,
        numerics.vermv(x, y),
        share,
        int(numerics.ulp_distance(x, y).max()) // unit,
    )


def cells(report: ProbeReport) -> pd.DataFrame:
    """Every row of the report: one operation, part, type, size and thread count."""
    names = list(report.rows[0].__slots__) if report.rows else ["operation"]
    return pd.DataFrame([{name: getattr(row, name) for name in names} for row in report.rows], columns=names)


def table(report: ProbeReport) -> Table:
    """One row an operation, part and type, those first that vary."""
    frame = cells(report)
    groups = frame.groupby(["operation", "part", "dtype"], sort=False) if len(frame) else ()
    rows = [_row(report, group) for _, group in groups]
    rows.sort(key=lambda row: row["verdict"] == SAME and row["repeats"].startswith("equal"))
    return Table.of(
        rows,
        *cols("operation", "part"),
        col("dtype", "type"),
        col("verdict", "against " + counted(report.threads[0], "thread")),
        col("differs_at", "differs at threads"),
        col("repeats", "run to run"),
        col("vs", "Vs", Kind.SPREAD),
        col("vermv", "Vermv", Kind.SPREAD),
        col("vc", "Vc", Kind.SPREAD),
        count("max_ulp", "largest ULP"),
        col("ratio", "time", Kind.RATIO),
        name="probe",
        title=f"Operations of {report.framework} on {', '.join(map(str, report.threads))} threads",
        note=f"n = {report.runs} runs a cell, after one that is not counted; {header(report)}. Across thread "
        "counts and run to run are two questions: the first compares with the reference count, the second "
        "the runs of one process. Vs (scalars), Vermv and Vc are the largest over sizes and threads; time is "
        f"the median at the largest size on {timed_threads(report)} threads over the reference's: more had "
        "no core each. Same bits here is no promise for other sizes.",
    )


def _row(report: ProbeReport, frame: pd.DataFrame) -> dict[str, Any]:
    operation, part, dtype = (str(frame[name].iloc[0]) for name in ("operation", "part", "dtype"))
    differing, most = frame[~frame.equal], timed_threads(report)
    unstable = frame[frame["unique"] > 1]
    at = frame[(frame.threads == most) & (frame["size"] == frame["size"].max())]
    return {
        "operation": operation,
        "part": part,
        "dtype": dtype,
        "verdict": f"differs, first at size {differing['size'].min()}" if len(differing) else SAME,
        "differs_at": ", ".join(map(str, sorted(differing.threads.unique()))),
        "repeats": (
            f"up to {unstable['unique'].max()} of {report.runs} differ, at "
            f"{', '.join(map(str, sorted(unstable.threads.unique())))} threads"
            if len(unstable)
            else f"equal (n={report.runs})"
        ),
        "vs": _most(differing.vs),
        "vermv": _most(differing.vermv),
        "vc": _most(differing.vc),
        "max_ulp": _most(differing.max_ulp),
        "ratio": float(at.ratio.iloc[0]) if len(at) else np.nan,
    }


def timed_threads(report: ProbeReport) -> int:
    """The most threads that had a core each: times of more say nothing of an operation."""
    cores = report.environment.get("threads_in_force", {}).get("visible_cpus", 1)
    return max((count for count in report.threads if count <= cores), default=report.threads[0])


def _most(values: pd.Series) -> float:
    """The one that is largest in magnitude; NaN of none."""
    known = pd.to_numeric(values).dropna().to_numpy(float)
    return float(known[np.abs(known).argmax()]) if len(known) else np.nan


def header(report: ProbeReport) -> str:
    """CPU and versions, without which no bit means anything."""
    seen = report.environment
    libraries = seen.get("libraries", {})
    versions = ", ".join(f"{k} {v}" for k, v in libraries.items() if k not in ("safetensors",))
    framework = seen.get("framework", {})
    isa = framework.get("onednn_isa") or framework.get("cpu_capability") or ""
    return "; ".join(filter(None, [seen.get("cpu", {}).get("model", ""), versions, isa]))


def summary(report: ProbeReport) -> list[str]:
    """What a reader must know, a line each."""
    frame = cells(report)
    lines = [f"{report.framework}, {header(report)}"]
    if len(frame):
        count = frame.operation.nunique()
        varying = list(dict.fromkeys(frame[~frame.equal].operation))
        unstable = list(dict.fromkeys(frame[frame["unique"] > 1].operation))
        lines.append(
            f"{len(varying)} of {count} operations give other bits on other thread counts than "
            f"{report.threads[0]}: {', '.join(varying) or 'none'}"
        )
        lines.append(
            f"{len(unstable)} of {count} do not repeat from run to run (n={report.runs}): "
            f"{', '.join(unstable) or 'none'}"
        )
    if report.refused:
        whole = sorted({key.partition("/")[0] for key in report.refused} - set(frame.operation))
        part = len(report.refused)
        lines.append(f"not computed: {part} cases" + (f"; nothing of {', '.join(whole)}" if whole else ""))
    if report.unknown:
        lines.append(
            "in the stored traces, but unknown to the registry, and not to be called safe: "
            f"{', '.join(report.unknown)}"
        )
    return lines
