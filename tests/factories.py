"""Specs, results and published runs for tests, made by the same code that makes real ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guest.records.harden import Hardening, Measurement
from guest.records.run import (
    ARTIFACTS,
    SCHEMA_VERSION,
    Artifact,
    Framework,
    Hashes,
    Isa,
    Isolation,
    MetricSource,
    Optimizer,
    ProjectSpec,
    RunRecord,
    RunResult,
    RunSpec,
    Seeds,
    ThreadSpec,
    Tier,
    Timings,
    Variant,
    WorkloadSpec,
)


def workload(**changes: Any) -> WorkloadSpec:
    values: dict[str, Any] = {
        "name": "lenet5",
        "framework": Framework.TORCH,
        "model": "lenet5",
        "dataset": "digits",
        "epochs": 2,
        "batch_size": 32,
        "learning_rate": 0.01,
        "optimizer": Optimizer.SGD,
        "momentum": 0.9,
        "train_samples": 192,
        "test_samples": 100,
    }
    return WorkloadSpec(**values | changes)


def project(**changes: Any) -> ProjectSpec:
    values: dict[str, Any] = {
        "source": "mine",
        "commit": "",
        "command": ("python", "train.py"),
        "requirements": "",
        "metrics": (MetricSource(name="accuracy"),),
        "predictions": "",
        "weights": "",
        "timeout_s": None,
        "disk_limit_mib": 1,
    }
    return ProjectSpec(**values | changes)


def spec(cpus: int = 2, repetition: int = 1, **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "study_id": "test",
        "workload": workload(),
        "variant": Variant.FIXED_SEED,
        "threads": ThreadSpec(cpus=cpus, intra_op=cpus, inter_op=cpus),
        "repetition": repetition,
        "seeds": Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1),
    }
    return RunSpec(**values | changes)


def fill(folder: Path, text: str = "bytes", names: Sequence[str] = ARTIFACTS) -> dict[str, Artifact]:
    """Writes every file of a run, or these, with made-up bytes; returns its manifest."""
    manifest = {}
    for name in names:
        data = f"{name} {text}\n".encode()
        (folder / name).write_bytes(data)
        manifest[name] = Artifact(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    return manifest


def result(artifacts: dict[str, Artifact], **changes: Any) -> RunResult:
    values: dict[str, Any] = {
        "seeds_used": Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1),
        "step_hashes": {"1": "a" * 64},
        "selected_epoch": 1,
        "last": {"accuracy": 0.5},
        "selected": {"accuracy": 0.5},
        "hashes": Hashes(**dict.fromkeys(Hashes.__slots__, "a" * 64)),
        "timings": Timings(
            import_s=1.0,
            data_s=0.1,
            build_s=0.1,
            train_s=2.0,
            evaluate_s=0.2,
            wall_s=2.4,
            cpu_s=2.3,
            warm=True,
        ),
        "load_by_others": 0.0,
        "environment": {"cpu": {"model": "test"}},
        "artifacts": artifacts,
    }
    return RunResult(**values | changes)


def record(run_spec: RunSpec, run_result: RunResult) -> RunRecord:
    return RunRecord(
        schema_version=SCHEMA_VERSION,
        spec=run_spec,
        status="done",
        result=run_result,
        isolation=Isolation(oversubscribed=False, host_cores=(0, 1), cpuset="affinity", neighbours=()),
        guest={"name": "cpus-2", "provider": "local"},
        agent_sha256="b" * 64,
        attempt=1,
        started_at="2026-01-01T00:00:00.000+00:00",
        finished_at="2026-01-01T00:00:03.000+00:00",
    )


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "w": generator.normal(size=(3, 4)).astype(np.float32),
        "b": generator.normal(size=4).astype(np.float32),
    }


def measurement(**changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "tier": Tier.SEEDS,
        "cpus": 1,
        "intra_op": 1,
        "repetition": 1,
        "weights": "w",
        "logits": "l",
        "step_hashes": {"1": "a", "2": "b"},
        "train_s": 2.0,
        "oversubscribed": False,
        "emulated": False,
        "load_by_others": 0.0,
        "environment": "e",
        "finished_at": "2026-01-01T00:00:03.000+00:00",
    }
    return Measurement(**values | changes)


def hardening(measurements: Sequence[Measurement], **changes: Any) -> Hardening:
    values: dict[str, Any] = {
        "workload": workload(),
        "seeds": Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1),
        "isa": Isa.NATIVE,
        "cpus": (1, 2),
        "repetitions": 1,
        "tiers": (Tier.SEEDS, Tier.EXACT),
        "not_applicable": {},
        "provider": "local",
        "agent_sha256": "b" * 64,
        "environments": {"e": {"libraries": {"torch": "2"}}},
        "measurements": tuple(measurements),
    }
    return Hardening(**values | changes)
