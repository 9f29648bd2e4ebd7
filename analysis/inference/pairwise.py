"""Thread settings compared in pairs: do two differ, by how much, are they the same up to a margin, and which
difference could have been seen?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.inference.contrasts import Contrast, contrasts
from analysis.load.study import StudyData, View
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, cols, interval
from analysis.stats import statistics
from analysis.stats.power import POWER
from analysis.stats.statistics import bonferroni

DIFFER, NONE_FOUND, UNREACHABLE = "differ", "no difference found", "n too small to find any"
EQUIVALENT, NOT_SHOWN = "equivalent", "not shown"
NO_MARGIN = "not tested: no margin is declared ([analysis])"


def comparisons(study: StudyData, analyses: int = 1) -> Table:
    """Every two thread settings in every metric and view. A family is one workload, variant and view, with
    all its metrics: Holm's correction for the differences, and another for the equivalences. `analyses` is
    how many a sequential sweep planned: over them the error is spent in equal parts, as `sweep --until`
    does."""
    rows = [
        head | row
        for head, view, runs in study.by_view()
        for row in _family(study, head["workload"], runs, view, analyses)
    ]
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "metric", "pair", "n"),
        interval("difference", bounds=""),
        interval("d", "in SDs", Kind.RATIO),
        col("p_holm", "p (Holm)", Kind.P),
        col("verdict"),
        col("detectable", "smallest detectable", Kind.SPREAD),
        name="tests",
        title="Thread counts compared in pairs",
        note=f"The difference of the means (first - second) with its {1 - ALPHA:.0%} interval, and in SDs "
        "(Hedges' g, in SDs within conditions; of pairs d, in SDs of the differences: the two cannot be "
        "compared). 'n pairs': runs of the same random numbers are compared with each "
        "other, by sign-flip permutation; else the conditions, by Brunner and Munzel's permutation test. "
        f"Copies of a run count once. 'differ': two-sided p < {ALPHA} after Holm's correction within each "
        f"family (workload x variant x view); '{UNREACHABLE}': at these n not even complete separation is "
        f"significant. '{EQUIVALENT}': two one-sided t tests show the means nearer than the margin, "
        f"corrected alike. No difference found is not sameness: a difference below the smallest detectable "
        f"({POWER:.0%} power) would mostly not have been found.{corrected_for(analyses)}",
        hidden=["a", "b", "n_a", "n_b", "observations_a", "observations_b", "matched", "u", "p", "p_smallest",
                "family", "method", "result", "margin", "same_p", "same_p_holm", "same", "sd", "remark",
                "analyses"],
    )  # fmt: skip


def corrected_for(analyses: int) -> str:
    """What a table's note adds of the planned interim analyses, if there are any."""
    return f" All are corrected for {analyses} planned interim analyses." if analyses > 1 else ""


def _family(
    study: StudyData, workload: str, runs: pd.DataFrame, view: View, analyses: int
) -> list[dict[str, Any]]:
    named = [(metric, each) for metric in study.metrics[workload] for each in contrasts(runs, view, metric)]
    rows = [_row(each, metric, study.margin(workload, metric), analyses) for metric, each in named]
    differ = statistics.holm([row["p"] for row in rows])
    same = statistics.holm([row["same_p"] for row in rows])
    size = sum(p is not None for p in differ)
    for row, (_, each), p, q in zip(rows, named, differ, same, strict=True):
        least = row.pop("least")
        row |= {"p_holm": p, "same_p_holm": q, "family": size}
        row["p_smallest"] = None if p is None or least is None else min(1.0, size * least)
        row["result"] = _result(row)
        row["same"] = _same(row)
        row["verdict"] = _verdict(row["result"], row["same"])
        row["detectable"] = each.detectable(max(1, size) * analyses)
    return rows


def _row(each: Contrast, metric: str, margin: float | None, analyses: int) -> dict[str, Any]:
    """One comparison before its family is known."""
    confidence = 1 - ALPHA / analyses
    found, effect, delta = each.test(), each.effect(confidence), each.delta(confidence)
    low, high = each.bounds(confidence)
    alike = None if margin is None else each.same(margin, confidence)
    sizes = (len(each.x), len(each.y))

    return {
        "metric": metric,
        "a": each.a,
        "b": each.b,
        "pair": f"{each.a} | {each.b}",
        "n": f"{sizes[0]} pairs" if each.matched else " · ".join(map(str, sizes)),
        "n_a": each.n_a,
        "n_b": each.n_b,
        "observations_a": sizes[0],
        "observations_b": sizes[1],
        "matched": each.matched,
        "difference": each.difference,
        "low": low,
        "high": high,
        **effect.cells("d"),
        **delta.cells("delta"),
        "remark": effect.note,
        "u": found.u,
        "p": bonferroni(found.p, analyses),
        "least": bonferroni(found.smallest_p, analyses),
        "method": found.method,
        "margin": margin,
        "same_p": None if alike is None else bonferroni(alike.p, analyses),
        "same_low": None if alike is None else alike.low,
        "same_high": None if alike is None else alike.high,
        "same_method": "" if alike is None else alike.method,
        "sd": each.sd(),
        "analyses": analyses,
    }


def _result(row: dict[str, Any]) -> str:
    if row["p_holm"] is None:
        return f"not tested: {row['method']}"
    if row["p_holm"] < ALPHA:
        return DIFFER
    return UNREACHABLE if (row["p_smallest"] or 0) > ALPHA else NONE_FOUND


def _same(row: dict[str, Any]) -> str:
    """Whether the equivalence is shown."""
    if row["margin"] is None:
        return NO_MARGIN
    if row["same_p_holm"] is None:
        return f"not tested: {row['same_method']}"
    return EQUIVALENT if row["same_p_holm"] < ALPHA else NOT_SHOWN


def _verdict(result: str, same: str) -> str:
    if same != EQUIVALENT:
        return result
    return f"{DIFFER}, by less than the margin" if result == DIFFER else EQUIVALENT
