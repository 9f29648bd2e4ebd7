"""Fabricated studies of any size, written through `guest.records.run`, whose files have the sizes of real
ones and whose numbers behave like real ones: with fixed seeds the runs of a thread count are copies, with
free seeds all differ; thread counts and runs move the logits of hard samples over their edge."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from guest.records.codec import seal
from guest.records.run import (
    ARTIFACTS,
    HISTORY,
    PREDICTIONS,
    RECORD,
    SELECTED,
    WEIGHTS,
    Artifact,
    Framework,
    Hashes,
    Metric,
    Optimizer,
    RunRecord,
    RunSpec,
    Seeds,
    ThreadSpec,
    Variant,
    WorkloadSpec,
    history_columns,
)
from tests.factories import record, result

CLASSES = 10
LENET5 = 61_706  # weights
VARIANTS = (Variant.DEFAULT, Variant.FIXED_SEED, Variant.ALGO)
WORKLOADS = 8
CPUS = (1, 2, 4, 8, 16, 32)
FREE, SHARED, LATE = 0.55, 0.12, 0.05  # SD of logits: a run's own, a thread count's, the last epochs'
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)
ENVIRONMENT = {
    "cpu": {"model": "Fabricated CPU @ 3.00GHz", "flags": [f"flag{i}" for i in range(130)]},
    "hypervisor": "none",
    "framework": {"name": "torch", "version": "2.13.0", "build": "option=value " * 150},
    "knobs": {f"OMP_KNOB_{i}": "1" for i in range(12)},
}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fabricate(directory: Path, runs: int, epochs: int, *, samples: int = 1000, weights: int = 100) -> None:
    """Writes `runs` runs, spread evenly over workloads, variants and thread counts."""
    sets = [(w, v, c) for w in range(1, WORKLOADS + 1) for v in VARIANTS for c in CPUS]
    for i in range(runs):
        number, variant, count = sets[i % len(sets)]
        spec = RunSpec(
            study_id="benchmark",
            workload=WorkloadSpec(
                name=f"network-{number}",
                framework=Framework.TORCH,
                model="lenet5",
                dataset="digits",
                epochs=epochs,
                batch_size=64,
                learning_rate=0.1,
                optimizer=Optimizer.SGD,
            ),
            variant=variant,
            threads=ThreadSpec(cpus=count, intra_op=count, inter_op=count),
            repetition=i // len(sets) + 1,
            seeds=Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1)
            if variant.seeds_fixed
            else Seeds(),
        )
        write_run(directory / "runs" / spec.run_id, spec, samples, weights, i)


def write_run(folder: Path, spec: RunSpec, samples: int, weights: int, order: int) -> None:
    common = _generator(spec.workload.name)
    threads = _generator(spec.workload.name, spec.threads.label)
    # Copies where seeds are fixed: everything that is drawn is drawn for the thread count.
    run = _generator(spec.set_id, "" if spec.variant.seeds_fixed else str(spec.repetition))
    truth = common.integers(0, CLASSES, samples)
    logits = common.normal(size=(samples, CLASSES)).astype(np.float32)
    logits[np.arange(samples), truth] += np.float32(2.5)
    logits += SHARED * threads.normal(size=logits.shape).astype(np.float32)
    logits += FREE * run.normal(size=logits.shape).astype(np.float32) * (not spec.variant.seeds_fixed)
    picked = logits + LATE * run.normal(size=logits.shape).astype(np.float32)
    files = dict.fromkeys(ARTIFACTS, b"") | {
        HISTORY: _history(spec, run).encode(),
        PREDICTIONS: _npz(y_true=truth, last=logits, selected=picked),
    }
    for name in (WEIGHTS, SELECTED):
        files[name] = save({"weights": run.normal(size=weights).astype(np.float32)})
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    began = BEGAN + timedelta(seconds=10 * order)
    jitter = _generator(spec.run_id).random()
    plain = plain_record(spec, files)
    computed = dataclasses.replace(
        plain.result,
        seeds_used=spec.seeds
        if spec.variant.seeds_fixed
        else Seeds(initialisation=order, data_order=order, augmentation=order, dropout=order),
        step_hashes={str(2**k): sha(run.bytes(8)) for k in range(11)},
        selected_epoch=spec.workload.epochs,
        last={"accuracy": float((logits.argmax(axis=1) == truth).mean())},
        selected={"accuracy": float((picked.argmax(axis=1) == truth).mean())},
        hashes=Hashes(
            weights=sha(files[WEIGHTS]),
            logits=sha(logits.tobytes()),
            predictions=sha(logits.argmax(axis=1).tobytes()),
            selected_weights=sha(files[SELECTED]),
            selected_logits=sha(picked.tobytes()),
            selected_predictions=sha(picked.argmax(axis=1).tobytes()),
        ),
        timings=dataclasses.replace(
            plain.result.timings,
            train_s=5.0 + 4.0 / spec.threads.intra_op,
            wall_s=6.0 + 4.0 / spec.threads.intra_op + jitter,
        ),
    )
    changed = dataclasses.replace(
        plain,
        result=computed,
        isolation=dataclasses.replace(plain.isolation, oversubscribed=spec.threads.cpus > 16),
        started_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
        finished_at=f"{began + timedelta(seconds=9):%Y-%m-%dT%H:%M:%SZ}",
    )
    (folder / RECORD).write_text(seal(changed))


def plain_record(spec: RunSpec, files: dict[str, bytes]) -> RunRecord:
    """Of a run with these files, whose numbers nobody looks at."""
    manifest = {name: Artifact(sha256=sha(data), size_bytes=len(data)) for name, data in files.items()}
    plain = record(spec, result(manifest, environment=ENVIRONMENT))
    return dataclasses.replace(plain, guest={"name": f"cpus-{spec.threads.cpus}", "provider": "local"})


def _generator(*names: str) -> np.random.Generator:
    """The same numbers for the same names."""
    return np.random.default_rng(list(hashlib.sha256("/".join(names).encode()).digest()))


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _history(spec: RunSpec, rng: np.random.Generator) -> str:
    file = io.StringIO()
    columns = history_columns([Metric.ACCURACY])
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    for epoch in range(1, spec.workload.epochs + 1):
        row = {name: repr(1 - (0.9 + 0.1 * rng.random()) / (1 + epoch / 4)) for name in columns}
        row |= {name: sha(rng.bytes(8)) for name in columns if name.endswith("sha256")}
        row |= {name: repr((1 + 0.1 * rng.random()) / epoch) for name in columns if name.endswith("loss")}
        writer.writerow(row | {"epoch": epoch, "step": epoch * 100, "selected_epoch": epoch})
    return file.getvalue()
