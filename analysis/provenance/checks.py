"""What a reader should know of a study before believing its numbers: different machines or versions in
one comparison, missing runs, losses that are not finite. The runs stay in; the problem is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from analysis.load.design import STUDY_FILE
from analysis.load.failures import failures_text, of_training
from analysis.load.runs import Problem
from analysis.load.study import StudyData, by_seeds, by_threads
from analysis.provenance.order import order_reservations
from analysis.provenance.overrides import project_reservations
from guest.records.printable import counted, series
from guest.records.run import Variant

ALIKE = {
    "dataset": ("data sets", "keep one: numbers of two data sets are not compared"),
    "workload_digest": ("settings of the workload", "keep one: `vbstudy sweep` redoes what is missing"),
    "cpu_model": ("CPU models", "run all of a comparison on one kind of CPU"),
    "instruction_set": ("instruction sets", "isa = 'portable' gives equal bits on different CPUs"),
    "caches": ("cache sizes", "TensorFlow computes by them; run all of a comparison on one kind of CPU"),
    "framework_version": ("framework versions", "run all of a comparison with one version"),
    "isa": ("instruction set choices", "keep one"),
}


NAMED = 2  # conditions that lack runs
HARDWARE = {
    "cpu_model": "CPU models",
    "instruction_set": "instruction sets",
    "caches": "cache sizes",
    "accelerator": "ways of virtualisation",
}


def reservations(study: StudyData) -> tuple[Problem, ...]:
    """Problems of kind `skipped=False`, in the order of the study's runs."""
    checks = (
        _edited,
        _margin,
        _mixed,
        _incomplete,
        _failed,
        _short,
        _not_finite,
        order_reservations,
        project_reservations,
    )
    return tuple(problem for check in checks for problem in check(study))


class MixedHardwareError(ValueError):
    """Runs of one set were computed on different hardware; the text names the set and the fields."""


def refuse_mixed(study: StudyData) -> None:
    """Raises MixedHardwareError when the runs of a set, which should be repetitions of one experiment,
    are of different hardware: what differs between them could then be either."""
    for set_id, runs in study.runs.groupby("set_id", sort=False):
        if mixed := _mixtures(runs, HARDWARE):
            raise MixedHardwareError(
                f"the condition {set_id} mixes {'; '.join(mixed)}: its runs do not repeat one experiment; "
                "move the runs of the other hardware out of runs/, or analyse all with --allow-mixed"
            )


def _edited(study: StudyData) -> Iterator[Problem]:
    if study.edited:
        todo = (
            "the report's recipe is that of the runs; give changed workloads new names, or move old runs away"
        )
        what = f"it has changed since these runs were made: {study.edited}"
        yield Problem(path=STUDY_FILE, what=what, todo=todo, skipped=False)


def mixture(runs: pd.DataFrame, *, machines: bool = True) -> str:
    """In what these runs are not alike, as text; empty when they can be compared. Without `machines`: beside
    the hardware, on which exact mode's models are the same."""
    columns = {column: text for column, (text, _) in ALIKE.items() if machines or column not in HARDWARE}
    return ", ".join(_mixtures(runs, columns))


def _mixtures(runs: pd.DataFrame, columns: Mapping[str, str]) -> list[str]:
    return [_several(runs[column], text) for column, text in columns.items() if runs[column].nunique() > 1]


def _several(values: pd.Series, text: str) -> str:
    """`2 CPU models (a, b)`: with the values, where a person can read them."""
    shown = ", ".join(str(value) or "unknown" for value in values.unique())
    return f"{values.nunique()} {text}" + ("" if values.name == "workload_digest" else f" ({shown})")


def _margin(study: StudyData) -> Iterator[Problem]:
    """A margin that does not decide what it was declared for."""
    primary = {workload: study.primary(workload)[0] for workload in study.metrics}
    margin = study.design.margin
    without = [f"{metric} of {w}" for w, metric in primary.items() if study.margin(w, metric) != margin]
    if margin is not None and without:
        what = f"the margin {margin:g} does not count for {series(without)}"
        todo = "declare `primary`; without it the margin is used for accuracy and F1 as shares, or where all "
        todo += "workloads have the same first metric"
        yield Problem(path=STUDY_FILE, what=what, todo=todo, skipped=False)


def _mixed(study: StudyData) -> Iterator[Problem]:
    for workload, variant, runs in study.experiments():
        for column, (text, todo) in ALIKE.items():
            if runs[column].nunique() == 1:
                continue
            mixed = [name for name, s in by_threads(runs).items() if s[column].nunique() > 1]
            within = f", even within threads {', '.join(mixed)}" if mixed else ""
            diverging = [name for name, s in by_threads(runs).items() if _diverges(s, column)]
            if diverging:
                threads = ", ".join(diverging)
                within += f", across which the weights of equal seeds diverge (threads {threads})"
            what = _several(runs[column], f"{text} in one comparison") + within
            yield Problem(path=f"runs/{workload}/{variant}", what=what, todo=todo, skipped=False)


