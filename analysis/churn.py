"""How often two runs predict differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis import metrics
from analysis.load import Study, View, by_threads
from analysis.predictions import Predictions
from analysis.results import ACROSS, VIEWS_NOTE, WHERE, Column, Kind, Table


def churn(study: Study, predictions: Predictions) -> Table:
    """Churn within each set, between every two thread counts, and over all pairs across them (Zhuang
    et al., MLSys 2022, section 3.2), with the share of samples on which all the runs agree."""
    rows = []
    for workload, variant, runs in study.experiments():
        for view in View:
            head = {"workload": workload, "variant": variant, "view": view.value}
            sets = {
                threads: predictions.stack(view, setting.run_id)
                for threads, setting in by_threads(runs).items()
            }
            rows += [head | row for row in _churn_rows(sets)]
    return Table(
        name="churn",
        title="Churn: how often two runs predict differently",
        note="The mean over pairs of runs of the share of test samples they put in different classes; "
        "agreement is the share on which all n runs agree. " + VIEWS_NOTE,
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="view", source="view"),
            Column(header="threads", source="scope"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="pairs", source="pairs", kind=Kind.COUNT),
            Column(header="samples", source="samples", kind=Kind.COUNT),
            Column(header="churn", source="churn", kind=Kind.SPREAD),
            Column(header="largest, a pair", source="largest", kind=Kind.SPREAD),
            Column(header="agreement", source="agreement", kind=Kind.METRIC),
        ),
    )


def _churn_rows(sets: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    names = list(sets)
    for name in names:
        n = len(sets[name])
        value = metrics.churn_within(sets[name]) if n > 1 else None
        largest = metrics.churn_matrix(sets[name]).max() if n > 1 else None
        yield _churn_row(name, "within", [sets[name]], n * (n - 1) // 2, value) | {"largest": largest}
    disagreeing, total = 0.0, 0
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            value = metrics.churn_between(sets[a], sets[b])
            pairs = len(sets[a]) * len(sets[b])
            disagreeing, total = disagreeing + value * pairs, total + pairs
            yield _churn_row(f"{a} | {b}", "between", [sets[a], sets[b]], pairs, value)
    if total:
        yield _churn_row(ACROSS, "across", list(sets.values()), total, disagreeing / total)


def _churn_row(
    scope: str, kind: str, sets: list[np.ndarray], pairs: int, churn: float | None
) -> dict[str, Any]:
    runs = np.concatenate(sets)
    return {
        "scope": scope,
        "kind": kind,
        "n": len(runs),
        "pairs": pairs,
        "samples": runs.shape[1],
        "churn": churn,
        "largest": None,
        "agreement": metrics.agreement(runs) if len(runs) > 1 else None,
    }
