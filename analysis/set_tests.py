"""Thread counts compared as sets: do any of them differ (all at once), how much do two differ, and which
are shown to be the same up to a margin?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis.effects import cliffs, cohens_d, tost
from analysis.groups import brown_forsythe, kruskal_wallis
from analysis.load import Study, by_threads
from analysis.results import ALPHA, Column, Kind, Table
from analysis.statistics import holm

MARGIN = 0.01  # of the metric: two means closer than one point in a hundred count as the same
HEAD = tuple(Column(header=name, source=name) for name in ("workload", "variant", "view", "metric"))
PAIR = (
    *HEAD,
    Column(header="a", source="a"),
    Column(header="b", source="b"),
    Column(header="n a", source="n_a", kind=Kind.COUNT),
    Column(header="n b", source="n_b", kind=Kind.COUNT),
)
PAIR_COLUMNS = ["workload", "variant", "view", "metric", "a", "b", "n_a", "n_b"]

Pair = tuple[str, str, str]  # metric, thread counts a and b


def set_tests(study: Study) -> Table:
    """Kruskal-Wallis (do the thread counts lie at different places?) and Brown-Forsythe (do they spread
    unlike?) over all thread counts at once. The family of each is one workload, all variants and views."""
    rows: list[dict[str, Any]] = []
    for _, runs in study.runs.groupby("workload", sort=False):
        family = [
            _tested(head, sets)
            for variant, mine in runs.groupby("variant", sort=False)
            if mine.threads.nunique() > 1
            for head, sets in _sets(study, mine, str(variant))
        ]
        for test in ("h", "w"):
            corrected = holm([row[f"{test}_p"] for row in family])
            for row, p in zip(family, corrected, strict=True):
                row[f"{test}_p_holm"] = p
                row[f"{test}_result"] = _result(p, row[f"{test}_method"])
        rows += family
    columns = ["workload", "variant", "view", "metric", "threads", "n"]
    columns += [f"{test}{end}" for test in ("h", "w") for end in ("", "_p", "_p_holm", "_result", "_method")]
    return Table(
        name="set_tests",
        title="All thread counts at once: place and spread",
        note=f"Kruskal-Wallis H asks whether the thread counts lie at different places, Brown-Forsythe W "
        f"whether they spread unlike. Alpha {ALPHA}, Holm's correction over each workload's tests of one "
        "kind. Sets below ten runs get p by permutation. n is that of each thread count.",
        frame=pd.DataFrame(rows, columns=columns),
        columns=(
            *HEAD,
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="H", source="h", kind=Kind.RATIO),
            Column(header="p (Holm)", source="h_p_holm", kind=Kind.P),
            Column(header="place", source="h_result"),
            Column(header="W", source="w", kind=Kind.RATIO),
            Column(header="p (Holm)", source="w_p_holm", kind=Kind.P),
            Column(header="spread", source="w_result"),
        ),
    )


def _sets(
    study: Study, runs: pd.DataFrame, variant: str
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray]]]:
    workload = str(runs.workload.iloc[0])
    for view in study.views(workload):
        for metric in study.metrics[workload]:
            head = {"workload": workload, "variant": variant, "view": view.value, "metric": metric}
            column = view.metric(metric)
            yield head, {name: s[column].to_numpy() for name, s in by_threads(runs).items()}


def _tested(head: dict[str, str], sets: dict[str, np.ndarray]) -> dict[str, Any]:
    values = list(sets.values())
    h, w = kruskal_wallis(values), brown_forsythe(values)
    return {
        **head,
        "threads": list(sets),
        "n": list(h.sizes),
        "h": h.statistic,
        "h_p": h.p,
        "h_method": h.method,
        "w": w.statistic,
        "w_p": w.p,
        "w_method": w.method,
    }


def _result(p_holm: float | None, method: str) -> str:
    if p_holm is None:
        return f"not tested: {method}"
    return "differ" if p_holm < ALPHA else "no difference found"


# ---- in pairs -----------------------------------------------------------------------------------------


def effect_sizes(study: Study) -> Table:
    """Cliff's delta and Cohen's d of every two thread counts, with 95 % intervals."""

    def compare(pairs: dict[Pair, tuple[np.ndarray, np.ndarray]]) -> Iterator[dict[str, Any]]:
        for a, b in pairs.values():
            delta, d = cliffs(a, b), cohens_d(a, b)
            yield {
                "n_a": delta.n_a,
                "n_b": delta.n_b,
                "delta": delta.value,
                "delta_low": delta.low,
                "delta_high": delta.high,
                "d": d.value,
                "d_low": d.low,
                "d_high": d.high,
                "remark": d.note,
            }

    columns = [*PAIR_COLUMNS, "delta", "delta_low", "delta_high", "d", "d_low", "d_high", "remark"]
    return Table(
        name="effects",
        title="How much two thread counts differ",
        note="Cliff's delta, P(a > b) - P(a < b), and Cohen's d, the difference of the means in SDs, each "
        "with its 95 % interval. Without variance in either set, d has no unit and delta no interval: the "
        "runs of a set are copies of one.",
        frame=pd.DataFrame(_pairwise(study, compare), columns=columns),
        columns=(
            *PAIR,
            Column(
                header="Cliff's delta", source="delta", kind=Kind.RATIO, low="delta_low", high="delta_high"
            ),
            Column(header="Cohen's d", source="d", kind=Kind.RATIO, low="d_low", high="d_high"),
            Column(header="remark", source="remark"),
        ),
    )


def equivalence(study: Study, margin: float = MARGIN) -> Table:
    """Which thread counts have the same mean up to `margin`: two one-sided tests (Schuirmann 1987),
    corrected by Holm in the families of `comparisons.u_tests`: one workload, variant and view."""

    def compare(pairs: dict[Pair, tuple[np.ndarray, np.ndarray]]) -> Iterator[dict[str, Any]]:
        found = [tost(a, b, margin) for a, b in pairs.values()]
        for one, p_holm in zip(found, holm([one.p for one in found]), strict=True):
            yield {
                "n_a": one.n_a,
                "n_b": one.n_b,
                "margin": margin,
                "difference": one.difference,
                "low": one.low,
                "high": one.high,
                "p": one.p,
                "p_holm": p_holm,
                "method": one.method,
                "result": _same(one.difference, p_holm, one.method, margin),
            }

    columns = [*PAIR_COLUMNS, "margin", "difference", "low", "high", "p", "p_holm", "method", "result"]
    return Table(
        name="equivalence",
        title="Which thread counts are the same up to a margin",
        note=f"Two one-sided Welch t tests (TOST) of means that lie {margin:g} or more apart; alpha {ALPHA}, "
        "Holm's correction within each family (workload x variant x view). 'equivalent' means shown to lie "
        "closer than the margin; 'not shown' is no sign of a difference. The difference of the means (a - b) "
        "has its 90 % interval, uncorrected. Constant sets are compared, not tested.",
        frame=pd.DataFrame(_pairwise(study, compare), columns=columns),
        columns=(
            *PAIR,
            Column(header="difference", source="difference", kind=Kind.SPREAD, low="low", high="high"),
            Column(header="margin", source="margin", kind=Kind.SPREAD),
            Column(header="p (Holm)", source="p_holm", kind=Kind.P),
            Column(header="result", source="result"),
        ),
    )


def _same(difference: float | None, p_holm: float | None, method: str, margin: float) -> str:
    if p_holm is not None:
        return "equivalent" if p_holm < ALPHA else "not shown"
    if difference is None:
        return f"not tested: {method}"
    if difference == 0:
        return "not tested: all runs equal"
    nearer = "closer than" if abs(difference) < margin else "not closer than"
    return f"not tested: {method}, {nearer} the margin"


def _pairwise(
    study: Study,
    compare: Callable[[dict[Pair, tuple[np.ndarray, np.ndarray]]], Iterator[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """One row for each pair of thread counts; `compare` sees a whole family, and answers in its order."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        sets = by_threads(runs)
        for view in study.views(workload):
            pairs = {
                (metric, a, b): (
                    sets[a][view.metric(metric)].to_numpy(),
                    sets[b][view.metric(metric)].to_numpy(),
                )
                for metric in study.metrics[workload]
                for a, b in combinations(sets, 2)
            }
            head = {"workload": workload, "variant": variant, "view": view.value}
            rows += [
                head | {"metric": metric, "a": a, "b": b} | row
                for (metric, a, b), row in zip(pairs, compare(pairs), strict=True)
            ]
    return rows
