"""Test performance of the models of each condition, and how much repetitions vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import VIEWS_NOTE, WHERE, Kind, Table, cols, count, counts, interval
from analysis.stats.crossed import crossed_mean
from analysis.stats.observations import COUNTED_NOTE, FAILED_NOTE, by_seed, distinct, observed, succeeded
from analysis.stats.statistics import INTERVALS_NOTE, Estimate, bounds_of
from guest.records.run import Metric

KEYS = ("workload", "variant", "metric", "view")
ROUNDED = 0.01  # by which a reported accuracy may differ from that of the predictions
NOTHING = Estimate(value=None, n=0)


def performance(
    study: StudyData, predictions: Predictions | None = None, ratios: Sequence[Mapping[Any, Any]] = ()
) -> Table:
    """For each condition, metric and view: the dispersion of the test metric, and how many distinct
    models, prediction vectors and values the n runs gave (Pham et al., ASE 2020, section 3.3); of accuracies
    whose predictions are known, also the mean for other test samples. `ratios` are the rows of `seeds`."""
    known = {tuple(row[name] for name in KEYS): row for row in ratios}
    rows: list[dict[str, Any]] = [
        {"workload": workload, "variant": variant, "threads": threads}
        | _spread(setting, metric, view)
        | _other_samples(setting, metric, view, predictions).cells("other")
        for workload, variant, runs in study.experiments()
        for threads, setting in by_threads(runs).items()
        for metric in study.metrics[workload]
        for view in study.views(workload)
    ]
    for row in rows:
        if found := known.get(tuple(row[name] for name in KEYS)):
            row |= {name: found[name] for name in ("ratio", "ratio_low", "ratio_high")}
    return Table.of(
        rows,
        *WHERE,
        *cols("threads", "metric", "view"),
        count("n"),
        interval("mean", kind=Kind.METRIC),
        interval("sd", "SD"),
        *([interval("ratio", "SD threads / seeds", Kind.RATIO)] if len(ratios) else []),
        *counts("models", *["seeds"] * any(row["seeds"] is not None for row in rows), "failed"),
        interval("other", "mean, other test samples", Kind.METRIC),
        name="performance",
        title="Test performance of each condition",
        note="All numbers are for this test set; 'mean, other test samples' has the interval for other runs "
        "and other test samples of the same kind (of one model, Wilson's), in the accuracy's unit; empty "
        f"where that is not the accuracy of the predictions. {COUNTED_NOTE}"
        f"{FAILED_NOTE} They are left out of the other columns. {INTERVALS_NOTE} '(exact)': the runs are "
        "copies of one run, so there is no sampling error; F2 bounds the probability that one more differs. "
        f"SD threads / seeds is that of the table 'seeds'. {VIEWS_NOTE}",
    )


def _spread(runs: pd.DataFrame, metric: str, view: View) -> dict[str, Any]:
    found = observed(runs, view, metric)
    mean, sd = found.mean(within=bounds_of(metric)), found.sd()
    known = len(found.values) > 0
    low, high = (found.values.min(), found.values.max()) if known else (np.nan, np.nan)
    return {
        "set_id": runs.set_id.iloc[0],
        "metric": metric,
        "view": view.value,
        "n": len(runs),
        "observations": len(found.values),
        **mean.cells("mean"),
        **sd.cells("sd"),
        "min": low,
        "max": high,
        "range": high - low,
        "models": runs[view.sha256("weights")].nunique() or None,  # None: not recorded
        "predictions": runs[view.sha256("predictions")].nunique() or None,
        "values": len(np.unique(found.values)),
        "seeds": found.seeds,
        "failed": found.failed,
        **found.failure_rate().cells("failure_rate"),
    }


def _other_samples(runs: pd.DataFrame, metric: str, view: View, predictions: Predictions | None) -> Estimate:
    workload = str(runs.workload.iloc[0])
    if metric != Metric.ACCURACY or predictions is None or workload not in predictions.truth:
        return NOTHING
    each = succeeded(distinct(runs, view), view, metric)
    if each.empty:
        return NOTHING
    correct = predictions.stack(view, each.run_id) == predictions.truth[workload]
    scale = _scale(each[view.metric(metric)].to_numpy(float), correct.mean(axis=1))
    if scale is None:
        return NOTHING
    found = crossed_mean(by_seed(correct, each.seeds_used))
    value, low, high = (
        None if bound is None else scale * bound for bound in (found.value, found.low, found.high)
    )
    return dataclasses.replace(found, value=value, low=low, high=high)


def _scale(told: np.ndarray, accuracies: np.ndarray) -> int | None:
    """What the reported metric is of a share: 1, 100 where a project gives percents; None where it is not
    the accuracy of the predictions."""
    return next((by for by in (1, 100) if (np.abs(told / by - accuracies) <= ROUNDED).all()), None)
