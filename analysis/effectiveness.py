"""How good the models of each experiment set are, and how much repetitions vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.classification import WEAK_BELOW, is_weak
from analysis.effects import is_normal, sd_by_bootstrap
from analysis.load import Study, View, by_threads
from analysis.results import VIEWS_NOTE, WHERE, Column, Kind, Table


def effectiveness(study: Study) -> Table:
    """Per experiment set, metric and view: the spread of the test metric, and how many distinct
    models, prediction vectors and values the n runs gave (Pham et al., ASE 2020, section 3.3)."""
    rows = [
        {"workload": workload, "variant": variant, "threads": threads} | _spread(setting, metric, view)
        for workload, variant, runs in study.experiments()
        for threads, setting in by_threads(runs).items()
        for metric in study.metrics[workload]
        for view in study.views(workload)
    ]
    return Table(
        name="effectiveness",
        title="Effectiveness of each experiment set on the test samples",
        note="SD with its 95 % chi-square interval, mean with Student's t; where Shapiro-Wilk finds the "
        "values not normal, SD (bootstrap) has the BCa interval instead. Weak models have an accuracy below "
        f"{WEAK_BELOW:.0%}; the last three columns leave them out. min, max and max-min are of these n runs. "
        + VIEWS_NOTE,
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="threads", source="threads"),
            Column(header="metric", source="metric"),
            Column(header="view", source="view"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="mean", source="mean", kind=Kind.METRIC, low="mean_low", high="mean_high"),
            Column(header="SD", source="sd", kind=Kind.SPREAD, low="sd_low", high="sd_high"),
            Column(
                header="SD (bootstrap)", source="sd_bca", kind=Kind.SPREAD, low="bca_low", high="bca_high"
            ),
            Column(header="min", source="min", kind=Kind.METRIC),
            Column(header="max", source="max", kind=Kind.METRIC),
            Column(header="max-min", source="range", kind=Kind.SPREAD),
            Column(header="models", source="models", kind=Kind.COUNT),
            Column(header="predictions", source="predictions", kind=Kind.COUNT),
            Column(header="values", source="values", kind=Kind.COUNT),
            Column(header="weak", source="weak", kind=Kind.COUNT),
            Column(header="n, no weak", source="strong_n", kind=Kind.COUNT),
            Column(
                header="SD, no weak",
                source="strong_sd",
                kind=Kind.SPREAD,
                low="strong_low",
                high="strong_high",
            ),
            Column(header="max-min, no weak", source="strong_range", kind=Kind.SPREAD),
        ),
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
        "mean": mean.value,
        "mean_low": mean.low,
        "mean_high": mean.high,
        "sd": sd.value,
        "sd_low": sd.low,
        "sd_high": sd.high,
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
        "strong_sd": strong_sd.value,
        "strong_low": strong_sd.low,
        "strong_high": strong_sd.high,
        "strong_range": np.ptp(strong) if len(strong) else None,
    }
