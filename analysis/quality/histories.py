"""Epoch by epoch: the largest difference across thread counts, and the dispersion of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import ACROSS, ALPHA, VIEWS_NOTE, WHERE, Kind, Table, col, cols, count, interval
from analysis.stats import metrics, paired, statistics
from analysis.stats.observations import COUNTED_NOTE, by_seed, counting, distinct, models_of, sd_of


def max_difference(study: StudyData) -> Table:
    """Xiao et al., ISSRE 2021, table VII: the epoch at which the thread counts lie furthest apart,
    for each metric, without and with model selection."""
    rows = []
    for workload, variant, runs in study.experiments():
        for metric in study.metrics[workload]:
            for view in study.views(workload):
                row = {"workload": workload, "variant": variant, "metric": metric, "view": view.value}
                rows.append(row | _difference(study, runs, view, metric))
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
        note="At each epoch a thread count counts with its runs' common value where they agree, else with "
        "their mean: see 'basis'. Copies of a run count once, and each seed with the mean of its models. "
        "Where thread counts have seeds in common, the n runs are those of the seeds that all have; fixed "
        "seeds that have none in common are not compared. The interval of the two thread counts that lie "
        "furthest apart is Welch's, of equal seeds Student's of pairs, of at least 95 % over all pairs of "
        "thread counts and epochs that could have been the largest (Bonferroni). Of copies of one run, and "
        "where each seed has the same model, the difference has no sampling error: '(exact)'. " + VIEWS_NOTE,
    )


def _difference(study: StudyData, runs: pd.DataFrame, view: View, metric: str) -> dict[str, Any]:
    column = view.epoch_metric(metric)
    common = runs.groupby("seeds_used").threads.transform("nunique") == runs.threads.nunique()
    unmatched = not common.any() and bool(runs.seeds_fixed.all())
    runs = runs[common] if common.any() else runs
    counts = runs.groupby("threads", sort=False).size()
    models = {name: distinct(each, view) for name, each in by_threads(runs).items()}
    epochs, values, agree = by_setting(study, pd.concat(models.values()), column)
    found = None if unmatched else metrics.max_difference(values)
    row = {"threads": list(counts.index), "n": [int(n) for n in counts]}
    if found is None:
        reason = "one thread count only" if len(counts) < 2 else "no epoch in common"
        reason = "no seed on all thread counts" if unmatched else reason
        nothing = dict.fromkeys(("difference", "epochs", "first_epoch", "low", "high", "values", "basis"))
        return row | nothing | {"epochs": "", "values": [], "basis": reason, "final_difference": None}
    first, last = epochs[found.first], epochs[found.last]
    end = values[:, -1]
    at = values[:, found.first]
    names = list(models)  # of no difference all are as far apart
    if found.difference:
        names = [names[int(i)] for i in (at.argmax(), at.argmin())]
    if all(len(models[name]) == 1 < counts[name] for name in names):  # copies of one run each
        bounds: statistics.Bounds = (found.difference, found.difference)
    else:
        settings = len(models) * (len(models) - 1) / 2
        planned = max(int(runs.epochs_planned.max()), len(epochs))  # a project plans 0: not known
        a, *others = (models[name] for name in names)
        confidence = 1 - ALPHA / (settings * planned)
        every = {_bounds(study, a, b, view, column, first, confidence) for b in others}
        bounds = every.pop() if len(every) == 1 else (None, None)
    basis = "each thread count's runs agree"
    if counts.max() == 1:
        basis = "one run of each thread count"
    elif not agree[:, found.first].all():
        basis = "means of each thread count's runs"
    return row | {
        "difference": found.difference,
        "epochs": str(first) if first == last else f"{first}-{last}",
        "first_epoch": first,
        "low": bounds[0],
        "high": bounds[1],
        "values": values[:, found.first].tolist(),
        "basis": basis,
        "final_difference": float(end.max() - end.min()) if np.isfinite(end).all() else None,
    }


def _bounds(
    study: StudyData, a: pd.DataFrame, b: pd.DataFrame, view: View, column: str, epoch: int, confidence: float
) -> statistics.Bounds:
    """Of the difference of the means at an epoch: of pairs, where both sets of runs have the same seeds."""
    values = study.epochs[study.epochs.epoch == epoch].set_index("run_id")[column]
    x, y = (each.assign(value=each.run_id.map(values)) for each in (a, b))
    pairs = pd.concat([each.groupby("seeds_used").value.mean() for each in (x, y)], axis=1).to_numpy()
    if len(pairs) < 2 or np.isnan(pairs).any():
        first, second = (by_seed(each.value.to_numpy(), each.seeds_used) for each in (x, y))
        return statistics.welch_bounds(first, second, confidence)
    differences = pairs[:, 0] - pairs[:, 1]
    of_a, of_b = (set(zip(each.seeds_used, models_of(each, view), strict=True)) for each in (a, b))
    return (0.0, 0.0) if of_a == of_b and not differences.any() else paired.bounds(differences, confidence)


def by_setting(study: StudyData, runs: pd.DataFrame, column: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """One value a thread setting and epoch: (epochs common to all runs, values (T, E), agree (T, E)). The
    value is the mean of the seeds' means; where all repetitions agree theirs, not a mean that rounding may
    have moved."""
    values, agree = [], []
    wide = epochs_by_run(study, runs, column)
    for setting in by_threads(runs).values():
        each = wide.loc[setting.run_id].to_numpy()
        same = (each == each[0]).all(axis=0)
        sizes = setting.groupby("seeds_used").run_id.transform("size").to_numpy()
        values.append(np.where(same, each[0], np.average(each, axis=0, weights=sizes.max() / sizes)))
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
    thread count counts once, with the mean of its seeds)."""
    parts = []
    for workload, variant, runs in study.experiments():
        for scope, values, epochs, copies in _losses(study, runs):
            part: dict[str, Any] = {"workload": workload, "variant": variant, "scope": scope, "epoch": epochs}
            part |= {"n": len(values), "sd": metrics.column_sd(values)}
            part |= _sd_bounds(values, copies=copies)
            parts.append(pd.DataFrame(part | {"not_finite": (~np.isfinite(values)).sum(axis=0)}))
    return Table(
        name="loss_sd_by_epoch",
        title="Standard deviation of the training loss at every epoch",
        note=f"Scope '{ACROSS}': n thread counts, each with the mean of its seeds, and each seed "
        f"with that of its runs. {COUNTED_NOTE}" + statistics.INTERVALS_NOTE,
        frame=pd.concat(parts, ignore_index=True),
    )


