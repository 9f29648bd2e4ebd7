"""Are the runs the same? Asked at three levels (weights bit for bit, predictions, metrics), within
each set and across thread counts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.load.study import StudyData, View, by_seeds, by_threads
from analysis.provenance.checks import mixture
from analysis.provenance.overrides import OWN_THREADS, own_threads
from analysis.results.model import ACROSS, WHERE, Column, Kind, Table, col, cols, several_seeds
from analysis.stats.statistics import finite

IDENTICAL, DIFFER = "identical", "differ"
ONE_RUN = "one run: inconclusive"
ONE_SETTING = "one thread count: inconclusive"
ONE_MODEL = "one CPU model: inconclusive"
NO_SEED = {
    "run_id": "one run of each seed: inconclusive",
    "label": "no seed on two thread counts: inconclusive",
    "cpu_model_asked": "no seed on two CPU models: inconclusive",
}
NOT_RECORDED = "not recorded"  # a project that did not write them
OWN = f"{OWN_THREADS}: inconclusive"
NOT_FINITE = "not finite"  # no metric of any run, which says nothing of models
LEVELS = ("weights", "predictions", "metric")
LEVEL_COLUMNS = tuple(
    Column(header=level, source=level, kind=Kind.LEVEL, low=f"{level}_distinct", high="n") for level in LEVELS
)


def verdicts(study: StudyData) -> Table:
    """The three-level verdict for every set, and across all thread counts of a workload and variant."""
    rows = []
    for head, view, runs in study.by_view():
        metrics = study.metrics[head["workload"]]
        for threads, setting in by_threads(runs).items():
            rows.append(head | {"scope": threads} | _levels(setting, view, metrics, "run_id", ONE_RUN))
        across = _levels(runs, view, metrics, "label", ONE_SETTING)
        if own_threads(runs):
            across |= {level: OWN for level in LEVELS if across[level] == IDENTICAL}
        rows.append(head | {"scope": ACROSS} | across)
    return Table.of(
        rows,
        *WHERE,
        col("view"),
        col("scope", "threads"),
        *several_seeds(rows),
        *LEVEL_COLUMNS,
        name="verdicts",
        title="The same model? Weights bit for bit, predictions, metric",
        note="Within a thread count: are its repetitions identical? Across thread counts: are all runs of "
        "all thread counts? With several fixed seeds, runs are compared with those of their seed. Runs "
        "of a program that sets its own thread count are not called identical across thread counts. View "
        "'last' is without model selection, 'selected' with.",
    )


def _levels(runs: pd.DataFrame, view: View, metrics: tuple[str, ...], over: str, one: str) -> dict[str, Any]:
    """Runs that should be equal are compared where they have several values of the column `over`; `one` is
    the verdict where there is nothing to compare."""
    parts = by_seeds(runs)
    compared = [i for i, part in enumerate(parts) if part[over].nunique() > 1]
    alone = one if len(parts) == 1 or runs[over].nunique() == 1 else NO_SEED[over]
    row: dict[str, Any] = {"n": len(runs), "seeds": len(parts) if runs.seeds_fixed.all() else 0}
    for level in LEVELS:
        if level == "metric" and not len(finite(runs[list(map(view.metric, metrics))].to_numpy())):
            row |= {level: NOT_FINITE, f"{level}_distinct": 0}
            continue
        distinct = [_distinct(part, view, metrics, level) for part in parts]
        known = all(distinct) and not (level != "metric" and runs[view.sha256(level)].isna().any())
        verdict = IDENTICAL if all(distinct[i] == 1 for i in compared) else DIFFER
        row[level] = NOT_RECORDED if not known else verdict if compared else alone
        row[f"{level}_distinct"] = sum(distinct) if known else 0
    return row


def _distinct(runs: pd.DataFrame, view: View, metrics: tuple[str, ...], level: str) -> int:
    if level != "metric":
        return runs[view.sha256(level)].nunique()
    # All metrics together; NaN equals NaN here, as it does for a reader.
    return len(runs[[view.metric(metric) for metric in metrics]].drop_duplicates())


def cpu_models(study: StudyData) -> Table:
    """The three-level verdict across CPU models, for each thread setting: the question that the reference
    study left open (Xiao et al., ISSRE 2021, section VII)."""
    rows = []
    compared = study.runs[study.runs.cpu_model_asked != ""]
    keys = ["workload_name", "variant", "threads"]
    for (workload, variant, threads), runs in compared.groupby(keys, sort=False):
        metric = study.metrics[runs.workload.iloc[0]][0]
        for view in study.views(runs.workload.iloc[0]):
            means = runs.groupby("cpu_model_asked", sort=False)[view.metric(metric)].mean()
            rows.append(
                {"workload": workload, "variant": variant, "view": view.value, "threads": threads}
                | {"models": ", ".join(map(str, means.index)), "difference": means.max() - means.min()}
                | {"n": 0, **dict.fromkeys(LEVELS)}  # before what the levels are counted from
                | _levels(runs, view, (metric,), "cpu_model_asked", ONE_MODEL)
            )
    return Table.of(
        rows,
        *WHERE,
        *cols("view", "threads"),
        col("models", "CPU models"),
        *LEVEL_COLUMNS,
        col("difference", kind=Kind.SPREAD),
        name="cpu_models",
        title="The same model on every CPU model?",
        note="All runs at one thread count, on all CPU models that the study compares. Difference: "
        "the largest between the mean metrics of two CPU models.",
    )


def alarms(study: StudyData, table: Table) -> tuple[str, ...]:
    """What a reader must not miss: a control, or exact mode, that is not bitwise equal, with the same
    software and settings; the control also on the same hardware. And, first, programs that set their own
    thread count."""
    bad = table.frame[table.frame.variant.isin(("control", "exact")) & (table.frame.weights == DIFFER)]
    alike = []
    for workload, variant, scope in zip(bad.workload, bad.variant, bad.scope, strict=True):
        where = {} if scope == ACROSS else {"threads": scope}
        runs = study.runs_of(workload, variant=variant, **where)
        alike.append(not mixture(runs, machines=variant == "control"))
    bad = bad[pd.Series(alike, index=bad.index, dtype=bool)]
    own = {w: found for w, _, runs in study.experiments() if (found := own_threads(runs))}
    return tuple(
        f"{reason.replace(OWN_THREADS, OWN_THREADS.upper())}: {workload}. Conditions of different "
        "thread counts ran with the same one, so that this study does not compare them."
        for workload, reason in own.items()
    ) + tuple(
        f"{str(variant).upper()} IS NOT BITWISE EQUAL: {_unequal(rows)}. Something is left free that this "
        "study does not control; read its other numbers with that in mind."
        for variant, rows in bad.groupby("variant", sort=False)
    )


def _unequal(bad: pd.DataFrame) -> str:
    """`lenet5, across thread counts: 3 distinct models (last and selected) in 9 runs`, of each."""
    return "; ".join(
        f"{workload}, {scope if scope == ACROSS else f'threads {scope}'}: {rows.weights_distinct.max()} "
        f"distinct models ({' and '.join(rows['view'])}) in {rows.n.iloc[0]} runs"
        for (workload, scope), rows in bad.groupby(["workload", "scope"], sort=False)
    )
