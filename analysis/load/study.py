"""Reads a study's folder into tidy tables. The folder tree is the truth: every file read is checked
against the SHA-256 in its run's record, and a run that does not pass is left out and named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.design import MARGIN, Design, Plan, read_design
from analysis.load.failures import failures
from analysis.load.runs import FOREIGN, History, Problem, check_run, number, run_folders, workload_text
from guest.records.codec import digest
from guest.records.printable import counted, printable
from guest.records.run import (
    PREDICTIONS,
    RECORDING,
    SELECTED,
    WEIGHTS,
    Framework,
    Metric,
    RunRecord,
    RunResult,
    Tier,
    WorkloadSpec,
    history_columns,
)

HASHED = ("weights", "logits", "predictions")
READERS = 8  # threads: reading and hashing release the interpreter's lock
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "asimd": "NEON", "sse2": "SSE2"}


class NothingToAnalyse(ValueError):  # noqa: N818  (clearer than ...Error)
    """There is no usable finished run; the text says what to do."""


class View(StrEnum):
    """Which model of a run: as it stood after the last epoch, or the one with the best validation
    metric (with model selection)."""

    LAST = "last"
    SELECTED = "selected"

    def metric(self, metric: str) -> str:
        """The column of `runs` with the test metric."""
        return f"{self}_{metric}"

    def epoch_metric(self, metric: str) -> str:
        """The column of `epochs` with the test metric."""
        return f"test_{metric}" if self is View.LAST else f"selected_test_{metric}"

    def sha256(self, what: str) -> str:
        """The column of `runs` with the hash of `weights`, `logits` or `predictions`."""
        return f"{self}_{what}_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyData:
    """A study in tidy tables, ordered by workload, variant, threads and repetition.

    runs    one row a run: what was asked, every hash, test metrics, timings in seconds, isolation; `block`
            and `position` in it as planned, 0 where they are unknown
    epochs  one row a run and epoch: `run_id` and all of history.csv
    steps   run_id, step, weights_sha256: the weights after training step 1, 2, 4, ...
    metrics the metrics of each workload; the first one selects the model
    environments  what guests said of machine and software, by the column `environment` of `runs`
    """

    directory: Path
    runs: pd.DataFrame
    epochs: pd.DataFrame
    steps: pd.DataFrame
    metrics: dict[str, tuple[str, ...]]
    problems: tuple[Problem, ...] = ()
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    projects: frozenset[str] = frozenset()
    """the workloads that are user projects: they record less, and have no selected model"""
    design: Design = field(default_factory=Design)
    edited: str = ""
    """in what the runs differ from those that the study file plans now"""
    plan: Plan = field(default_factory=Plan)
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """attempts that failed, by condition and kind of error"""

    def views(self, workload: str) -> tuple[View, ...]:
        """The models that a workload has."""
        return (View.LAST,) if workload in self.projects else tuple(View)

    def primary(self, workload: str) -> tuple[str, View]:
        """The metric and the model of a workload that findings are decided by: those that the study declared,
        else the first metric of the last model."""
        metrics = self.metrics[workload]
        metric = self.design.primary if self.design.primary in metrics else metrics[0]
        views = self.views(workload)
        return metric, View.SELECTED if self.design.selected and View.SELECTED in views else View.LAST

    def margin(self, workload: str, metric: str) -> float | None:
        """The margin of equivalence of a metric: the declared one of the primary metric that was declared;
        without one, of the first metric of each workload, if all have the same or it is a share. The default
        of metrics that vbstudy knows, which are shares."""
        values = self.runs_of(workload)[View.LAST.metric(metric)].to_numpy(float)
        values = values[np.isfinite(values)]
        is_share = metric in set(Metric) and bool(((values >= 0) & (values <= 1)).all())
        if self.design.margin is not None and metric == (self.design.primary or self.primary(workload)[0]):
            one = bool(self.design.primary) or len({self.primary(w)[0] for w in self.metrics}) == 1
            if one or is_share:
                return self.design.margin
        return MARGIN if is_share else None

    def only(self, workloads: Collection[str]) -> StudyData:
        """The study of these workloads alone; it may have no runs."""
        if set(self.metrics) <= set(workloads):
            return self
        runs = self.runs[self.runs.workload.isin(list(workloads))].reset_index(drop=True)
        epochs, steps = (frame[frame.run_id.isin(runs.run_id)] for frame in (self.epochs, self.steps))
        metrics = {name: names for name, names in self.metrics.items() if name in workloads}
        return dataclasses.replace(self, runs=runs, epochs=epochs, steps=steps, metrics=metrics)

    def runs_of(self, workload: str, **where: str) -> pd.DataFrame:
        """Its runs in which the named columns have these values."""
        return select(self.runs, workload=workload, **where)

    def recorded(self, column: str) -> set[str]:
        """The workloads all of whose runs have this column of `runs`."""
        known = self.runs[column].notna() & (self.runs[column] != "")
        return {str(name) for name, each in known.groupby(self.runs.workload) if each.all()}

    def with_loss(self) -> set[str]:
        """The workloads with a training loss: networks of ours, and the projects that gave one."""
        known = set(self.epochs.run_id[self.epochs.train_loss.notna()])
        given = set(self.runs.workload[self.runs.run_id.isin(known)])
        return given | (set(self.metrics) - self.projects)

    def seeds(self) -> int:
        """How many seeds the variants with fixed ones have, in the workload with most; 0 without any."""
        fixed = self.runs[self.runs.seeds_fixed]
        return int(fixed.groupby("workload").seeds_used.nunique().max()) if len(fixed) else 0

    def experiments(self) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """(workload, variant, its runs), in order."""
        for (workload, variant), runs in self.runs.groupby(["workload", "variant"], sort=False):
            yield str(workload), str(variant), runs

    def by_view(self) -> Iterator[tuple[dict[str, str], View, pd.DataFrame]]:
        """Each experiment in each view that it has: what names it in a table, the view, its runs."""
        for workload, variant, runs in self.experiments():
            for view in self.views(workload):
                yield {"workload": workload, "variant": variant, "view": view.value}, view, runs

    def without(self, problems: Iterable[Problem]) -> StudyData:
        """The study without the runs these problems name. Raises NothingToAnalyse when none is left."""
        problems = tuple(problems)
        gone = {p.path.removeprefix("runs/") for p in problems if p.skipped}
        kept = [frame[~frame.run_id.isin(gone)] for frame in (self.runs, self.epochs, self.steps)]
        if kept[0].empty:
            raise NothingToAnalyse(f"no usable run in {self.directory}: {problems[0]}")
        runs, epochs, steps = (frame.reset_index(drop=True) for frame in kept)
        found = (*self.problems, *problems)
        left = dataclasses.replace(self, runs=runs, epochs=epochs, steps=steps, problems=found)
        return left.only(set(runs.workload))  # others have no run left


def select(frame: pd.DataFrame, **where: str) -> pd.DataFrame:
    """The rows in which the named columns have these values."""
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def when(times: pd.Series) -> pd.Series:
    """The times of records, as UTC."""
    return pd.to_datetime(times, utc=True, format="ISO8601")


def by_threads(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs of one workload and variant by thread setting (`1`, `4`, `4 (2 threads)`), in order."""
    return {str(threads): setting for threads, setting in runs.groupby("threads", sort=False)}


