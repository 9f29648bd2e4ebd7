"""What the runs at hand could have shown, and the interim analyses of a sequential sweep."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np

from analysis.load.runs import Problem
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, cols, counts, interval
from analysis.stats import statistics
from analysis.stats.power import POWER, Test, detectable

SEQUENTIAL = "sequential.json"
REPEATS = "any: runs repeat"


# ---- power ---------------------------------------------------------------------------------------


def power_table(study: StudyData) -> Table:
    """For every family of tests: the smallest difference between two thread counts that its runs show with
    80 % power (`analysis.stats.power`), for the SD that they have."""
    rows = []
    for workload, variant, runs in study.experiments():
        sets = by_threads(runs)
        if len(sets) < 2:
            continue
        tests = math.comb(len(sets), 2) * len(study.metrics[workload])
        for metric in study.metrics[workload]:
            for view in study.views(workload):
                values = [statistics.finite(s[view.metric(metric)].to_numpy()) for s in sets.values()]
                head = {"workload": workload, "variant": variant, "view": view.value, "metric": metric}
                rows.append(head | {"tests": tests} | _shown(values, tests))
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "metric"),
        *counts("tests", "n"),
        interval("sd", "SD"),
        interval("ranks", "Mann-Whitney U"),
        interval("welch", "Welch's t"),
        col("remark"),
        name="power",
        title="What these runs could have shown: the smallest difference of two thread counts",
        note=f"Seen with {POWER:.0%} power, two-sided, alpha {ALPHA} after Holm's correction over the "
        "family's tests. n is the runs of the smallest set; SD is pooled within the thread counts, with its "
        "95 % chi-square interval, and the differences are those of its bounds. A smaller true difference "
        "will mostly not be found: that it was not found says little.",
    )


def _shown(sets: list[np.ndarray], tests: int) -> dict[str, Any]:
    n = min(map(len, sets))
    sd, freedom, _ = statistics.pooled_sd(sets)
    row: dict[str, Any] = {"n": n}
    row |= {f"{name}{end}": math.nan for name in ("sd", "ranks", "welch") for end in ("", "_low", "_high")}
    if sd is None:
        return row | {"remark": "one run a set: SD unknown"}
    if sd == 0:
        return row | {"sd": 0.0, "sd_low": 0.0, "sd_high": 0.0, "remark": REPEATS}
    low, high = statistics.sd_bounds(freedom + 1)
    row |= {"sd": sd, "sd_low": low * sd, "sd_high": high * sd, "remark": ""}
    for name, test in (("ranks", Test.RANKS), ("welch", Test.WELCH)):
        unit = _unit(n, tests, test)
        if unit is None:
            row["remark"] = "n too small for any difference (U)" if test is Test.RANKS else "n too small"
            continue
        row |= {name: unit * sd, f"{name}_low": unit * low * sd, f"{name}_high": unit * high * sd}
    return row


@functools.cache
def _unit(n: int, tests: int, test: Test) -> float | None:
    """The smallest difference in standard deviations."""
    return detectable(n, 1.0, tests, test)


# ---- interim analyses -----------------------------------------------------------------------------


def read_looks(study: StudyData) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """What `vbstudy sweep --until` kept: its plan and answers; None without any."""
    path = study.directory / SEQUENTIAL
    if not path.is_file():
        return None, ()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        planned = data["plan"]["interim" if "interim" in data["plan"] else "looks"]  # looks: as it was named
        plan = {"until": str(data["plan"]["until"]), "looks": [int(n) for n in planned]}
        answers = [_answer(each) for each in data.get("answers", [])]
        return {
            "plan": plan,
            "looks_done": int(data.get("interim_done", data.get("looks_done", 0))),
            "answers": answers,
        }, ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        todo = "run the same `vbstudy sweep --until` again: it replaces the file"
        what = f"cannot be read: {error!r:.100}"
        return None, (Problem(path=SEQUENTIAL, what=what, todo=todo, skipped=False),)


def _answer(data: dict[str, Any]) -> dict[str, Any]:
    names = dict(zip(("workload", "variant", "view"), data["family"], strict=True))
    names |= {name: data[name] for name in ("metric", "a", "b")}
    return {name: str(text) for name, text in names.items()} | {
        "n": int(data["runs"]),
        "analysis": None,
        "value": None if data["value"] is None else float(data["value"]),
        "decision": str(data["how"]),
    }


def interim_table(looks: dict[str, Any]) -> Table:
    """The decision on every question of a sequential sweep at its last interim analysis."""
    plan, done = looks["plan"], looks["looks_done"]
    planned = plan["looks"]
    index_of = {n: i for i, n in enumerate(planned, start=1)}
    rows = [row | {"analysis": index_of.get(row["n"])} for row in looks["answers"]]
    confidence = 1 - ALPHA / max(1, len(planned))
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "metric"),
        col("a", "set"),
        col("b", "against"),
        *counts("n", "analysis"),
        col("value", kind=Kind.SPREAD),
        col("decision"),
        name="interim",
        title="Interim analyses of the sequential sweep",
        note=f"Rule {plan['until']}; {done} of {len(planned)} planned, at {', '.join(map(str, planned))} "
        f"runs a set. Value: the half-width of a set's interval at this analysis ({confidence:.0%} "
        f"confidence, so that all of them together keep {1 - ALPHA:.0%}), or the p value of a pair, "
        "corrected for their number and by Holm. n and analysis are those of the last one.",
    )