def _losses(study: StudyData, runs: pd.DataFrame) -> Iterator[tuple[str, np.ndarray, list[int], bool]]:
    """(scope, losses (n, E), epochs, whether the n are copies of one run)."""
    for threads, setting in by_threads(runs).items():
        counted, copies = counting(setting, View.LAST)
        wide = epochs_by_run(study, counted, "train_loss")
        values = by_seed(wide.to_numpy(), counted.seeds_used)
        yield threads, values, [int(epoch) for epoch in wide.columns], copies
    epochs, values, _ = by_setting(study, runs, "train_loss")
    yield ACROSS, values, epochs, False


def _sd_bounds(values: np.ndarray, *, copies: bool) -> dict[str, np.ndarray]:
    """At every epoch; NaN where there is none."""
    found = [sd_of(epoch, copies=copies) for epoch in values.T]
    return {
        "sd_low": np.array([each.low for each in found], float),
        "sd_high": np.array([each.high for each in found], float),
    }


def loss_rows(by_epoch: Table) -> list[dict[str, Any]]:
    """The curves of `loss_sd_by_epoch` in one row each. The largest has no interval: it is too large by its
    choice. Epochs with a loss that is not finite have no SD."""
    rows = []
    keys = ["workload", "variant", "scope"]
    for key, curve in by_epoch.frame.groupby(keys, sort=False):
        known = curve.dropna(subset="sd")
        peak = None if known.empty or known.sd.max() == 0 else int(known.sd.to_numpy().argmax())
        ends = {
            f"loss_{name}{bound}": curve[f"sd{bound}"].iloc[at]
            for name, at in (("first", 0), ("end", -1))
            for bound in ("", "_low", "_high")
        }
        rows.append(
            dict(zip(keys, key, strict=True))
            | ends
            | {
                "loss_largest": known.sd.max(),
                "loss_epoch": None if peak is None else known.epoch.iloc[peak],
                "losses_not_finite": int(curve.not_finite.sum()),
            }
        )
    return rows
