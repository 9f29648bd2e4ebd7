"""Which runs are observations. n bitwise equal runs of one seed are one observation, and a training that
failed is an outcome of its own: neither belongs into a mean, an SD, or a test of the metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.runs import Problem
from analysis.load.study import StudyData, View, by_threads
from analysis.stats import statistics
from analysis.stats.statistics import Estimate
from guest.records.printable import counted
from guest.records.run import Metric

FAILED_NOTE = (
    "A training failed where its metric or its last training loss is not finite, or beyond 1e100 in size, "
    "where it puts every test sample in one class, or, if accuracy is the primary metric, where the accuracy "
    "of its predictions does not exceed that of always answering the most common class."
)
COUNTED_NOTE = (
    "Runs of one model count once. Where several seeds gave several models each, each seed counts once, with "
    "the mean of its models: mean, SD and their intervals are over so many seeds. "
)
SEEDS_NOTE = (
    "With several fixed seeds only runs of one seed are compared, and the means are over so many seeds, with "
    "Hall's interval over them. With free seeds each run has its own."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a set of runs says of a metric. `values` are those of the distinct runs that did not fail,
    `distinct` counts these with the failed ones. Where several seeds gave several models each, `values`
    are the means of the seeds, and `seeds` is the number of these."""

    values: np.ndarray
    runs: int
    distinct: int
    failed: int
    seeds: int | None = None

    @property
    def copies(self) -> bool:
        """Several runs, all of one model: what is said of them is exact."""
        return self.runs > 1 and self.distinct == 1

    def mean(self, *, within: tuple[float, float] | None = None) -> Estimate:
        """The mean of the metric; of copies exactly their value."""
        found = statistics.mean(self.values, within=within)
        return statistics.exactly(found.value, self.runs) if self.copies else found

    def sd(self) -> Estimate:
        """The SD of the metric; of copies exactly 0."""
        found = statistics.sd(self.values)
        return statistics.exactly(0.0, self.runs) if self.copies and len(self.values) else found

    def failure_rate(self) -> Estimate:
        """The share of trainings that failed; no interval for copies, which are one training, and for several
        models of each of several seeds, which are not independent."""
        found = statistics.share(self.failed, self.distinct, method="beta")
        dependent = self.distinct < 2 or self.seeds is not None
        return dataclasses.replace(found, low=None, high=None) if dependent else found


def distinct(runs: pd.DataFrame, view: View) -> pd.DataFrame:
    """The runs without copies: of those with equal weights the first. Where weights were not recorded, equal
    runs may be of different models: all are kept, unless all of one condition and fixed seed are equal in
    everything that was recorded."""
    return runs[~_copies(runs, view)]


def counting(runs: pd.DataFrame, view: View) -> tuple[pd.DataFrame, bool]:
    """(the runs without copies, False); where all are copies of one, (all of them, True)."""
    models = distinct(runs, view)
    copies = len(models) == 1 < len(runs)
    return (runs if copies else models), copies


def observed(runs: pd.DataFrame, view: View, metric: str) -> Observations:
    """The observations of a metric in the runs of one set."""
    # From masks: a frame of all columns for each of thousands of sets takes most of the time.
    each = ~_copies(runs, view)
    kept, seeds = each & ~failed(runs, view, metric), runs["seeds_used"]
    values = runs[view.metric(metric)].to_numpy(dtype=float)[kept]
    models = int(each.sum())
    return Observations(
        values=by_seed(values, seeds[kept]),
        runs=len(runs),
        distinct=models,
        failed=models - len(values),
        seeds=int(seeds[each].nunique()) if _repeated(seeds[each]) else None,
    )


def by_seed(values: np.ndarray, seeds: pd.Series) -> np.ndarray:
    """(R,) or (R, N) values of distinct models. Of several seeds, of which one has several models, a value a
    seed: the mean of its models, which are not independent of each other. Else the values themselves."""
    if not _repeated(seeds):
        return values
    means = pd.DataFrame(values).groupby(seeds.to_numpy(), sort=False).mean().to_numpy()
    return np.asarray(means.reshape(-1, *values.shape[1:]))


def _repeated(seeds: pd.Series) -> bool:
    """Whether distinct models are of several seeds, and several of one seed."""
    return 1 < seeds.nunique() < len(seeds)


def succeeded(runs: pd.DataFrame, view: View, metric: str) -> pd.DataFrame:
    """The runs that did not fail: see FAILED_NOTE."""
    kept: pd.DataFrame = runs[~failed(runs, view, metric)]
    return kept


def _copies(runs: pd.DataFrame, view: View) -> np.ndarray:
    """Which runs are copies of one before them: see `distinct`."""
    return models_of(runs, view).duplicated().to_numpy()


def models_of(runs: pd.DataFrame, view: View) -> pd.Series:
    """A name of each run's model, equal for copies: see `distinct`."""
    hashes = runs[view.sha256("weights")]
    known = hashes.notna() & (hashes != "")
    if known.all():
        return hashes
    names = hashes.where(known, runs["run_id"])
    seeds = ["set_id", "seeds_used"]
    others = [name for name in runs.columns if name.startswith(f"{view}_") and "weights" not in name]
    unknown = runs.loc[~known & runs["seeds_fixed"].astype(bool), [*seeds, *others]]
    models = (~unknown.duplicated()).groupby([unknown[name] for name in seeds]).transform("sum")
    alone = unknown[models == 1]
    names[alone.index] = alone["set_id"] + " " + alone["seeds_used"].astype(str)
    return names


