"""How often two runs predict differently."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, by_seeds, by_threads
from analysis.results.model import (
    ACROSS,
    SCOPE,
    VIEWS_NOTE,
    Kind,
    Table,
    col,
    counts,
    interval,
    several_seeds,
)
from analysis.stats import metrics, statistics
from analysis.stats.crossed import mcnemar
from analysis.stats.observations import SEEDS_NOTE, distinct, of_pairs, over_seeds


def churn(study: StudyData, predictions: Predictions) -> Table:
    """Churn within each set, between every two thread counts, and over all pairs across them (Zhuang
    et al., MLSys 2022, section 3.2), with the share of samples on which all the runs agree."""
    rows = []
    for head, view, runs in study.by_view():
        parts, scopes = by_seeds(runs), dict[str, list[dict[str, Any]]]()
        truth = predictions.truth.get(head["workload"]) if len(parts) == 1 else None
        for part in parts:
            settings = by_threads(part)
            sets = {threads: predictions.stack(view, setting.run_id) for threads, setting in settings.items()}
            models = {threads: len(distinct(setting, view)) for threads, setting in settings.items()}
            for row in _accuracies(list(_churn_rows(sets, models)), sets, models, truth):
                scopes.setdefault(row["scope"], []).append(row)
        for each in scopes.values():
            largest = max((row["largest"] for row in each if row["largest"] is not None), default=None)
            measures = {"churn": ("", 1.0), "agreement": (None, 1.0)}
            found = over_seeds(each, measures, ("n", "pairs"), fixed=bool(runs.seeds_fixed.all()))
            rows.append(head | found | {"largest": largest})
    return Table.of(
        rows,
        *SCOPE,
        *several_seeds(rows),
        *counts("pairs", "samples"),
        interval("churn", bounds=""),
        col("largest", "largest, a pair", Kind.SPREAD),
        interval("agreement", kind=Kind.METRIC),
        col("p_holm", "one accuracy: p (Holm)", Kind.P),
        name="churn",
        title="Churn: how often two runs predict differently",
        note="The mean over pairs of runs of the share of test samples they put in different classes; "
        "agreement is the share on which all n runs agree. Intervals of 95 %: of churn over the runs, pairs "
        "that share a run being dependent (Hoeffding's projection, Student's t), '(exact)' where each "
        f"condition's runs are copies of one run, else from {statistics.PAIRS_FROM} runs of each condition "
        "on where none are copies; of agreement over the samples (Wilson). Where two thread counts gave one "
        "model each, p is McNemar's test that both have one accuracy, with Holm's correction over the pairs. "
        f"{SEEDS_NOTE} {VIEWS_NOTE}",
        hidden=["seeds", "p"],
    )


def _accuracies(
    rows: list[dict[str, Any]], sets: dict[str, np.ndarray], models: dict[str, int], truth: np.ndarray | None
) -> list[dict[str, Any]]:
    """The rows, with McNemar's p where two single models are compared and the truth is known."""
    pairs = {f"{a} | {b}": (a, b) for a, b in combinations(sets, 2) if models[a] == models[b] == 1}
    found = [
        mcnemar(*(sets[name][0] == truth for name in pairs[row["scope"]]))
        if truth is not None and row["kind"] == "between" and row["scope"] in pairs
        else None
        for row in rows
    ]
    corrected = statistics.holm(found)
    return [row | {"p": p, "p_holm": q} for row, p, q in zip(rows, found, corrected, strict=True)]


def _churn_rows(sets: dict[str, np.ndarray], models: dict[str, int]) -> Iterator[dict[str, Any]]:
    """`models`: how many of each set's runs are no copies."""
    sets = dict(zip(sets, metrics.codes(*sets.values()), strict=True))
    classes = int(max(labels.max() for labels in sets.values())) + 1
    counts = {name: metrics.class_counts(labels, classes) for name, labels in sets.items()}
    # Churn of every run with the runs of every set, added up: of all pairs of runs no more is needed.
    against = {
        (a, b): len(sets[b]) * metrics.churn_against(sets[a], counts[b], len(sets[b]))
        for a in sets
        for b in sets
    }
    for name, labels in sets.items():
        n = len(labels)
        row = _churn_row(name, "within", {name: labels}, n * (n - 1) // 2, [against[name, name]], models)
        yield row | {"largest": metrics.churn_matrix(labels).max() if n > 1 else None}
    for a, b in combinations(sets, 2):
        pairs = len(sets[a]) * len(sets[b])
        sums, both = [against[a, b], against[b, a]], {name: sets[name] for name in (a, b)}
        yield _churn_row(f"{a} | {b}", "between", both, pairs, sums, models)
    if len(sets) > 1:
        pairs = sum(len(a) * len(b) for a, b in combinations(sets.values(), 2))
        sums = [np.sum([against[a, b] for b in sets if b != a], axis=0) for a in sets]
        yield _churn_row(ACROSS, "across", sets, pairs, sums, models)


def _churn_row(
    scope: str,
    kind: str,
    sets: dict[str, np.ndarray],
    pairs: int,
    sums: list[np.ndarray],
    models: dict[str, int],
) -> dict[str, Any]:
    """`sums`: for each set (R,) the churn of each run, added up over its pairs."""
    runs = np.concatenate(list(sets.values()))
    value = sum(float(each.sum()) for each in sums) / 2 / pairs if pairs else None
    samples = runs.shape[1]
    agree = statistics.share(round(metrics.agreement(runs) * samples), samples)
    found = statistics.Estimate(value=None, n=len(runs))
    if value is not None:
        counts = [(len(labels), models[name]) for name, labels in sets.items()]
        found = of_pairs(value, [each / pairs for each in sums], counts, most=1.0)
    return {
        "scope": scope,
        "kind": kind,
        "n": len(runs),
        "pairs": pairs,
        "samples": samples,
        **found.cells("churn", ""),
        "largest": None,
        "agreement": agree.value if len(runs) > 1 else None,
        "agreement_low": agree.low,
        "agreement_high": agree.high,
    }
