"""How often two runs predict differently."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ACROSS, SCOPE, VIEWS_NOTE, Kind, Table, col, counts, interval
from analysis.stats import metrics, statistics


def churn(study: StudyData, predictions: Predictions) -> Table:
    """Churn within each set, between every two thread counts, and over all pairs across them (Zhuang
    et al., MLSys 2022, section 3.2), with the share of samples on which all the runs agree."""
    rows = []
    for head, view, runs in study.by_view():
        sets = {
            threads: predictions.stack(view, setting.run_id) for threads, setting in by_threads(runs).items()
        }
        rows += [head | row for row in _churn_rows(sets)]
    return Table.of(
        rows,
        *SCOPE,
        *counts("pairs", "samples"),
        interval("churn", bounds=""),
        col("largest", "largest, a pair", Kind.SPREAD),
        interval("agreement", kind=Kind.METRIC),
        name="churn",
        title="Churn: how often two runs predict differently",
        note="The mean over pairs of runs of the share of test samples they put in different classes; "
        "agreement is the share on which all n runs agree. Intervals of 95 %: of churn over the runs, pairs "
        "that share a run being dependent (Hoeffding's projection, Student's t); of agreement over the "
        "samples (Wilson). " + VIEWS_NOTE,
    )


def _churn_rows(sets: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
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
        row = _churn_row(name, "within", [labels], n * (n - 1) // 2, [against[name, name]])
        yield row | {"largest": metrics.churn_matrix(labels).max() if n > 1 else None}
    for a, b in combinations(sets, 2):
        pairs = len(sets[a]) * len(sets[b])
        yield _churn_row(f"{a} | {b}", "between", [sets[a], sets[b]], pairs, [against[a, b], against[b, a]])
    if len(sets) > 1:
        pairs = sum(len(a) * len(b) for a, b in combinations(sets.values(), 2))
        sums = [np.sum([against[a, b] for b in sets if b != a], axis=0) for a in sets]
        yield _churn_row(ACROSS, "across", list(sets.values()), pairs, sums)


def _churn_row(
    scope: str, kind: str, sets: list[np.ndarray], pairs: int, sums: list[np.ndarray]
) -> dict[str, Any]:
    """`sums`: for each set (R,) the churn of each run, added up over its pairs."""
    runs = np.concatenate(sets)
    value = sum(float(each.sum()) for each in sums) / 2 / pairs if pairs else None
    samples = runs.shape[1]
    agree = statistics.share(round(metrics.agreement(runs) * samples), samples)
    found = statistics.Estimate(value=None, low=None, high=None, n=len(runs), constant=False)
    if value is not None:
        found = statistics.mean_of_pairs(value, [each / pairs for each in sums])
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
