"""How far apart models lie: their weights, their logits and their losses, and from which training step on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pandas as pd

from analysis.load.study import StudyData, View, by_seeds, by_threads
from analysis.results.model import ACROSS, SCOPE, Table, col, interval, several_seeds
from analysis.sameness.logits import MOST, logit_rows
from analysis.sameness.weights import ALL_PAIRS_UP_TO, weight_rows
from analysis.stats import statistics
from analysis.stats.observations import SEEDS_NOTE

BASE = ("workload", "variant", "view", "scope", "n", "seeds", "remark")


def distance(study: StudyData, losses: Iterable[dict[str, Any]] = ()) -> Table:
    """Of each thread count, and across them, what is recorded: distances of the weights and of the logits,
    the SD of the training loss (`losses`, by workload, variant and scope), and where training diverges."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for workload, variant, runs in study.experiments():
        parts = len(by_seeds(runs)) if runs.seeds_fixed.all() else None
        compared = parts and runs.label.nunique() > 1
        diverges = divergence(study, runs, study.metrics[workload][0]) if compared else {}
        for view in study.views(workload):
            for scope, mine in (by_threads(runs) | {ACROSS: runs}).items():
                key = (workload, variant, view.value, scope)
                rows[key] = dict(zip(BASE, (*key, len(mine), parts, ""), strict=True))
            rows[(workload, variant, view.value, ACROSS)] |= diverges
    with_weights, with_logits = (
        study.only(study.recorded(f"last_{column}_sha256")) for column in ("weights_file", "logits")
    )
    by_view = (loss | {"view": view.value} for loss in losses for view in study.views(loss["workload"]))
    for found in chain(by_view, weight_rows(with_weights), logit_rows(with_logits)):
        row = rows[tuple(found[name] for name in BASE[:4])]
        remarks = [text for text in (row["remark"], found.pop("remark", "")) if text]
        row |= found | {"remark": "; ".join(dict.fromkeys(remarks))}
    known = [row for row in rows.values() if len(row) > len(BASE)]
    return Table.of(
        known,
        *SCOPE,
        *several_seeds(known),
        interval("l2_unit", "weights: L2 of unit vectors"),
        interval("differing", "share that differs"),
        interval("vermv", "logits: Vermv"),
        col("diverges"),
        interval("loss_end", "SD of the loss"),
        col("remark"),
        name="distance",
        title="How far models lie apart, and from which training step on",
        note="Weights: the mean over pairs of runs of the L2 distance of all floating-point weights as "
        "unit vectors, and of the share of weights that differ; across thread counts the two runs of a "
        f"pair have different ones. Above {ALL_PAIRS_UP_TO} runs, and for large networks, pairs are drawn, "
        "drawn runs of a condition about equally often, and every two thread counts weigh as all their pairs "
        "do. Intervals of 95 % are over the runs (Hoeffding's projection), '(exact)' where each condition's "
        f"runs are copies of one run, else from {statistics.PAIRS_FROM} runs of each condition on where none "
        "are copies. Logits: Vermv, the mean of |A-B| / |A| against the first run of the seed on that thread "
        f"count; across them, of the others against the lowest; over the distinct results, at most {MOST} of "
        f"which are read (Hall's transformed t). {SEEDS_NOTE} "
        "Diverges: between which training steps the weights of runs with equal seeds first differ; they "
        "are hashed after steps 1, 2, 4, 8, ... SD of the training loss in the last epoch; across thread "
        "counts each has the mean of its runs.",
        hidden=("equal_up_to", "different_at"),
    )


def divergence(study: StudyData, runs: pd.DataFrame, metric: str) -> dict[str, Any]:
    """Where training with equal seeds diverges across thread counts: between which two recorded steps
    the weights, and at which epoch the loss, the weights, the predictions and the metric first differ."""
    seeds = runs.set_index("run_id").seeds_used
    steps, epochs = (
        frame.assign(seeds=frame.run_id.map(seeds))[frame.run_id.isin(runs.run_id)]
        for frame in (study.steps, study.epochs)
    )
    equal, different = _first_difference(steps, "step", "weights_sha256", len(runs))
    columns = {
        "diverges_loss": "train_loss",
        "diverges_weights": "weights_sha256",
        "diverges_predictions": "predictions_sha256",
        "diverges_metric": View.LAST.epoch_metric(metric),
    }
    return {
        "equal_up_to": equal,
        "different_at": different,
        "diverges": _bracket(equal, different),
        **{k: _first_difference(epochs, "epoch", column, len(runs))[1] for k, column in columns.items()},
    }


def _first_difference(frame: pd.DataFrame, at: str, column: str, runs: int) -> tuple[int | None, int | None]:
    """(last point before the first difference, the first difference), among the points every run has."""
    distinct = frame.groupby([at, "seeds"])[column].nunique(dropna=False).groupby(level=at).max()
    distinct = distinct[frame.groupby(at).size() == runs]
    diverged = distinct[distinct > 1]
    different = None if diverged.empty else int(diverged.index[0])
    before = distinct.index if different is None else distinct.index[distinct.index < different]
    return (int(before[-1]) if len(before) else None), different


def _bracket(equal: int | None, different: int | None) -> str:
    if different is None:
        return "not recorded" if equal is None else f"equal up to step {equal}, the last recorded"
    if equal is None:
        return f"different at step {different}, the first recorded"
    return f"equal up to step {equal}, different at step {different}"
