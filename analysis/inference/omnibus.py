"""Thread counts compared as sets, all at once: do any of them differ?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.inference.pairwise import corrected_for
from analysis.load.study import StudyData, shared_seeds
from analysis.results.model import ALPHA, Kind, Table, col, cols, count
from analysis.stats.groups import GroupTest, brown_forsythe, friedman, kruskal_wallis
from analysis.stats.observations import values_by_seed, values_by_threads
from analysis.stats.statistics import bonferroni, holm

HEAD = cols("workload", "variant", "view", "metric")
SHARED = "thread counts that share their seeds are not independent"


def set_tests(study: StudyData, analyses: int = 1) -> Table:
    """Kruskal-Wallis (do the thread counts differ in location?) and, of independent seeds, Brown-Forsythe (in
    dispersion?) over all thread counts at once. The family of each is one workload: variants and views.
    `analyses` is that of `comparisons`."""
    rows: list[dict[str, Any]] = []
    for _, runs in study.runs.groupby("workload", sort=False):
        family = [
            _tested(head, sets, matched, analyses)
            for variant, mine in runs.groupby("variant", sort=False)
            if mine.threads.nunique() > 1
            for head, sets, matched in _sets(study, mine, str(variant))
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
        note="Kruskal-Wallis H tests whether the thread counts differ in location, Brown-Forsythe W "
        "whether they differ in dispersion. Thread counts that all have several seeds in common are compared "
        "within these: Friedman's test in place of Kruskal and Wallis's, and no test of dispersion. Alpha "
        f"{ALPHA}, Holm's correction over each workload's tests of one kind. Sets below ten runs get p by "
        f"permutation. n is that of each thread count; copies of a run count once.{corrected_for(analyses)}",
        hidden=["threads", "h_p", "h_method", "w_p", "w_method"],
    )


def _sets(
    study: StudyData, runs: pd.DataFrame, variant: str
) -> Iterator[tuple[dict[str, str], dict[str, np.ndarray], pd.DataFrame]]:
    """What names a test, the observations of each thread count, and those of the seeds that all have."""
    workload = str(runs.workload.iloc[0])
    shared = pd.concat([runs.iloc[:0], *shared_seeds(runs)])
    for view in study.views(workload):
        for metric in study.metrics[workload]:
            head = {"workload": workload, "variant": variant, "view": view.value, "metric": metric}
            matched = values_by_seed(shared, view, metric).dropna()
            yield head, values_by_threads(runs, view, metric), matched


def _tested(
    head: dict[str, str], sets: dict[str, np.ndarray], matched: pd.DataFrame, analyses: int
) -> dict[str, Any]:
    values = list(sets.values())
    within = len(matched) > 1 and len(matched.columns) == len(sets)
    h = friedman(matched.to_numpy()) if within else kruskal_wallis(values)
    w = GroupTest(sizes=h.sizes, method=SHARED) if within else brown_forsythe(values)
    return {
        **head,
        "threads": list(sets),
        "n": list(h.sizes),
        **_cells("h", h, analyses),
        **_cells("w", w, analyses),
    }


def _cells(name: str, test: GroupTest, analyses: int) -> dict[str, Any]:
    """The test, its p corrected for the interim analyses, with room for what its family decides."""
    decided = {f"{name}_p_holm": None, f"{name}_result": ""}
    p = bonferroni(test.p, analyses)
    return {name: test.statistic, f"{name}_p": p, **decided, f"{name}_method": test.method}


def _result(p_holm: float | None, method: str) -> str:
    if p_holm is None:
        return f"not tested: {method}"
    return "differ" if p_holm < ALPHA else "no difference found"