def failed(runs: pd.DataFrame, view: View, metric: str) -> np.ndarray:
    """Which runs failed, (n,) bool: see FAILED_NOTE."""
    found = ~np.isfinite(runs[view.metric(metric)].to_numpy(dtype=float))
    if _column(view) in runs:
        found |= runs[_column(view)].to_numpy(dtype=bool)
    return np.asarray(found)


def failures(study: StudyData, workload: str, **where: str) -> int:
    """How many runs failed in the primary outcome, of those in which the named columns have these values."""
    metric, view = study.primary(workload)
    return int(failed(study.runs_of(workload, **where), view, metric).sum())


def values_by_threads(runs: pd.DataFrame, view: View, metric: str) -> dict[str, np.ndarray]:
    """The observations of each thread setting, in order: what tests between them compare."""
    return {threads: observed(setting, view, metric).values for threads, setting in by_threads(runs).items()}


def values_by_seed(runs: pd.DataFrame, view: View, metric: str) -> pd.DataFrame:
    """A row a seed, a column a thread setting: the mean of what the seed gave there; NaN where there is no
    run, or all of them failed."""
    cells: dict[str, dict[str, float]] = {}
    for (threads, seed), cell in runs.groupby(["threads", "seeds_used"], sort=False):
        found = observed(cell, view, metric).values
        cells.setdefault(str(threads), {})[str(seed)] = float(found.mean()) if len(found) else np.nan
    return pd.DataFrame(cells)


def sd_of(values: np.ndarray, *, copies: bool) -> Estimate:
    """The SD of observations; of copies of one run exactly 0."""
    return statistics.exactly(0.0, len(values)) if copies else statistics.sd(values)


def of_pairs(
    value: float, parts: Sequence[np.ndarray], counts: Sequence[tuple[int, int]], *, most: float = math.inf
) -> Estimate:
    """`statistics.mean_of_pairs`, where `counts` has of each set the runs and the distinct ones: exact where
    each set is copies of one run, and without an interval where some of a set's runs are copies."""
    if all(models == 1 < runs for runs, models in counts):
        return statistics.exactly(value, sum(map(len, parts)))
    found = statistics.mean_of_pairs(value, parts, most=most)
    copies = any(models < runs for runs, models in counts)
    return dataclasses.replace(found, low=None, high=None) if copies else found


def over_seeds(
    parts: Sequence[dict[str, Any]],
    measures: Mapping[str, tuple[str | None, float]],
    counted: Sequence[str],
    *,
    fixed: bool,
) -> dict[str, Any]:
    """One row for those of the single `fixed` seeds (free ones are not counted): what is `counted` is added
    up, and of `measures` (with the names of their bounds, and the most they can be) the seeds have a mean:
    seeds are independent, the pairs of one are not."""
    row = parts[0] | {"seeds": len(parts) if fixed else None}
    if len(parts) == 1:
        return row
    row |= {name: sum(part[name] for part in parts) for name in counted}
    for name, (bounds, most) in measures.items():
        values = [part[name] for part in parts if part[name] is not None]
        row |= statistics.mean(values, within=(0.0, most)).cells(name, bounds)
    return row


def mark_failures(study: StudyData, predictions: Predictions) -> StudyData:
    """The study with the columns `last_failed` and `selected_failed` of `runs`: see FAILED_NOTE; and with a
    reservation for each set of which some failed in the primary outcome."""
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
                truth, labels = predictions.truth[name], predictions.stack(view, mine.run_id)
                failed[mine.index] |= (labels == labels[:, :1]).all(axis=1)
                if study.primary(name)[0] == Metric.ACCURACY:
                    # A project may give percents, or mean something else by the name.
                    own, told = name in study.projects, mine[view.metric(Metric.ACCURACY)].to_numpy(float)
                    accuracies = (labels == truth).mean(axis=1) if own else told
                    common = np.unique(truth, return_counts=True)[1].max() / len(truth)
                    failed[mine.index] |= accuracies <= common
        runs[_column(view)] = failed | diverged if view is View.LAST else failed
    marked = dataclasses.replace(study, runs=runs)
    return dataclasses.replace(marked, problems=(*study.problems, *_reservations(marked)))


def _reservations(study: StudyData) -> Iterator[Problem]:
    for workload in study.metrics:
        metric, view = study.primary(workload)
        for set_id, runs in study.runs_of(workload).groupby("set_id", sort=False):
            found = observed(runs, view, metric)
            if found.failed:
                of_all = counted(found.distinct, "distinct training")
                what = f"{found.failed} of {of_all} failed ({view} model)"
                todo = "the table `performance` defines a failed training; churn and agreement include them"
                yield Problem(path=f"runs/{set_id}", what=what, todo=todo, skipped=False)


def _column(view: View) -> str:
    return f"{view}_failed"
