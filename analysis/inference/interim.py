"""The interim analyses of a sequential sweep."""

from __future__ import annotations

import bisect
from pathlib import Path
from typing import Any

from analysis.load.runs import Problem
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, cols, counts
from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded

SEQUENTIAL = "sequential.json"


def read_looks(directory: Path) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """What `vbstudy sweep --until` kept: its plan and answers; None without any."""
    path = directory / SEQUENTIAL
    if not path.is_file():
        return None, ()
    try:
        data = plain_json.parse(read_bounded(path, bounded.RECORD), bounded.RECORD)
        planned = data["plan"]["interim" if "interim" in data["plan"] else "looks"]  # looks: as it was named
        plan = {"until": str(data["plan"]["until"]), "looks": [int(n) for n in planned]}
        answers = [_answer(each) for each in data.get("answers", [])]
        return {
            "plan": plan,
            "looks_done": int(data.get("interim_done", data.get("looks_done", 0))),
            "answers": answers,
        }, ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        todo = "remove it and run the same `vbstudy sweep --until` again"
        what = f"cannot be read: {error!r:.100}"
        return None, (Problem(path=SEQUENTIAL, what=what, todo=todo, skipped=False),)


def _answer(data: dict[str, Any]) -> dict[str, Any]:
    names = dict(zip(("workload", "variant", "view"), data["family"], strict=True))
    names |= {name: data[name] for name in ("metric", "a", "b")}
    return {name: str(text) for name, text in names.items()} | {
        "n": int(data["runs"]),
        "analysis": None,
        "value": None if data["value"] is None else float(data["value"]),
        # Files of earlier versions have no bounds.
        **{name: None if data.get(name) is None else float(data[name]) for name in ("low", "high")},
        "decision": str(data["how"]),
    }


def interim_table(looks: dict[str, Any]) -> Table:
    """The decision on every question of a sequential sweep at its last interim analysis."""
    plan, done = looks["plan"], looks["looks_done"]
    planned = plan["looks"]
    # Where a variant may have fewer runs than an analysis has, it is the first one with all of them.
    rows = [row | {"analysis": bisect.bisect_left(planned, row["n"]) + 1} for row in looks["answers"]]
    confidence = 1 - ALPHA / max(1, len(planned))
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "metric"),
        col("a", "condition"),
        col("b", "against"),
        *counts("n", "analysis"),
        col("value", kind=Kind.SPREAD),
        *cols("low", "high", kind=Kind.METRIC),
        col("decision"),
        name="interim",
        title="Interim analyses of the sequential sweep",
        note=f"Rule {plan['until']}; {done} of {len(planned)} planned, at {', '.join(map(str, planned))} "
        f"runs of each condition. Value: the half-width of a condition's interval at this analysis "
        f"({100 * confidence:.4g} % confidence, so that all of them together keep {1 - ALPHA:.0%}), or the "
        "p value of a pair, corrected for their number and by Holm. low and high: the bounds of the "
        "condition's interval. n and analysis are those of the last one.",
    )
