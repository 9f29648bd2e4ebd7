"""Epoch by epoch: the largest difference across thread counts, and the dispersion of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.study import StudyData, by_threads
from analysis.results.model import ACROSS, ALPHA, VIEWS_NOTE, WHERE, Kind, Table, col, cols, count, interval
from analysis.stats import metrics, statistics


def max_difference(study: StudyData) -> Table:
    """Xiao et al., ISSRE 2021, table VII: the epoch at which the thread counts lie furthest apart,
    for each metric, without and with model selection."""
    rows = []
    for workload, variant, runs in study.experiments():
        for metric in study.metrics[workload]:
            for view in study.views(workload):
                row = {"workload": workload, "variant": variant, "metric": metric, "view": view.value}
                rows.append(row | _difference(study, runs, view.epoch_metric(metric)))
    return Table.of(
        rows,
        *WHERE,
        *cols("metric", "view"),
        interval("difference", "largest difference", bounds=""),
        col("epochs", "at epoch"),
        col("threads"),
        count("n"),
        col("values", "value by thread count", Kind.METRIC),
        col("basis"),
        col("final_difference", "difference at the end", Kind.SPREAD),
        name="max_difference",
        title="Largest difference across thread counts, and its epoch",
        note="At each epoch a thread count counts with its runs' common value when all repetitions agree, "
        "else with their mean; 'basis' says which. The interval is Welch's, of the two thread counts that "
        "lie furthest apart at that epoch, at 95 % over all pairs of them (Bonferroni); the epoch is taken "
        "as named before. Of copies of one run the difference is exact. " + VIEWS_NOTE,
    )


def _difference(study: StudyData, runs: pd.DataFrame, column: str) -> dict[str, Any]:
    epochs, values, agree = by_setting(study, runs, column)
    counts = runs.groupby("threads", sort=False).size()
    found = metrics.max_difference(values)
    row = {"threads": list(counts.index), "n": [int(n) for n in counts]}
    if found is None:
        reason = "one thread count only" if len(counts) < 2 else "no epoch in common"
        nothing: dict[str, Any] = {
            "difference": None,
            "low": None,
            "high": None,
            "epochs": "",
            "first_epoch": None,
            "values": [],
            "basis": reason,
        }
        return row | nothing | {"final_difference": None}
    first, last = epochs[found.first], epochs[found.last]
    end = values[:, -1]
    low, high = _difference_bounds(study, runs, column, first, values[:, found.first], found.difference)
    return row | {
        "difference": found.difference,
        "epochs": str(first) if first == last else f"{first}-{last}",
        "first_epoch": first,
        "low": low,
        "high": high,
        "values": values[:, found.first].tolist(),
        "basis": "all repetitions agree" if agree[:, found.first].all() else "means of the repetitions",
        "final_difference": float(end.max() - end.min()) if np.isfinite(end).all() else None,
    }


def _difference_bounds(
    study: StudyData, runs: pd.DataFrame, column: str, epoch: int, values: np.ndarray, difference: float
) -> tuple[float | None, float | None]:
    at = study.epochs[study.epochs.epoch == epoch].set_index("run_id")[column]
    sets = [setting.run_id for setting in by_threads(runs).values()]
    a, b = (at.loc[sets[int(i)]].to_numpy() for i in (values.argmax(), values.argmin()))
    if min(len(a), len(b)) < 2:
        return None, None
    if statistics.is_constant(a) and statistics.is_constant(b):
        return difference, difference
    pairs = len(sets) * (len(sets) - 1) / 2
    return statistics.welch_bounds(a, b, 1 - ALPHA / pairs)


def by_setting(study: StudyData, runs: pd.DataFrame, column: str) -> tuple[list[int], np.ndarray, np.ndarray]:
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


def epochs_by_run(study: StudyData, runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """(R, E) one column of the histories; only epochs that every run has."""
    mine = study.epochs[study.epochs.run_id.isin(runs.run_id)]
    common = mine.groupby("epoch").size() == len(runs)
    wide = mine.pivot(index="run_id", columns="epoch", values=column)
    return wide.loc[runs.run_id, sorted(common[common].index)]


# ---- the standard deviation of the loss ------------------------------------------------------------


def loss_sd_by_epoch(study: StudyData) -> Table:
    """SD of the training loss at every epoch, within each set and across thread counts (there each
    thread count counts once, with its runs' mean)."""
    parts = []
    for workload, variant, runs in study.experiments():
        for scope, values, epochs in _losses(study, runs):
            part: dict[str, Any] = {"workload": workload, "variant": variant, "scope": scope, "epoch": epochs}
            part |= {"n": len(values), "sd": metrics.column_sd(values)}
            parts.append(pd.DataFrame(part | {"not_finite": (~np.isfinite(values)).sum(axis=0)}))
    return Table(
        name="loss_sd_by_epoch",
        title="Standard deviation of the training loss at every epoch",
        note=f"Scope '{ACROSS}': n thread counts, each with the mean of its runs.",
        frame=pd.concat(parts, ignore_index=True),
        columns=(),
        shown=False,
    )


def _losses(study: StudyData, runs: pd.DataFrame) -> Iterator[tuple[str, np.ndarray, list[int]]]:
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
        known = curve.dropna(subset="sd")
        peak = None if known.empty or known.sd.max() == 0 else int(known.sd.to_numpy().argmax())
        n = int(curve.n.iloc[0])
        values = {"first": curve.sd.iloc[0], "end": curve.sd.iloc[-1], "largest": known.sd.max()}
        low, high = statistics.sd_bounds(n)
        rows.append(
            {"workload": workload, "variant": variant, "scope": scope, "n": n}
            | values
            | {f"{name}_low": low * value for name, value in values.items()}
            | {f"{name}_high": high * value for name, value in values.items()}
            | {
                "epoch": None if peak is None else known.epoch.iloc[peak],
                "not_finite": int(curve.not_finite.sum()),
            }
        )
    return Table.of(
        rows,
        *WHERE,
        col("scope", "threads"),
        count("n"),
        interval("first", "SD, first epoch"),
        interval("end", "SD, last epoch"),
        interval("largest", "largest SD"),
        count("epoch", "at epoch"),
        count("not_finite", "losses not finite"),
        name="loss_sd",
        title="Standard deviation of the training loss over the epochs",
        note=by_epoch.note + " SD with its 95 % chi-square interval, the largest as if its epoch had been "
        "named before. Epochs with a loss that is not finite have none.",
    )
