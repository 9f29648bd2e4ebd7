"""A study's runs as MLflow's file store: a folder `mlruns` that its client and `mlflow ui` read, and `vbstudy
import` too. Written by its documented layout: it needs no MLflow here.

From version 3.7 on MLflow opens file stores with MLFLOW_ALLOW_FILE_STORE=true, or takes them into a database
with `mlflow migrate-filestore`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.study import StudyData
from analysis.results.temporary import temporary

FINISHED, LOCAL = 3, 4  # MLflow's RunStatus and SourceType
PARAMETERS = {
    "workload": "workload",
    "variant": "variant",
    "threads": "intra_op",
    "repetition": "repetition",
    "cpus": "cpus",
    "inter_op_threads": "inter_op",
    "framework": "framework",
    "model": "model",
    "dataset": "dataset",
    "isa": "isa",
    "study": "study_id",
}
TAGS = {
    "vbstudy.run": "run_id",
    "vbstudy.set": "set_id",
    "vbstudy.last_weights_sha256": "last_weights_sha256",
    "vbstudy.selected_weights_sha256": "selected_weights_sha256",
    "vbstudy.last_predictions_sha256": "last_predictions_sha256",
    "vbstudy.cpu_model": "cpu_model",
    "vbstudy.instruction_set": "instruction_set",
    "vbstudy.framework_version": "framework_version",
}
SECONDS = ("wall_s", "train_s", "cpu_s")


def write_mlflow(study: StudyData, target: Path) -> int:
    """Writes one experiment, named as the study, with all its runs: parameters, tags, the metrics of every
    epoch, and those of the last and of the selected model. Returns how many runs. Whole or not at all;
    raises FileExistsError."""
    if target.exists():
        raise FileExistsError(f"{target} exists already; name another folder")
    target = target.absolute()
    with temporary(target) as folder:
        folder.mkdir()
        _write(study, folder, target)
        folder.chmod(0o755)
        folder.rename(target)
    return len(study.runs)


def _write(study: StudyData, folder: Path, target: Path) -> None:
    name = str(study.runs.study_id.iloc[0])
    experiment = str(int(_digest(name)[:15], 16))
    began = [_milliseconds(text) for text in study.runs.started_at]
    about = {"artifact_location": (target / experiment).as_uri(), "creation_time": min(began)}
    about |= {"experiment_id": experiment, "last_update_time": max(began), "lifecycle_stage": "active"}
    (folder / experiment).mkdir()
    _meta(folder / experiment, about | {"name": name})
    epochs = {str(run): mine for run, mine in study.epochs.groupby("run_id", sort=False)}
    for row in study.runs.to_dict("records"):
        run_id = _digest(f"{name}/{row['run_id']}")[:32]
        where = folder / experiment / run_id
        for part in ("params", "tags", "metrics", "artifacts"):
            (where / part).mkdir(parents=True)
        ended = _milliseconds(row["finished_at"])
        _meta(
            where,
            {
                "artifact_uri": (target / experiment / run_id / "artifacts").as_uri(),
                "end_time": ended,
                "entry_point_name": "",
                "experiment_id": experiment,
                "lifecycle_stage": "active",
                "run_id": run_id,
                "run_name": row["run_id"],
                "run_uuid": run_id,
                "source_name": "",
                "source_type": LOCAL,
                "source_version": "",
                "start_time": _milliseconds(row["started_at"]),
                "status": FINISHED,
                "tags": [],
                "user_id": "",
            },
        )
        for key, column in PARAMETERS.items():
            _text(where / "params" / key, str(row[column]))
        for key, column in {"mlflow.runName": "run_id", **TAGS}.items():
            _text(where / "tags" / key, str(row[column]))
        for key, lines in _metrics(study, row, epochs.get(row["run_id"], study.epochs[:0]), ended):
            text = "".join(f"{time} {value!r} {step}\n" for time, value, step in lines)
            _text(where / "metrics" / key, text)


def _metrics(
    study: StudyData, row: Mapping[Any, Any], epochs: pd.DataFrame, ended: int
) -> Iterator[tuple[str, list[tuple[int, float, int]]]]:
    """Name and (timestamp in ms, value, step): values of an epoch at its step, those of the run at step 0."""
    for column in epochs.columns:
        if epochs[column].dtype.kind == "f" and column != "elapsed_s" and epochs[column].notna().any():
            times = [ended - 1000 + int(epoch) for epoch in epochs.epoch]
            yield (
                str(column),
                list(zip(times, map(float, epochs[column]), map(int, epochs.epoch), strict=True)),
            )
    for metric in study.metrics[row["workload"]]:
        for view in ("last", "selected"):
            value = row.get(f"{view}_{metric}")  # a project's run has no selected model
            if value is not None and not math.isnan(value):
                yield f"{view}_{metric}", [(ended, float(value), 0)]
    for name in SECONDS:
        yield name, [(ended, float(row[name]), 0)]


def _meta(folder: Path, about: Mapping[str, Any]) -> None:
    """YAML of one level; JSON's scalars are YAML's."""
    _text(folder / "meta.yaml", "".join(f"{key}: {json.dumps(value)}\n" for key, value in about.items()))


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
