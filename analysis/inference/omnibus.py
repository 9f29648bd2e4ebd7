"""Thread counts compared as sets: do any of them differ (all at once), how much do two differ, and which
are shown to be the same up to a margin?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.design import MARGIN
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ALPHA, Kind, Table, col, cols, count, counts, interval
from analysis.stats.effects import cliffs, cohens_d, tost
from analysis.stats.groups import GroupTest, brown_forsythe, kruskal_wallis
from analysis.stats.statistics import holm

HEAD = cols("workload", "variant", "view", "metric")
PAIR = (*HEAD, *cols("a", "b"), *counts("n_a", "n_b"))

Pair = tuple[str, str, str]  # metric, thread counts a and b


def set_tests(study: StudyData) -> Table:
    """Kruskal-Wallis (do the thread counts differ in location?) and Brown-Forsythe (in
    dispersion?) over all thread counts at once. The family of each is one workload: variants and views."""
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
    return Table.of(
        rows,
        *HEAD,
        count("n"),
        col("h", "H", Kind.RATIO),
        col("h_p_holm", "p (Holm)", Kind.P),
        col("h_result", "location"),
        col("w", "W", Kind.RATIO),
        col("w_p_holm", "p (Holm)", Kind.P),
        col("w_result", "dispersion"),
        name="set_tests",
        title="All thread counts at once: location and dispersion",
        note="Kruskal-Wallis H tests whether the thread counts differ in location, Brown-Forsythe W whether "
        f"they differ in dispersion. Alpha {ALPHA}, Holm's correction over each workload's tests of one "
        "kind. Sets below ten runs get p by permutation. n is that of each thread count.",
        hidden=["threads", "h_p", "h_method", "w_p", "w_method"],
    )


def _sets(
    study: StudyData, runs: pd.DataFrame, variant: str
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
        **_cells("h", h),
        **_cells("w", w),
    }


def _cells(name: str, test: GroupTest) -> dict[str, Any]:
    """The test, with room for what its family decides."""
    decided = {f"{name}_p_holm": None, f"{name}_result": ""}
    return {name: test.statistic, f"{name}_p": test.p, **decided, f"{name}_method": test.method}


def _result(p_holm: float | None, method: str) -> str:
    if p_holm is None:
        return f"not tested: {method}"
    return "differ" if p_holm < ALPHA else "no difference found"


# ---- in pairs -----------------------------------------------------------------------------------------


def effect_sizes(study: StudyData) -> Table:
    """Cliff's delta and Cohen's d of every two thread counts, with 95 % intervals."""

    def compare(pairs: dict[Pair, tuple[np.ndarray, np.ndarray]]) -> Iterator[dict[str, Any]]:
        for a, b in pairs.values():
            delta, d = cliffs(a, b), cohens_d(a, b)
            yield {
                "n_a": delta.n_a,
                "n_b": delta.n_b,
                **delta.cells("delta"),
                **d.cells("d"),
                "remark": d.note,
            }

    return Table.of(
        _pairwise(study, compare),
        *PAIR,
        interval("delta", "Cliff's delta", Kind.RATIO),
        interval("d", "Cohen's d", Kind.RATIO),
        col("remark"),
        name="effects",
        title="How much two thread counts differ",
        note="Cliff's delta, P(a > b) - P(a < b), and Cohen's d, the difference of the means in SDs, each "
        "with its 95 % interval. Without variance in either set, d has no unit and delta no interval: the "
        "runs of a set are copies of one.",
    )


def equivalence(study: StudyData, margin: float = MARGIN) -> Table:
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

    return Table.of(
        _pairwise(study, compare),
        *PAIR,
        interval("difference", bounds=""),
        col("margin", kind=Kind.SPREAD),
        col("p_holm", "p (Holm)", Kind.P),
        col("result"),
        name="equivalence",
        title="Which thread counts are the same up to a margin",
        note=f"Two one-sided Welch t tests (TOST) of means that lie {margin:g} or more apart; alpha {ALPHA}, "
        "Holm's correction within each family (workload x variant x view). 'equivalent' means shown to lie "
        "closer than the margin; 'not shown' is no sign of a difference. The difference of the means (a - b) "
        "has its 90 % interval, uncorrected. Constant sets are compared, not tested.",
        hidden=["p", "method"],
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
    study: StudyData,
    compare: Callable[[dict[Pair, tuple[np.ndarray, np.ndarray]]], Iterator[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """One row for each pair of thread counts; `compare` sees a whole family, and answers in its order."""
    rows: list[dict[str, Any]] = []
    for head, view, runs in study.by_view():
        sets = by_threads(runs)
        pairs = {
            (metric, a, b): (sets[a][view.metric(metric)].to_numpy(), sets[b][view.metric(metric)].to_numpy())
            for metric in study.metrics[head["workload"]]
            for a, b in combinations(sets, 2)
        }
        rows += [
            head | {"metric": metric, "a": a, "b": b} | row
            for (metric, a, b), row in zip(pairs, compare(pairs), strict=True)
        ]
    return rows
