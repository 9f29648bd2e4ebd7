"""Test performance of the models of each condition, and how much repetitions vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import VIEWS_NOTE, WHERE, Kind, Table, col, cols, count, counts, interval
from analysis.stats import statistics
from analysis.stats.classification import WEAK_BELOW, is_weak
from analysis.stats.effects import is_normal, sd_by_bootstrap


def performance(study: StudyData) -> Table:
    """For each condition, metric and view: the dispersion of the test metric, and how many distinct
    models, prediction vectors and values the n runs gave (Pham et al., ASE 2020, section 3.3)."""
    rows = [
        {"workload": workload, "variant": variant, "threads": threads} | _spread(setting, metric, view)
        for workload, variant, runs in study.experiments()
        for threads, setting in by_threads(runs).items()
        for metric in study.metrics[workload]
        for view in study.views(workload)
    ]
    return Table.of(
        rows,
        *WHERE,
        *cols("threads", "metric", "view"),
        count("n"),
        interval("mean", kind=Kind.METRIC),
        interval("sd", "SD"),
        interval("sd_bca", "SD (bootstrap)", bounds="bca"),
        *cols("min", "max", kind=Kind.METRIC),
        col("range", "max-min", Kind.SPREAD),
        *counts("models", "predictions", "values", "weak"),
        count("strong_n", "n, no weak"),
        interval("strong_sd", "SD, no weak", bounds="strong"),
        col("strong_range", "max-min, no weak", Kind.SPREAD),
        name="performance",
        title="Test performance of each condition",
        note="SD with its 95 % chi-square interval, mean with Student's t; where Shapiro-Wilk finds the "
        "values not normal, SD (bootstrap) has the BCa interval instead. Weak models have an accuracy below "
        f"{WEAK_BELOW:.0%}; the last three columns leave them out. min, max and max-min are of these n runs. "
        + VIEWS_NOTE,
    )


def _spread(runs: pd.DataFrame, metric: str, view: View) -> dict[str, Any]:
    values = runs[view.metric(metric)].to_numpy()
    mean, sd = statistics.mean(values), statistics.sd(values)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (np.nan, np.nan)
    boot = None if is_normal(values) else sd_by_bootstrap(values)
    accuracy = view.metric("accuracy")
    weak = is_weak(runs[accuracy if accuracy in runs else view.metric(metric)].to_numpy())
    strong = statistics.finite(values[~weak])
    strong_sd = statistics.sd(strong)
    return {
        "set_id": runs.set_id.iloc[0],
        "metric": metric,
        "view": view.value,
        "n": mean.n,
        **mean.cells("mean"),
        **sd.cells("sd"),
        "sd_bca": boot.value if boot else None,
        "bca_low": boot.low if boot else None,
        "bca_high": boot.high if boot else None,
        "min": low,
        "max": high,
        "range": high - low,
        "models": runs[view.sha256("weights")].nunique() or None,  # None: not recorded
        "predictions": runs[view.sha256("predictions")].nunique() or None,
        "values": len(np.unique(finite)),
        "weak": int(weak.sum()),
        "strong_n": len(strong),
        **strong_sd.cells("strong_sd", "strong"),
        "strong_range": np.ptp(strong) if len(strong) else None,
    }