def _diverges(runs: pd.DataFrame, column: str) -> bool:
    """Whether runs of one set with equal seeds have equal weights where they are alike in this column, and
    unequal ones where they are not: then it may be the reason."""
    return bool(runs.seeds_fixed.all()) and any(_diverge(same, column) for same in by_seeds(runs))


def _diverge(runs: pd.DataFrame, column: str) -> bool:
    models = runs.groupby(column).last_weights_sha256
    return bool((models.nunique() == 1).all() and models.first().is_unique and len(models) > 1)


def missing_runs(study: StudyData) -> str:
    """`3 of 12 planned runs are missing`; empty where none is, and where the plan is not known."""
    lacking = sum(planned - done for done, planned in _lacking(study).values())
    return f"{lacking} of {sum((study.plan.runs or {}).values())} planned runs are missing" if lacking else ""


def _lacking(study: StudyData) -> dict[str, tuple[int, int]]:
    """The conditions that lack planned runs, with how many they have and should have."""
    planned = study.plan.runs or {}
    wanted = study.runs[study.runs.repetition <= study.runs.set_id.map(planned)]
    done = wanted.groupby("set_id").size()
    return {set_id: (int(done.get(set_id, 0)), n) for set_id, n in planned.items() if done.get(set_id, 0) < n}


def _incomplete(study: StudyData) -> Iterator[Problem]:
    """Conditions that lack runs: of the plan, and where that is not known, such as have fewer than others of
    their workload, or none where another variant has some."""
    todo = "run `vbstudy sweep` to finish"
    if study.plan.instead is not None:
        arguments, why = study.plan.instead
        todo = f"{why}: `vbstudy {arguments}`"
    if study.plan.runs is not None:
        if lacking := _lacking(study):
            shown = [f"{name} has {done} of {n}" for name, (done, n) in list(lacking.items())[:NAMED]]
            more = f" and {counted(len(lacking) - NAMED, 'more condition')}" if len(lacking) > NAMED else ""
            what = f"{missing_runs(study)}: {', '.join(shown)}{more}"
            yield Problem(path="runs", what=what, todo=todo, skipped=False)
        return
    for workload, runs in study.runs.groupby("workload", sort=False):
        counts = pd.crosstab(runs.variant, runs.label)
        most = int(counts.to_numpy().max())
        short = [
            f"{variant}/{label} has {counts.loc[variant, label]}"
            for variant in runs.variant.unique()
            for label in runs.label.unique()
            if counts.loc[variant, label] < most
        ]
        if short:
            what = f"not every condition has {most} runs: {', '.join(short)}"
            yield Problem(path=f"runs/{workload}", what=what, todo=todo, skipped=False)


def _failed(study: StudyData) -> Iterator[Problem]:
    """Conditions of which attempts failed."""
    for set_id, failed in study.failures.items():
        fixed = Variant(set_id.split("/")[1]).seeds_fixed
        todo = "repeated with the same seeds; the errors are in this folder"
        if of_training(failed) and not fixed:
            todo = "repeated with new seeds, so the runs that finish are a selected sample; if the cause was "
            todo += "unrelated to the seeds and you have fixed it, move this folder out of failed/"
        yield Problem(path=f"failed/{set_id}", what=failures_text(failed), todo=todo, skipped=False)


def _short(study: StudyData) -> Iterator[Problem]:
    """Sets with runs whose history ends before the planned epochs."""
    lengths = study.runs.run_id.map(study.epochs.groupby("run_id").size())
    for set_id, runs in study.runs[lengths < study.runs.epochs_planned].groupby("set_id", sort=False):
        least, planned = int(lengths[runs.index].min()), int(runs.epochs_planned.max())
        what = f"{len(runs)} run{' has' if len(runs) == 1 else 's have'} {least} of {planned} planned epochs"
        todo = "only epochs that all runs of a comparison have are compared; move these runs out of runs/"
        yield Problem(path=f"runs/{set_id}", what=what, todo=todo, skipped=False)


def _not_finite(study: StudyData) -> Iterator[Problem]:
    recorded = ~study.epochs.run_id.isin(study.runs.run_id[study.runs.workload.isin(study.projects)])
    bad = study.epochs[~np.isfinite(study.epochs.train_loss) & (recorded | study.epochs.train_loss.notna())]
    for set_id, runs in study.runs[study.runs.run_id.isin(bad.run_id)].groupby("set_id", sort=False):
        what = f"{len(runs)} run{' has' if len(runs) == 1 else 's have'} a training loss that is not finite, "
        what += "or beyond 1e100 in size"
        todo = "lower the learning rate; their losses are left out, their metrics are not"
        yield Problem(path=f"runs/{set_id}", what=what, todo=todo, skipped=False)
