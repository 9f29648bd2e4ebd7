"""The tables of a study: `build_tables` is the list of what is computed. Each table states n.

How strongly the runs differ is here; who differs bit for bit is in `analysis.verdicts`, whose
difference is significant in `analysis.comparisons` and `analysis.set_tests`, and what it costs in
`analysis.times` and `analysis.convergence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import metrics, statistics
from analysis.classification import WEAK_BELOW, is_weak
from analysis.comparisons import u_tests
from analysis.components import components
from analysis.convergence import convergence, overhead
from analysis.effects import is_normal, sd_by_bootstrap
from analysis.load import Study, View, by_threads
from analysis.predictions import Predictions
from analysis.results import ACROSS, WHERE, Column, Kind, Table
from analysis.robustness import robustness_tables
from analysis.set_tests import effect_sizes, equivalence, set_tests
from analysis.subgroups import by_class, subgroups
from analysis.times import fastest, wall_time
from analysis.trace_tables import trace_tables
from analysis.verdicts import cpu_models, divergence, verdicts
from analysis.weights import weights
from guest.robustness_records import Robustness
from guest.trace_records import Trace

VIEWS_NOTE = "View 'last' is without model selection, 'selected' the model with the best validation metric."


def build_tables(
    study: Study, predictions: Predictions, measured: Sequence[Robustness] = (), traces: Sequence[Trace] = ()
) -> dict[str, Table]:
    """Every table by name, in the order of reading."""
    loss_by_epoch, classes = loss_sd_by_epoch(study), by_class(study, predictions)
    tables = (
        verdicts(study),
        cpu_models(study),
        divergence(study),
        *trace_tables(study, traces),
        effectiveness(study),
        max_difference(study),
        u_tests(study),
        set_tests(study),
        effect_sizes(study),
        equivalence(study),
        components(study),
        churn(study, predictions),
        *robustness_tables(study, predictions, measured),
        subgroups(classes),
        classes,
        weights(study),
        loss_sd(loss_by_epoch),
        loss_by_epoch,
        wall_time(study),
        fastest(study),
        convergence(study),
        overhead(study),
    )
    return {table.name: table for table in tables}


# ---- 1. effectiveness ---------------------------------------------------------------------------


def effectiveness(study: Study) -> Table:
    """Per experiment set, metric and view: the spread of the test metric, and how many distinct
    models, prediction vectors and values the n runs gave (Pham et al., ASE 2020, section 3.3)."""
    rows = [
        {"workload": workload, "variant": variant, "threads": threads} | _spread(setting, metric, view)
        for workload, variant, runs in study.experiments()
        for threads, setting in by_threads(runs).items()
        for metric in study.metrics[workload]
        for view in View
    ]
    return Table(
        name="effectiveness",
        title="Effectiveness of each experiment set on the test samples",
        note="SD with its 95 % chi-square interval, mean with Student's t; where Shapiro-Wilk finds the "
        "values not normal, SD (bootstrap) has the BCa interval instead. Weak models have an accuracy below "
        f"{WEAK_BELOW:.0%}; the last two columns leave them out. " + VIEWS_NOTE,
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="threads", source="threads"),
            Column(header="metric", source="metric"),
            Column(header="view", source="view"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="mean", source="mean", kind=Kind.METRIC),
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
            Column(header="SD, no weak", source="strong_sd", kind=Kind.SPREAD),
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
        "models": runs[view.sha256("weights")].nunique(),
        "predictions": runs[view.sha256("predictions")].nunique(),
        "values": len(np.unique(finite)),
        "weak": int(weak.sum()),
        "strong_n": len(strong),
        "strong_sd": statistics.sd(strong).value,
        "strong_range": np.ptp(strong) if len(strong) else None,
    }


# ---- 2. the largest difference across thread counts ----------------------------------------------


def max_difference(study: Study) -> Table:
    """Xiao et al., ISSRE 2021, table VII: the epoch at which the thread counts lie furthest apart,
    for each metric, without and with model selection."""
    rows = []
    for workload, variant, runs in study.experiments():
        for metric in study.metrics[workload]:
            for view in View:
                row = {"workload": workload, "variant": variant, "metric": metric, "view": view.value}
                rows.append(row | _difference(study, runs, view.epoch_metric(metric)))
    return Table(
        name="max_difference",
        title="Largest difference across thread counts, and its epoch",
        note="At each epoch a thread count counts with its runs' common value when all repetitions agree, "
        "else with their mean; 'basis' says which. " + VIEWS_NOTE,
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="metric", source="metric"),
            Column(header="view", source="view"),
            Column(header="largest difference", source="difference", kind=Kind.SPREAD),
            Column(header="at epoch", source="epochs"),
            Column(header="threads", source="threads"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="value by thread count", source="values", kind=Kind.METRIC),
            Column(header="basis", source="basis"),
            Column(header="difference at the end", source="final_difference", kind=Kind.SPREAD),
        ),
    )


def _difference(study: Study, runs: pd.DataFrame, column: str) -> dict[str, Any]:
    epochs, values, agree = by_setting(study, runs, column)
    counts = runs.groupby("threads", sort=False).size()
    found = metrics.max_difference(values)
    row = {"threads": list(counts.index), "n": [int(n) for n in counts]}
    if found is None:
        reason = "one thread count only" if len(counts) < 2 else "no epoch in common"
        nothing: dict[str, Any] = {
            "difference": None,
            "epochs": "",
            "first_epoch": None,
            "values": [],
            "basis": reason,
        }
        return row | nothing | {"final_difference": None}
    first, last = epochs[found.first], epochs[found.last]
    end = values[:, -1]
    return row | {
        "difference": found.difference,
        "epochs": str(first) if first == last else f"{first}-{last}",
        "first_epoch": first,
        "values": values[:, found.first].tolist(),
        "basis": "all repetitions agree" if agree[:, found.first].all() else "means of the repetitions",
        "final_difference": float(end.max() - end.min()) if np.isfinite(end).all() else None,
    }


def by_setting(study: Study, runs: pd.DataFrame, column: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """One value a thread setting and epoch: (epochs common to all runs, values (T, E), agree (T, E)).
    Where all repetitions agree the value is theirs, not a mean that rounding may have moved."""
    values, agree = [], []
    wide = epochs_by_run(study, runs, column)
    for setting in by_threads(runs).values():
        each = wide.loc[setting.run_id].to_numpy()
        same = (each == each[0]).all(axis=0)
        values.append(np.where(same, each[0], each.mean(axis=0)))
        agree.append(same)
    return [int(epoch) for epoch in wide.columns], np.array(values), np.array(agree)


def epochs_by_run(study: Study, runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """(R, E) one column of the histories; only epochs that every run has."""
    mine = study.epochs[study.epochs.run_id.isin(runs.run_id)]
    common = mine.groupby("epoch").size() == len(runs)
    wide = mine.pivot(index="run_id", columns="epoch", values=column)
    return wide.loc[runs.run_id, sorted(common[common].index)]


# ---- 3. the standard deviation of the loss -------------------------------------------------------


def loss_sd_by_epoch(study: Study) -> Table:
    """SD of the training loss at every epoch, within each set and across thread counts (there each
    thread count counts once, with its runs' mean)."""
    parts = []
    for workload, variant, runs in study.experiments():
        for scope, values, epochs in _losses(study, runs):
            part = pd.DataFrame({"epoch": epochs, "n": len(values), "sd": metrics.column_sd(values)})
            part["not_finite"] = (~np.isfinite(values)).sum(axis=0)
            part.insert(0, "scope", scope)
            part.insert(0, "variant", variant)
            part.insert(0, "workload", workload)
            parts.append(part)
    return Table(
        name="loss_sd_by_epoch",
        title="Standard deviation of the training loss at every epoch",
        note=f"Scope '{ACROSS}': n thread counts, each with the mean of its runs.",
        frame=pd.concat(parts, ignore_index=True),
        columns=(),
        shown=False,
    )


def _losses(study: Study, runs: pd.DataFrame) -> Iterator[tuple[str, np.ndarray, list[int]]]:
    for threads, setting in by_threads(runs).items():
        wide = epochs_by_run(study, setting, "train_loss")
        yield threads, wide.to_numpy(), [int(epoch) for epoch in wide.columns]
    epochs, values, _ = by_setting(study, runs, "train_loss")
    yield ACROSS, values, epochs


def loss_sd(by_epoch: Table) -> Table:
    """The curves of `loss_sd_by_epoch` in one row each."""
    rows = []
    keys = ["workload", "variant", "scope"]
    for (workload, variant, scope), curve in by_epoch.frame.groupby(keys, sort=False):
        told = curve.dropna(subset="sd")
        peak = None if told.empty or told.sd.max() == 0 else int(told.sd.to_numpy().argmax())
        rows.append(
            {
                "workload": workload,
                "variant": variant,
                "scope": scope,
                "n": int(curve.n.iloc[0]),
                "first": curve.sd.iloc[0],
                "end": curve.sd.iloc[-1],
                "largest": None if told.empty else told.sd.max(),
                "epoch": None if peak is None else told.epoch.iloc[peak],
                "not_finite": int(curve.not_finite.sum()),
            }
        )
    return Table(
        name="loss_sd",
        title="Standard deviation of the training loss over the epochs",
        note=by_epoch.note + " Epochs with a loss that is not finite have none.",
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="threads", source="scope"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="SD, first epoch", source="first", kind=Kind.SPREAD),
            Column(header="SD, last epoch", source="end", kind=Kind.SPREAD),
            Column(header="largest SD", source="largest", kind=Kind.SPREAD),
            Column(header="at epoch", source="epoch", kind=Kind.COUNT),
            Column(header="losses not finite", source="not_finite", kind=Kind.COUNT),
        ),
    )


# ---- 4. churn -------------------------------------------------------------------------------------


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
