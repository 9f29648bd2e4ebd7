"""What the runs at hand could have shown, and what the looks of a sequential sweep said."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.load import Problem, Study, by_threads
from analysis.power import POWER, Test, detectable
from analysis.results import ALPHA, WHERE, Column, Kind, Table

SEQUENTIAL = "sequential.json"
REPEATS = "any: runs repeat"


# ---- power ---------------------------------------------------------------------------------------


def power_table(study: Study) -> Table:
    """For every family of tests: the smallest difference between two thread counts that its runs show with
    80 % power (`analysis.power`), for the SD that they have."""
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
    columns = ["workload", "variant", "view", "metric", "tests", "n", "sd", "sd_low", "sd_high"]
    columns += [f"{test}{end}" for test in ("ranks", "welch") for end in ("", "_low", "_high")]
    return Table(
        name="power",
        title="What these runs could have shown: the smallest difference of two thread counts",
        note=f"Seen with {POWER:.0%} power, two-sided, alpha {ALPHA} after Holm's correction over the "
        "family's "
        "tests. n is the runs of the smallest set; SD is pooled within the thread counts, with its 95 % "
        "chi-square interval, and the differences are those of its bounds. A smaller true difference will "
        "mostly not be found: that it was not found says little.",
        frame=pd.DataFrame(rows, columns=[*columns, "remark"]),
        columns=(
            *WHERE,
            Column(header="view", source="view"),
            Column(header="metric", source="metric"),
            Column(header="tests", source="tests", kind=Kind.COUNT),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="SD", source="sd", kind=Kind.SPREAD, low="sd_low", high="sd_high"),
            Column(
                header="Mann-Whitney U", source="ranks", kind=Kind.SPREAD, low="ranks_low", high="ranks_high"
            ),
            Column(header="Welch's t", source="welch", kind=Kind.SPREAD, low="welch_low", high="welch_high"),
            Column(header="remark", source="remark"),
        ),
    )


def _shown(sets: list[np.ndarray], tests: int) -> dict[str, Any]:
    n = min(map(len, sets))
    squares = sum(
        float(((v - v.mean()) ** 2).sum()) for v in sets if len(v) and not statistics.is_constant(v)
    )
    freedom = sum(len(v) - 1 for v in sets if len(v))
    if freedom < 1:
        return {"n": n, "remark": "one run a set: SD unknown"}
    sd = math.sqrt(squares / freedom)
    if sd == 0:
        return {"n": n, "sd": 0.0, "sd_low": 0.0, "sd_high": 0.0, "remark": REPEATS}
    low, high = statistics.sd_bounds(freedom + 1)
    row: dict[str, Any] = {"n": n, "sd": sd, "sd_low": low * sd, "sd_high": high * sd, "remark": ""}
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


# ---- sequential looks -----------------------------------------------------------------------------


def read_looks(study: Study) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """What `vbstudy sweep --until` kept: its plan and answers; None without any."""
    path = study.directory / SEQUENTIAL
    if not path.is_file():
        return None, ()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        plan = {"until": str(data["plan"]["until"]), "looks": [int(n) for n in data["plan"]["looks"]]}
        answers = [_answer(each) for each in data.get("answers", [])]
        return {"plan": plan, "looks_done": int(data.get("looks_done", 0)), "answers": answers}, ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        todo = "run the same `vbstudy sweep --until` again: it writes it anew"
        what = f"cannot be read: {error!r:.100}"
        return None, (Problem(path=SEQUENTIAL, what=what, todo=todo, skipped=False),)


def _answer(data: dict[str, Any]) -> dict[str, Any]:
    workload, variant, view = data["family"]
    value = data["value"]
    return {
        "workload": str(workload),
        "variant": str(variant),
        "view": str(view),
        "metric": str(data["metric"]),
        "a": str(data["a"]),
        "b": str(data["b"]),
        "n": int(data["runs"]),
        "value": None if value is None else float(value),
        "how": str(data["how"]),
    }


def looks_table(looks: dict[str, Any]) -> Table:
    """How every question of a sequential sweep stands after its last look."""
    plan, done = looks["plan"], looks["looks_done"]
    planned = plan["looks"]
    columns = ["workload", "variant", "view", "metric", "a", "b", "n", "look", "value", "how"]
    look_of = {n: i for i, n in enumerate(planned, start=1)}
    rows = [row | {"look": look_of.get(row["n"])} for row in looks["answers"]]
    confidence = 1 - ALPHA / max(1, len(planned))
    return Table(
        name="looks",
        title="The looks of the sequential sweep",
        note=f"Rule {plan['until']}; {done} of {len(planned)} planned looks, at "
        f"{', '.join(map(str, planned))} "
        "runs a set. Value: the half-width of a set's interval at this look "
        f"({confidence:.0%} confidence, so that all looks together keep {1 - ALPHA:.0%}), or the p value of "
        "a "
        "pair, corrected for the looks and by Holm. n and look are those of the last look at the question.",
        frame=pd.DataFrame(rows, columns=columns),
        columns=(
            *WHERE,
            Column(header="view", source="view"),
            Column(header="metric", source="metric"),
            Column(header="set", source="a"),
            Column(header="against", source="b"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="look", source="look", kind=Kind.COUNT),
            Column(header="value", source="value", kind=Kind.SPREAD),
            Column(header="stands", source="how"),
        ),
    )
