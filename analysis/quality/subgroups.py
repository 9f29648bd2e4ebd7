"""What the overall accuracy hides: how much single classes move (Pham et al., ASE 2020, section 4.2;
Zhuang et al., MLSys 2022, section 4.2)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import ACROSS, SCOPE, Kind, Table, bound_names, col, count, interval
from analysis.stats import classification, metrics, statistics
from analysis.stats.observations import COUNTED_NOTE, by_seed, counting, sd_of

RATES = {
    "accuracy": classification.class_accuracy,
    "fpr": classification.false_positive_rate,
    "fnr": classification.false_negative_rate,
}
KEYS = ["workload", "variant", "view", "scope"]


def by_class(study: StudyData, predictions: Predictions) -> Table:
    """Accuracy, FPR and FNR of every class: mean, SD and max-min over the runs of each set, and over the
    thread counts (there each counts once, with the mean of its runs)."""
    parts = [
        pd.DataFrame(_class_columns(rates, counts, copies=copies)).assign(**head, scope=scope)
        for head, view, runs in study.by_view()
        for scope, rates, counts, copies in _scopes(predictions, head["workload"], runs, view)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return Table(
        name="by_class",
        title="Accuracy, false positive and false negative rate of every class",
        note="FPR = FP / (FP + TN) and FNR = FN / (FN + TP), each class against the rest. Scope "
        f"'{ACROSS}': n thread counts, each with the mean of its runs. {COUNTED_NOTE}Where labels reach "
        f"{classification.MANY_CLASSES}, classes without samples have no row.",
        frame=frame.set_index(KEYS).reset_index(),
    )


def _scopes(
    predictions: Predictions, workload: str, runs: pd.DataFrame, view: View
) -> Iterator[tuple[str, dict[str, np.ndarray], classification.ClassCounts, bool]]:
    """(scope, rates (n, C) by name, counts of all runs, whether the n are copies of one run): each set, then
    one row a thread count."""
    truth = predictions.truth[workload]
    everything = classification.class_hits(truth, predictions.stack(view, runs.run_id))
    classes = len(everything.support)
    means: dict[str, list[np.ndarray]] = {name: [] for name in (*RATES, "overall")}
    for threads, setting in by_threads(runs).items():
        counted, copies = counting(setting, view)
        rows = np.flatnonzero(runs.run_id.isin(counted.run_id))
        counts = replace(everything, hits=everything.hits[rows], predicted=everything.predicted[rows])
        rates = {name: rate(counts) for name, rate in RATES.items()}
        rates["overall"] = np.repeat(counts.hits.sum(axis=1, keepdims=True) / counts.samples, classes, axis=1)
        rates = {name: by_seed(values, counted.seeds_used) for name, values in rates.items()}
        for name, values in rates.items():
            means[name].append(_column_means(values))
        yield threads, rates, everything, copies
    if len(means["overall"]) > 1:
        across = {name: np.array(values) for name, values in means.items()}
        yield ACROSS, across, everything, False


def _column_means(values: np.ndarray) -> np.ndarray:
    """The mean of each column; of equal values it is that value, which rounding may miss."""
    means: np.ndarray = np.where((values == values[0]).all(axis=0), values[0], values.mean(axis=0))
    return means


def _class_columns(
    rates: dict[str, np.ndarray], counts: classification.ClassCounts, *, copies: bool
) -> dict[str, Any]:
    support, n = counts.support, len(rates["overall"])
    overall = sd_of(rates["overall"][:, 0], copies=copies)
    bounds = {
        name: np.full(len(support), bound, float)  # NaN where there is none
        for name, bound in zip(bound_names("overall_sd"), (overall.low, overall.high), strict=True)
    }
    columns: dict[str, Any] = {"class": counts.classes, "support": support, "n": n}
    for name, values in rates.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # classes without samples are all NaN
            columns |= {
                f"{name}_mean": _column_means(values),
                f"{name}_sd": metrics.column_sd(values),
                **(bounds if name == "overall" else {}),
                f"{name}_range": values.max(axis=0) - values.min(axis=0),
            }
    return columns


def subgroups(classes: Table) -> Table:
    """One row a scope of `by_class`: the class that moves most, beside the overall accuracy."""
    rows = []
    for keys, mine in classes.frame.groupby(KEYS, sort=False):
        known = mine[mine.support > 0]
        top = known.sort_values("accuracy_range", ascending=False, kind="stable").iloc[0]
        overall = float(top.overall_range)
        several = int(top.n) > 1
        rows.append(
            dict(zip(KEYS, keys, strict=True))
            | {
                "n": int(top.n),
                "classes": len(known),
                "overall_range": overall if several else None,
                "overall_sd": top.overall_sd,
                "class_range": top.accuracy_range if several else None,
                "class": int(top["class"]) if several and top.accuracy_range > 0 else None,
                "class_sd": known.accuracy_sd.max(),
                "fpr_sd": known.fpr_sd.max(),
                "fpr_range": known.fpr_range.max() if several else None,
                "fnr_sd": known.fnr_sd.max(),
                "fnr_range": known.fnr_range.max() if several else None,
                "overall_sd_low": top.overall_sd_low,
                "overall_sd_high": top.overall_sd_high,
            }
        )
    return Table.of(
        rows,
        *SCOPE,
        col("overall_range", "max-min, all", Kind.SPREAD),
        col("class_range", "max-min, a class", Kind.SPREAD),
        count("class"),
        interval("overall_sd", "SD, all"),
        col("class_sd", "SD, a class", Kind.SPREAD),
        col("fpr_sd", "SD of FPR", Kind.SPREAD),
        col("fnr_sd", "SD of FNR", Kind.SPREAD),
        name="subgroups",
        title="How much single classes move, beside the overall accuracy",
        note=classes.note + " Each number is that of the class where it is largest; a class has fewer "
        "samples than all, so that its numbers vary more by counting alone. The largest of several SDs has "
        "no interval: it is too large by its choice. " + statistics.INTERVALS_NOTE,
    )


def class_ranges(study: StudyData, predictions: Predictions, workload: str, view: View) -> pd.DataFrame:
    """One row a variant, thread setting and class: variant, threads, class_, samples, n (runs), mean, low
    and high (the least and the greatest of the n runs, not an interval) of its accuracy."""
    rows = []
    for name, variant, runs in study.experiments():
        if name != workload:
            continue
        for threads, setting in by_threads(runs).items():
            labels = predictions.stack(view, setting.run_id)
            counts = classification.class_hits(predictions.truth[workload], labels)
            accuracies = classification.class_accuracy(counts).T
            for class_, samples, each in zip(counts.classes, counts.support, accuracies, strict=True):
                row = {"variant": variant, "threads": threads, "class_": class_, "samples": samples}
                row |= {"n": len(each), "mean": each.mean(), "low": each.min(), "high": each.max()}
                rows += [row] if samples else []
    return pd.DataFrame(rows)
