"""Fabricates studies: schema-valid runs, written through `guest.records.run`, whose predictions, losses
and times are chosen, so that every expected number is known by hand."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from guest.records.codec import seal
from guest.records.run import (
    ARTIFACTS,
    HISTORY,
    PREDICTIONS,
    RECORD,
    SCHEMA_VERSION,
    SELECTED,
    WEIGHTS,
    Artifact,
    Framework,
    Hashes,
    Isolation,
    Metric,
    Optimizer,
    RunOrder,
    RunRecord,
    RunResult,
    RunSpec,
    Seeds,
    ThreadSpec,
    Timings,
    Variant,
    WorkloadSpec,
    history_columns,
)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tensors(text: str) -> bytes:
    """A weights file: digits are its weights (`34`: 3.0 and 4.0), of other texts the hash gives three.
    Beside them lies a counter, which is no weight."""
    numbers = [float(c) for c in text] if set(text) <= set("0123456789") else list(sha(text)[:3].encode())
    first, second = np.array(numbers[:1], np.float32), np.array(numbers[1:], np.float32)
    return save({"b.weight": second, "a.bias": first, "counter": np.array([len(text)])})


class Fabricator:
    """Writes runs below `directory`. What two runs share in `weights`, they share in the hash."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(
        self,
        cpus: int,
        repetition: int = 1,
        *,
        workload: str = "lenet5",
        variant: str = "fixed-seed",
        intra_op: int | None = None,
        inter_op: int | None = None,
        truth: Sequence[int] = (0, 1, 2, 0),
        predicted: Sequence[int] = (0, 1, 2, 0),
        selected: Sequence[int] | None = None,
        weights: str = "w",
        accuracies: Sequence[float] = (0.5, 0.75),
        selected_accuracies: Sequence[float] | None = None,
        losses: Sequence[float] = (1.0, 0.5),
        steps: dict[int, str] | None = None,
        seed: int | None = 1,
        wall_s: float = 10.0,
        oversubscribed: bool = False,
        neighbours: Sequence[str] = (),
        contended: Sequence[str] = (),
        load: float | None = None,
        cpu_model: str = "Fabricated CPU",
        cpu_model_asked: str = "",
        capability: str = "AVX2",
        accelerator: str = "",
        metrics: Sequence[Metric] = (Metric.ACCURACY,),
        framework: Framework = Framework.TORCH,
        epochs_planned: int | None = None,
        block: int = 0,
        at_s: float = 0.0,
        failures: Mapping[str, int] | None = None,
        diverged: bool = False,
    ) -> Path:
        """One run; returns its folder. Metrics beside the first are half the first. It began `at_s` after
        the study did; `block` is that of its record, 0: none. All logits of a `diverged` run are NaN."""
        chosen = list(selected_accuracies or accuracies)
        intra_op = intra_op or cpus
        spec = RunSpec(
            study_id="fabricated",
            workload=WorkloadSpec(
                name=workload,
                framework=framework,
                model="lenet5",
                dataset="digits",
                epochs=epochs_planned or len(losses),
                batch_size=64,
                learning_rate=0.1,
                optimizer=Optimizer.SGD,
                metrics=tuple(metrics),
            ),
            variant=Variant(variant),
            threads=ThreadSpec(cpus=cpus, intra_op=intra_op, inter_op=inter_op or intra_op),
            repetition=repetition,
            seeds=Seeds(initialisation=seed, data_order=seed, augmentation=seed, dropout=seed),
            cpu_model=cpu_model_asked,
        )
        picked = predicted if selected is None else selected
        classes = max(*truth, *predicted, *picked) + 1
        predictions = io.BytesIO()
        logits = np.full((classes, classes), np.nan, np.float32) if diverged else np.eye(classes, dtype="f4")
        np.savez(
            predictions,
            y_true=np.asarray(truth, dtype=np.int64),
            last=logits[list(predicted)],
            selected=logits[list(picked)],
        )
        history = _history(spec, losses, list(accuracies), chosen, weights, str(list(predicted)))
        files = dict.fromkeys(ARTIFACTS, b"fabricated") | {
            HISTORY: history.encode(),
            PREDICTIONS: predictions.getvalue(),
            WEIGHTS: tensors(weights),
            SELECTED: tensors(weights + "selected"),
        }
        result = RunResult(
            seeds_used=spec.seeds,
            step_hashes={str(k): sha(v) for k, v in (steps or {1: "a", 2: weights}).items()},
            selected_epoch=len(losses),
            last=_scores(metrics, accuracies[-1]),
            selected=_scores(metrics, chosen[-1]),
            hashes=Hashes(
                weights=sha(weights),
                logits=sha(weights + "logits"),
                predictions=sha(str(list(predicted))),
                selected_weights=sha(weights + "selected"),
                selected_logits=sha(weights + "selected logits"),
                selected_predictions=sha(str(list(picked))),
            ),
            timings=Timings(
                import_s=3.0,
                data_s=0.1,
                build_s=0.1,
                train_s=0.8 * wall_s,
                evaluate_s=0.1 * wall_s,
                wall_s=wall_s,
                cpu_s=wall_s * cpus,
                warm=True,
            ),
            environment={
                "cpu": {"model": cpu_model},
                "hypervisor": "none",
                "framework": {"cpu_capability": capability, "name": framework.value, "version": "2.13.0"},
            },
            load_by_others=load,
            artifacts={n: Artifact(sha256=_sha(d), size_bytes=len(d)) for n, d in files.items()},
        )
        record = RunRecord(
            schema_version=SCHEMA_VERSION,
            spec=spec,
            status="done",
            result=result,
            isolation=Isolation(
                oversubscribed=oversubscribed,
                host_cores=(0,),
                cpuset="affinity",
                neighbours=tuple(neighbours),
                contended=tuple(contended),
            ),
            guest={"name": f"cpus-{cpus}", "provider": "local", "accelerator": accelerator},
            agent_sha256=sha("agent"),
            attempt=1,
            started_at=_at(at_s),
            order=RunOrder(block=block, position=1, of=4) if block else None,
            finished_at=_at(at_s + wall_s),
            failures=dict(failures or {}),
        )
        folder = self.directory / "runs" / spec.run_id
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        (folder / RECORD).write_text(seal(record))
        return folder

    def usual(self, workload: str = "lenet5", runs: int = 3) -> None:
        """What studies usually find: fixed seeds repeat within 1, 2 and 4 threads and differ across
        them; free seeds always differ; 2 threads is fastest and 4 are oversubscribed."""
        for i, cpus in enumerate((1, 2, 4)):
            for rep in range(1, runs + 1):
                timed: dict[str, Any] = {
                    "wall_s": (12.0, 8.0, 20.0)[i] + 0.1 * rep,
                    "oversubscribed": cpus == 4,
                }
                self.run(
                    cpus,
                    rep,
                    workload=workload,
                    weights=f"threads {cpus}",
                    predicted=(0, 1, 2, (0, 0, 1)[i]),
                    accuracies=(0.5, (0.75, 0.78, 0.71)[i]),
                    selected_accuracies=(0.5, (0.75, 0.76, 0.75)[i]),
                    losses=(1.0, 0.5 + 0.01 * i),
                    **timed,
                )
                self.run(
                    cpus,
                    rep,
                    workload=workload,
                    variant="default",
                    seed=100 * cpus + rep,
                    weights=f"free {cpus} {rep}",
                    predicted=(0, 1, rep % 3, (cpus + rep) % 3),
                    accuracies=(0.5, 0.7 + 0.01 * rep + 0.003 * i),
                    losses=(1.0 + 0.1 * rep, 0.5 + 0.01 * rep),
                    steps={1: f"free {cpus} {rep}"},
                    **timed,
                )


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _at(second: float) -> str:
    return (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat(timespec="milliseconds")


def _scores(metrics: Sequence[Metric], first: float) -> dict[str, float]:
    return {metric.value: first if i == 0 else first / 2 for i, metric in enumerate(metrics)}


def _history(
    spec: RunSpec,
    losses: Sequence[float],
    accuracies: list[float],
    selected: list[float],
    weights: str,
    predictions: str,
) -> str:
    metrics = spec.workload.metrics
    file = io.StringIO()
    writer = csv.DictWriter(file, history_columns(metrics))
    writer.writeheader()
    for i, loss in enumerate(losses):
        scores = _scores(metrics, accuracies[i])
        writer.writerow(
            {
                "epoch": i + 1,
                "step": 10 * (i + 1),
                "train_loss": loss,
                "validation_loss": loss,
                "test_loss": loss,
                **{f"validation_{k}": v for k, v in scores.items()},
                **{f"test_{k}": v for k, v in scores.items()},
                "selected_epoch": i + 1,
                **{f"selected_test_{k}": v for k, v in _scores(metrics, selected[i]).items()},
                "weights_sha256": sha(f"{weights} {i}"),
                "logits_sha256": sha(f"{weights} logits {i}"),
                "predictions_sha256": sha(f"{predictions} {i}"),
                "elapsed_s": float(i + 1),
            }
        )
    return file.getvalue()


@pytest.fixture(scope="session")
def usual_study(tmp_path_factory: pytest.TempPathFactory) -> Fabricator:
    """The usual study, for tests that only read it: it takes long to fabricate and to analyse."""
    made = Fabricator(tmp_path_factory.mktemp("usual"))
    made.usual()
    return made


@pytest.fixture(scope="session")
def usual(usual_study: Fabricator) -> Any:
    """The analysis of the usual study, likewise only to be read."""
    from analysis.pipeline import analyze  # with pandas, for those that need it

    return analyze(usual_study.directory)


@pytest.fixture
def study(tmp_path: Path) -> Fabricator:
    """An empty study to fabricate runs in."""
    return Fabricator(tmp_path)
