"""The runs one by one, and which of them differ from most of their condition."""

from __future__ import annotations

import pandas as pd

from analysis.load.study import StudyData, View, when
from analysis.results.model import WHERE, Kind, Table, col, count
from analysis.sameness.verdicts import NOT_RECORDED

ALIKE, MAJORITY, NO_MAJORITY, ALONE = "all alike", "as most", "no majority", "one run"
DIFFERS = "differs from most"
SHORT = 8  # characters of a hash that are shown


def runs_table(study: StudyData, view: View) -> Table:
    """One row a run: when, where, how long, the metrics, and whether its weights and its predictions are
    those of most runs of its condition and fixed seed. `differs` is true where one of them is not: inspect
    the run."""
    runs = study.runs
    frame = pd.DataFrame(
        {
            "workload": runs.workload,
            "variant": runs.variant,
            "threads": runs.threads,
            "repetition": runs.repetition,
            "n": runs.groupby("set_id").run_id.transform("size"),
            "weights": _standing(runs, view.sha256("weights")),
            "weights_sha256": runs[view.sha256("weights")],
            "predictions": _standing(runs, view.sha256("predictions")),
            "predictions_sha256": runs[view.sha256("predictions")],
        }
    )
    frame["weights_hash"] = frame.weights_sha256.fillna("").str[:SHORT]
    frame["predictions_hash"] = frame.predictions_sha256.fillna("").str[:SHORT]
    for column in ("wall_s", "load_by_others", "contended", "guest", "run_id"):
        frame[column] = runs[column]
    frame["started"] = when(runs.started_at).dt.strftime("%Y-%m-%d %H:%M:%S")
    frame["differs"] = frame.weights.eq(DIFFERS) | frame.predictions.eq(DIFFERS)
    sources: dict[str, str] = {}
    for metric in dict.fromkeys(metric for names in study.metrics.values() for metric in names):
        # A project may call its metric as a column is called; no metric has a space.
        sources[metric] = f"metric {metric}" if metric in frame else metric
        frame.insert(list(frame).index("wall_s"), sources[metric], runs[view.metric(metric)])
    models = "last" if view is View.LAST else "selected"
    return Table(
        name="runs",
        title="The runs",
        note=f"The {models} model of every run, with the first {SHORT} characters of its hashes. n: runs of "
        "its condition. Runs are compared with those of their condition and fixed seed. "
        f"'{DIFFERS}': more than half of them share another hash; '{NO_MAJORITY}': none is shared by more "
        f"than half, as with free seeds; '{ALONE}': there is no other.",
        frame=frame,
        columns=(
            *WHERE,
            col("threads"),
            count("repetition", "run"),
            count("n"),
            col("weights"),
            col("weights_hash", "hash"),
            col("predictions"),
            col("predictions_hash", "hash"),
            *(col(source, metric.replace("_", " "), Kind.METRIC) for metric, source in sources.items()),
            col("wall_s", "seconds", Kind.SECONDS),
            col("load_by_others", kind=Kind.RATIO),
            col("guest"),
            col("started", "started (UTC)"),
        ),
    )


def _standing(runs: pd.DataFrame, column: str) -> pd.Series:
    """How each run stands in this hash to those of its condition and fixed seed."""
    alike = runs.set_id + " " + runs.seeds_used.where(runs.seeds_fixed, "")
    size = runs.groupby(alike)[column].transform("size")
    mine = runs.groupby([alike, column])[column].transform("size")
    most = mine.groupby(alike).transform("max")
    standing = pd.Series(DIFFERS, index=runs.index)
    standing[2 * mine > size] = MAJORITY
    standing[2 * most <= size] = NO_MAJORITY
    standing[mine == size] = ALIKE
    standing[size == 1] = ALONE
    standing[runs[column].isna()] = NOT_RECORDED
    return standing
