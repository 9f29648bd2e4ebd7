"""Which runs are observations. n bitwise equal runs of one seed are one observation, and a training that
failed is an outcome of its own: neither belongs into a mean, an SD, or a test of the metric."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, View
from analysis.stats import statistics
from analysis.stats.statistics import Estimate

FAILED_NOTE = (
    "A training failed where its metric or its last training loss is not finite, or its accuracy does not "
    "exceed that of always answering the most common class."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a set of runs says of a metric. `values` are those of the distinct runs that did not fail,
    `distinct` counts these with the failed ones."""

    values: np.ndarray
    runs: int
    distinct: int
    failed: int

    @property
    def copies(self) -> bool:
        """Several runs, all of one model: what is said of them is exact."""
        return self.runs > 1 and self.distinct == 1

    def mean(self, confidence: float = 0.95) -> Estimate:
        """The mean of the metric; of copies exactly their value."""
        found = statistics.mean(self.values, confidence)
        return statistics.exactly(found.value, self.runs) if self.copies else found

    def sd(self, confidence: float = 0.95) -> Estimate:
        """The SD of the metric; of copies exactly 0."""
        found = statistics.sd(self.values, confidence)
        return statistics.exactly(0.0, self.runs) if self.copies and len(self.values) else found

    def failure_rate(self) -> Estimate:
        """The share of trainings that failed; no interval for copies, which are one training."""
        found = statistics.share(self.failed, self.distinct)
        return dataclasses.replace(found, low=None, high=None) if self.distinct < 2 else found


def distinct(runs: pd.DataFrame, view: View) -> pd.DataFrame:
    """The runs without copies: of those with equal weights the first; where weights were not recorded, of
    those with equal fixed seeds and equal values of everything else that was."""
    hashes = runs[view.sha256("weights")]
    others = [name for name in runs.columns if name.startswith(f"{view}_") and "weights" not in name]
    known = hashes.notna() & (hashes != "")
    copies = known & hashes.duplicated()
    if not known.all():
        alike = runs[["seeds_used", *others]].duplicated()
        copies |= ~known & runs["seeds_fixed"].astype(bool) & alike
    return runs[~copies]


def observed(runs: pd.DataFrame, view: View, metric: str) -> Observations:
    """The observations of a metric in the runs of one set."""
    each = distinct(runs, view)
    values = each[view.metric(metric)].to_numpy(dtype=float)
    failed = ~np.isfinite(values)
    if _column(view) in each:
        failed |= each[_column(view)].to_numpy(dtype=bool)
    return Observations(values=values[~failed], runs=len(runs), distinct=len(each), failed=int(failed.sum()))


def values_by_threads(runs: pd.DataFrame, view: View, metric: str) -> dict[str, np.ndarray]:
    """The observations of each thread setting, in order: what tests between them compare."""
    return {
        str(threads): observed(setting, view, metric).values
        for threads, setting in runs.groupby("threads", sort=False)
    }


def mark_failures(study: StudyData, predictions: Predictions) -> StudyData:
    """The study with the columns `last_failed` and `selected_failed` of `runs`: see FAILED_NOTE."""
    runs = study.runs.copy()
    ends = study.epochs.drop_duplicates("run_id", keep="last").set_index("run_id").train_loss
    with_loss = runs.workload.isin(study.with_loss())
    diverged = with_loss & ~np.isfinite(runs.run_id.map(ends).to_numpy(dtype=float))
    for view in View:
        failed = pd.Series(False, index=runs.index)
        for workload, mine in runs.groupby("workload", sort=False):
            name = str(workload)
            if view not in study.views(name):
                continue
            failed[mine.index] |= ~np.isfinite(mine[view.metric(study.metrics[name][0])].to_numpy(float))
            if name in predictions.truth:
                failed[mine.index] |= _at_chance(predictions, view, mine.run_id, predictions.truth[name])
        runs[_column(view)] = failed | diverged if view is View.LAST else failed
    return dataclasses.replace(study, runs=runs)


def _at_chance(predictions: Predictions, view: View, run_ids: pd.Series, truth: np.ndarray) -> np.ndarray:
    common = np.unique(truth, return_counts=True)[1].max()
    return np.array([int((predictions.labels[view][run] == truth).sum()) <= common for run in run_ids])


def _column(view: View) -> str:
    return f"{view}_failed"
