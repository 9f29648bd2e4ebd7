"""What the overall accuracy hides: how much single classes move (Pham et al., ASE 2020, section 4.2;
Zhuang et al., MLSys 2022, section 4.2)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis import classification, metrics, statistics
from analysis.load import Study, View, by_threads
from analysis.predictions import Predictions
from analysis.results import ACROSS, ALPHA, Column, Kind, Table

RATES = {
    "accuracy": classification.class_accuracy,
    "fpr": classification.false_positive_rate,
    "fnr": classification.false_negative_rate,
}
OF_A_CLASS = {"class": "accuracy", "fpr": "fpr", "fnr": "fnr"}
KEYS = ["workload", "variant", "view", "scope"]


def by_class(study: Study, predictions: Predictions) -> Table:
    """Accuracy, FPR and FNR of every class: mean, SD and max-min over the runs of each set, and over the
    thread counts (there each counts once, with the mean of its runs)."""
    parts = [
        pd.DataFrame(_class_columns(rates, support, n)).assign(
            workload=workload, variant=variant, view=view.value, scope=scope
        )
        for workload, variant, runs in study.experiments()
        for view in study.views(workload)
        for scope, rates, support, n in _scopes(predictions, workload, runs, view)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return Table(
        name="by_class",
        title="Accuracy, false positive and false negative rate of every class",
        note="FPR = FP / (FP + TN) and FNR = FN / (FN + TP), each class against the rest. Scope "
        f"'{ACROSS}': n thread counts, each with the mean of its runs.",
        frame=frame.set_index(KEYS).reset_index(),
        columns=(),
        shown=False,
    )


def _scopes(
    predictions: Predictions, workload: str, runs: pd.DataFrame, view: View
) -> Iterator[tuple[str, dict[str, np.ndarray], np.ndarray, int]]:
    """(scope, rates (n, C) by name, support (C,), n): each set, then one row a thread count."""
    truth = predictions.truth[workload]
    everything = classification.class_hits(truth, predictions.stack(view, runs.run_id))
    classes = len(everything.support)
    means: dict[str, list[np.ndarray]] = {name: [] for name in (*RATES, "overall")}
    for threads, setting in by_threads(runs).items():
        rows = np.flatnonzero(runs.run_id.isin(setting.run_id))
        counts = classification.ClassCounts(
            hits=everything.hits[rows], predicted=everything.predicted[rows], support=everything.support
        )
        rates = {name: rate(counts) for name, rate in RATES.items()}
        rates["overall"] = np.repeat(counts.hits.sum(axis=1, keepdims=True) / counts.samples, classes, axis=1)
        for name, values in rates.items():
            means[name].append(_column_means(values))
        yield threads, rates, everything.support, len(rows)
    if len(means["overall"]) > 1:
        across = {name: np.array(values) for name, values in means.items()}
        yield ACROSS, across, everything.support, len(means["overall"])


def _column_means(values: np.ndarray) -> np.ndarray:
    """The mean of each column; of equal values it is that value, which rounding may miss."""
    means: np.ndarray = np.where((values == values[0]).all(axis=0), values[0], values.mean(axis=0))
    return means


def _class_columns(rates: dict[str, np.ndarray], support: np.ndarray, n: int) -> dict[str, Any]:
    columns: dict[str, Any] = {"class": np.arange(len(support)), "support": support, "n": n}
    for name, values in rates.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # classes without samples are all NaN
            columns |= {
                f"{name}_mean": _column_means(values),
                f"{name}_sd": metrics.column_sd(values),
                f"{name}_range": values.max(axis=0) - values.min(axis=0),
            }
    return columns


def subgroups(classes: Table) -> Table:
    """One row a scope of `by_class`: the class that moves most, beside the overall accuracy."""
    rows = []
    for keys, mine in classes.frame.groupby(KEYS, sort=False):
        told = mine[mine.support > 0]
        low, high = statistics.sd_bounds(int(told.n.iloc[0]))
        each_low, each_high = statistics.sd_bounds(int(told.n.iloc[0]), 1 - ALPHA / len(told))
        top = told.sort_values("accuracy_range", ascending=False, kind="stable").iloc[0]
        overall = float(top.overall_range)
        several = int(top.n) > 1
        rows.append(
            dict(zip(KEYS, keys, strict=True))
            | {
                "n": int(top.n),
                "classes": len(told),
                "overall_range": overall if several else None,
                "overall_sd": top.overall_sd,
                "class_range": top.accuracy_range if several else None,
                "class": int(top["class"]) if several and top.accuracy_range > 0 else None,
                "class_sd": told.accuracy_sd.max(),
                "times": top.accuracy_range / overall if overall > 0 else None,
                "fpr_sd": told.fpr_sd.max(),
                "fpr_range": told.fpr_range.max() if several else None,
                "fnr_sd": told.fnr_sd.max(),
                "fnr_range": told.fnr_range.max() if several else None,
                "overall_low": low * top.overall_sd,
                "overall_high": high * top.overall_sd,
            }
            | {f"{name}_low": each_low * told[f"{source}_sd"].max() for name, source in OF_A_CLASS.items()}
            | {f"{name}_high": each_high * told[f"{source}_sd"].max() for name, source in OF_A_CLASS.items()}
        )
    return Table(
        name="subgroups",
        title="How much single classes move, beside the overall accuracy",
        note=classes.note + " Each number is that of the class where it is largest; 'times' is the largest "
        "max-min of a class over that of the overall accuracy. SD with chi-square intervals of 95 %, those "
        "of a "
        "class over all classes (Bonferroni).",
        frame=pd.DataFrame(rows),
        columns=(
            *(Column(header=name, source=name) for name in ("workload", "variant", "view")),
            Column(header="threads", source="scope"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="max-min, all", source="overall_range", kind=Kind.SPREAD),
            Column(header="max-min, a class", source="class_range", kind=Kind.SPREAD),
            Column(header="class", source="class", kind=Kind.COUNT),
            Column(header="times", source="times", kind=Kind.RATIO),
            Column(
                header="SD, all",
                source="overall_sd",
                kind=Kind.SPREAD,
                low="overall_low",
                high="overall_high",
            ),
            Column(
                header="SD, a class", source="class_sd", kind=Kind.SPREAD, low="class_low", high="class_high"
            ),
            Column(header="SD of FPR", source="fpr_sd", kind=Kind.SPREAD, low="fpr_low", high="fpr_high"),
            Column(header="SD of FNR", source="fnr_sd", kind=Kind.SPREAD, low="fnr_low", high="fnr_high"),
        ),
    )
