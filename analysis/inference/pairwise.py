"""Which thread counts differ significantly: Mann-Whitney U between every pair, corrected by Holm."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pandas as pd

from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, cols, count, counts
from analysis.stats import statistics

DIFFER, NONE_FOUND, UNREACHABLE = "differ", "no difference found", "n too small to find any"


def u_tests(study: StudyData) -> Table:
    """Pairwise U tests of the final test metric (Xiao et al., ISSRE 2021, section IV, which did not
    correct). A family is one workload, variant and view, with all its metrics."""
    rows = [
        head | row
        for head, view, runs in study.by_view()
        for row in _family(runs, view, study.metrics[head["workload"]])
    ]
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "metric", "a", "b"),
        *counts("n_a", "n_b"),
        count("u", "U"),
        col("p", kind=Kind.P),
        col("p_holm", "p (Holm)", Kind.P),
        col("p_smallest", "minimum attainable p", Kind.P),
        *cols("result", "method"),
        name="tests",
        title="Thread counts compared in pairs: Mann-Whitney U",
        note=f"Two-sided, alpha {ALPHA}, Holm's correction within each family (workload x variant x view). "
        "'Minimum attainable p' is the smallest corrected p that these n can reach. Two constant sets are "
        "not tested: runs that are copies of each other are one observation. No difference found is not "
        "sameness. How large they are: table 'effects'.",
        hidden=["family", "delta"],
    )


def _family(runs: pd.DataFrame, view: View, metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of one family, with the corrected p values."""
    sets = by_threads(runs)
    named = [
        (
            metric,
            a,
            b,
            statistics.mann_whitney(*(sets[name][view.metric(metric)].to_numpy() for name in (a, b))),
        )
        for metric in metrics
        for a, b in combinations(sets, 2)
    ]
    corrected = statistics.holm([found.p for *_, found in named])
    size = sum(p is not None for p in corrected)
    return [
        {
            "metric": metric,
            "a": a,
            "b": b,
            "n_a": found.n_a,
            "n_b": found.n_b,
            "u": found.u,
            "p": found.p,
            "p_holm": p,
            "p_smallest": None
            if p is None or found.smallest_p is None
            else min(1.0, size * found.smallest_p),
            "family": size,
            "delta": found.delta,
            "method": found.method,
            "result": _result(found, p, size),
        }
        for (metric, a, b, found), p in zip(named, corrected, strict=True)
    ]


def _result(found: statistics.Comparison, p_holm: float | None, size: int) -> str:
    if p_holm is None or found.smallest_p is None:
        return f"not tested: {found.method}"
    if p_holm < ALPHA:
        return DIFFER
    return UNREACHABLE if size * found.smallest_p > ALPHA else NONE_FOUND