def thread_settings(runs: pd.DataFrame) -> tuple[int, str]:
    """How many thread settings these runs have, on however many CPUs: as a number, and as a text that calls
    them thread counts where these are all that differs."""
    settings = runs[["intra_op", "inter_op"]].drop_duplicates()
    return len(settings), counted(
        len(settings), "thread count" if settings.intra_op.is_unique else "thread setting"
    )


def by_seeds(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs of one workload and variant that should be equal: those of each seed, where seeds are fixed;
    all together where they are free."""
    if not runs.seeds_fixed.all():
        return [runs]
    return [same for _, same in runs.groupby("seeds_used", sort=False)]


def shared_seeds(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs of each random numbers that were used on two thread counts or more."""
    each = [same for _, same in runs.groupby("seeds_used", sort=False)]
    return [same for same in each if same.label.nunique() > 1]


def load_study(directory: Path) -> StudyData:
    """Reads every finished run below `directory`. Predictions are left for `read_predictions`.

    Raises NothingToAnalyse when no run can be used, and NewerSchemaError when a record was written
    by a newer vbstudy (that is not damage).
    """
    folders = run_folders(directory)
    if not folders:
        raise NothingToAnalyse(f"no finished run in {directory}; run `vbstudy sweep` first")
    with ThreadPoolExecutor(READERS) as pool:
        outcomes = list(pool.map(lambda folder: check_run(directory, folder), folders))
    found = [outcome for outcome in outcomes if not isinstance(outcome, Problem)]
    problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if not found:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise NothingToAnalyse(f"no usable run in {directory}: {problems[0]}{more}")
    found.sort(key=lambda pair: _order(pair[0]))
    found, metrics = _comparable(found, problems)
    design, odd = read_design(directory)
    records = [record for record, _ in found]
    runs = _in_few_blocks(pd.DataFrame([_run_row(record) for record in records]))
    return StudyData(
        directory=directory,
        runs=runs,
        epochs=_in_few_blocks(_epochs(found)),
        steps=_in_few_blocks(_steps(records)),
        metrics=metrics,
        problems=(*problems, *odd),
        design=design,
        environments=dict(zip(runs.environment, map(_environment, records), strict=True)),
        projects=frozenset(workload_text(r.spec) for r in records if r.spec.workload.project),
        failures=failures(directory, records),
    )


def _in_few_blocks(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with texts as objects: pandas 3 keeps each column of its own text type by itself, and to
    choose rows, which is done thousands of times, then takes as many steps as there are columns."""
    texts = [name for name, kind in frame.dtypes.items() if isinstance(kind, pd.StringDtype)]
    return frame.astype(dict.fromkeys(texts, object)).copy()  # a copy joins the columns of one type


def _order(record: RunRecord) -> tuple[Any, ...]:
    spec, threads = record.spec, record.spec.threads
    counts = (threads.cpus, threads.intra_op, threads.inter_op)
    variants = list(type(spec.variant))
    return (workload_text(spec), variants.index(spec.variant), *counts, spec.repetition)


def workload_digest(workload: WorkloadSpec, tree_sha256: str = "") -> str:
    """Equal where the same was trained: the settings, and the files of an own project."""
    return digest([workload.comparable, tree_sha256])


def _run_row(record: RunRecord) -> dict[str, Any]:
    spec, result, isolation = record.spec, record.result, record.isolation
    environment, hashes, names = result.environment, result.hashes, spec.workload.metric_names
    return {
        "run_id": spec.run_id,
        "study_id": spec.study_id,
        "workload": workload_text(spec),
        "workload_name": spec.workload.name,
        "cpu_model_asked": spec.cpu_model,
        "framework": _text(environment, "framework", "name") or str(spec.workload.framework or ""),
        "model": spec.workload.model,
        "dataset": spec.workload.dataset,
        "workload_digest": workload_digest(
            spec.workload, result.project.tree_sha256 if result.project else ""
        ),
        "epochs_planned": spec.workload.epochs,
        "training": _training(spec.workload),
        "variant": spec.variant.value,
        "seeds_fixed": spec.variant.seeds_fixed,
        "cpus": spec.threads.cpus,
        "intra_op": spec.threads.intra_op,
        "inter_op": spec.threads.inter_op,
        "intra_op_in_force": _intra_op_in_force(record),
        "label": spec.threads.label,
        "threads": _threads_text(record),
        "repetition": spec.repetition,
        "block": record.order.block if record.order else 0,
        "position": record.order.position if record.order else 0,
        "set_id": spec.set_id,
        "isa": spec.isa.value,
        "seeds_used": _random_numbers(result),
        **{f"last_{what}_sha256": getattr(hashes, what) or None for what in HASHED},
        **{f"selected_{what}_sha256": getattr(hashes, f"selected_{what}") or None for what in HASHED},
        "predictions_file_sha256": _file_sha256(record, PREDICTIONS),
        "last_weights_file_sha256": _file_sha256(record, WEIGHTS),
        "selected_weights_file_sha256": _file_sha256(record, SELECTED),
        "selected_epoch": result.selected_epoch,
        **{f"last_{name}": number(result.last[name]) for name in names},
        **{f"selected_{name}": number(result.selected[name]) for name in names if name in result.selected},
        **{f.name: getattr(result.timings, f.name) for f in dataclasses.fields(result.timings)},
        "oversubscribed": isolation.oversubscribed,
        "neighbours": len(isolation.neighbours),
        "contended": printable("; ".join(isolation.contended)),
        "load_by_others": np.nan if record.load_by_others is None else record.load_by_others,
        "cpu_model": _text(environment, "cpu", "model"),
        "hypervisor": _text(environment, "hypervisor"),
        "instruction_set": _instruction_set(environment),
        "caches": ", ".join(_texts(environment, "cpu", "caches")),
        "framework_version": _text(environment, "framework", "version"),
        "provider": _text(record.guest, "provider"),
        "accelerator": _text(record.guest, "accelerator"),
        "guest": _text(record.guest, "name"),
        "environment": hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest(),
        "project": result.project,
        "command": shlex.join(spec.workload.project.command) if spec.workload.project else "",
        "started_at": record.started_at,
        "finished_at": record.finished_at,
    }


def _intra_op_in_force(record: RunRecord) -> float:
    """The intra-op threads of a project's framework when the program ended; NaN where they are not known, and
    with TensorFlow's exact mode, whose pools are the same on all thread counts."""
    known = record.result.environment.get("threads_in_force") if record.result.project else None
    for name in (Framework.TORCH, Framework.TENSORFLOW):
        count = _deep(known, (name, "intra_op"))
        fixed = name is Framework.TENSORFLOW and record.spec.cure is Tier.EXACT
        if isinstance(count, int) and count > 0 and not fixed:  # 0: as many as TensorFlow finds CPUs
            return count
    return np.nan


def _random_numbers(result: RunResult) -> str:
    """Equal where runs drew the same random numbers."""
    recorded = result.artifacts.get(RECORDING)
    return digest(result.seeds_used) if recorded is None else recorded.sha256


def _training(workload: WorkloadSpec) -> str:
    """`sgd, learning rate 0.1, batches of 64`."""
    return f"{workload.optimizer}, learning rate {workload.learning_rate:g}, batches of {workload.batch_size}"


def _file_sha256(record: RunRecord, name: str) -> str:
    """Empty when the run has no such file."""
    artifact = record.result.artifacts.get(name)
    return artifact.sha256 if artifact else ""


def _text(data: Any, *keys: str) -> str:
    """A value deep in what the guest said of itself; empty when it did not say."""
    data = _deep(data, keys)
    return "" if data is None else printable(str(data))


def _texts(data: Any, *keys: str) -> list[str]:
    """As `_text`, of a list."""
    data = _deep(data, keys)
    return [printable(str(value)) for value in data] if isinstance(data, list) else []


def _environment(record: RunRecord) -> dict[str, Any]:
    """The fingerprint with texts that can be shown."""

    def shown(data: Any) -> Any:
        if isinstance(data, dict):
            return {printable(key): shown(value) for key, value in data.items()}
        if isinstance(data, list):
            return [shown(value) for value in data]
        return printable(data) if isinstance(data, str) else data

    return {printable(key): shown(value) for key, value in record.result.environment.items()}


def _deep(data: Any, keys: Iterable[str]) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _instruction_set(environment: Any) -> str:
    """The instruction sets that the libraries chose, where they say so; else the widest vectors of the
    CPU. Two machines that differ here round differently."""
    named = {
        "ATen": _text(environment, "framework", "cpu_capability"),
        "oneDNN": _text(environment, "framework", "onednn_isa"),
        "MKL branch": _text(environment, "framework", "mkl_auto_branch"),
    }
    known = [f"{library} {text}" for library, text in named.items() if text]
    if known:
        return ", ".join(known)
    flags = _texts(environment, "cpu", "flags")
    return next((name for flag, name in VECTORS.items() if flag in flags), "")


def _threads_text(record: RunRecord) -> str:
    """What a reader calls the set: `4`; `4 (2 threads)` or `4 (inter-op 1)` where they are crossed."""
    threads = record.spec.threads
    extra = []
    if threads.intra_op != threads.cpus:
        extra.append(f"{threads.intra_op} thread" + "s" * (threads.intra_op != 1))
    if threads.inter_op != threads.intra_op:
        extra.append(f"inter-op {threads.inter_op}")
    return str(threads.cpus) + (f" ({', '.join(extra)})" if extra else "")


def _epochs(found: list[tuple[RunRecord, History]]) -> pd.DataFrame:
    """All histories, by one conversion for each set of columns rather than one a run."""
    groups: dict[tuple[str, ...], list[list[Any]]] = {}
    for record, history in found:
        rows = groups.setdefault(record.spec.workload.metric_names, [])
        rows += [[record.spec.run_id, *row] for row in history]
    parts = [
        pd.DataFrame(rows, columns=["run_id", *history_columns(metrics)]) for metrics, rows in groups.items()
    ]
    return pd.concat(parts, ignore_index=True).astype({"epoch": int, "step": int, "selected_epoch": int})


def _steps(records: list[RunRecord]) -> pd.DataFrame:
    rows = [
        (record.spec.run_id, int(step), sha256)
        for record in records
        for step, sha256 in record.result.step_hashes.items()
        if step.isdecimal()
    ]
    return pd.DataFrame(rows, columns=["run_id", "step", "weights_sha256"])


def _comparable(
    found: list[tuple[RunRecord, History]], problems: list[Problem]
) -> tuple[list[tuple[RunRecord, History]], dict[str, tuple[str, ...]]]:
    """The runs that share a metric with those before them of their workload, and for each workload the
    metrics that all of its runs have, in the order of the first run."""
    kept = []
    metrics: dict[str, tuple[str, ...]] = {}
    for record, history in found:
        mine, name = record.spec.workload.metric_names, workload_text(record.spec)
        common = tuple(metric for metric in metrics.get(name, mine) if metric in mine)
        if common:
            metrics[name] = common
            kept.append((record, history))
        else:
            what = f"has no metric in common with the first run of {name}"
            problems.append(Problem(path=f"runs/{record.spec.run_id}", what=what, todo=FOREIGN))
    return kept, metrics
