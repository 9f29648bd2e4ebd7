"""How long 2,304 runs of 20 epochs (the size of the ASE 2020 study) take to load into tidy tables.

    python benchmarks/load_runs.py [--runs 2304] [--epochs 20]

The study is fabricated through `guest.records` in a temporary folder, with fingerprints and
predictions of realistic size; "read" is warm from the page cache. The budget is 5 s.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import tempfile
import time
from pathlib import Path

import numpy as np

from analysis.load import load_study
from analysis.predictions import read_predictions
from guest.records import (
    ARTIFACTS,
    HISTORY,
    PREDICTIONS,
    RECORD,
    SCHEMA_VERSION,
    Artifact,
    Framework,
    Hashes,
    Isolation,
    Metric,
    Optimizer,
    RunRecord,
    RunResult,
    RunSpec,
    Seeds,
    ThreadSpec,
    Timings,
    Variant,
    WorkloadSpec,
    encode_record,
    history_columns,
)

SAMPLES, CLASSES = 1000, 10
WORKLOADS = tuple(f"network-{i}" for i in range(1, 9))
VARIANTS = (Variant.DEFAULT, Variant.FIXED_SEED, Variant.ALGO)
CPUS = (1, 2, 4, 8, 16, 32)
ENVIRONMENT = {
    "cpu": {"model": "Fabricated CPU @ 3.00GHz", "flags": [f"flag{i}" for i in range(130)]},
    "hypervisor": "none",
    "framework": {"name": "torch", "version": "2.13.0", "build": "option=value " * 150},
    "knobs": {f"OMP_KNOB_{i}": "1" for i in range(12)},
}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fabricate(directory: Path, runs: int, epochs: int) -> None:
    rng = np.random.default_rng(1)
    sets = [(w, v, c) for w in WORKLOADS for v in VARIANTS for c in CPUS]
    for i in range(runs):
        workload, variant, cpus = sets[i % len(sets)]
        spec = RunSpec(
            study_id="benchmark",
            workload=WorkloadSpec(
                name=workload,
                framework=Framework.TORCH,
                model="lenet5",
                dataset="digits",
                epochs=epochs,
                batch_size=64,
                learning_rate=0.1,
                optimizer=Optimizer.SGD,
            ),
            variant=variant,
            threads=ThreadSpec(cpus=cpus, intra_op=cpus, inter_op=cpus),
            repetition=i // len(sets) + 1,
            seeds=Seeds(),
        )
        write_run(directory / "runs" / spec.run_id, spec, rng)


def write_run(folder: Path, spec: RunSpec, rng: np.random.Generator) -> None:
    logits = rng.normal(size=(SAMPLES, CLASSES)).astype(np.float32)
    predictions, history = io.BytesIO(), io.StringIO()
    np.savez(predictions, y_true=rng.integers(0, 1, SAMPLES), last=logits, selected=logits)
    columns = history_columns([Metric.ACCURACY])
    writer = csv.DictWriter(history, columns)
    writer.writeheader()
    for epoch in range(1, spec.workload.epochs + 1):
        row = {name: repr(rng.random()) for name in columns}
        row |= {name: sha(rng.bytes(8)) for name in columns if name.endswith("sha256")}
        writer.writerow(row | {"epoch": epoch, "step": epoch * 100, "selected_epoch": epoch})
    files = dict.fromkeys(ARTIFACTS, b"") | {
        HISTORY: history.getvalue().encode(),
        PREDICTIONS: predictions.getvalue(),
    }
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    record = RunRecord(
        schema_version=SCHEMA_VERSION,
        spec=spec,
        status="done",
        result=RunResult(
            seeds_used=Seeds(initialisation=1, data_order=2, augmentation=3, dropout=4),
            step_hashes={str(2**k): sha(rng.bytes(8)) for k in range(11)},
            selected_epoch=spec.workload.epochs,
            last={"accuracy": rng.random()},
            selected={"accuracy": rng.random()},
            hashes=Hashes(**{name: sha(rng.bytes(8)) for name in Hashes.__dataclass_fields__}),
            timings=Timings(
                import_s=3.0,
                data_s=0.1,
                build_s=0.1,
                train_s=9.0,
                evaluate_s=1.0,
                wall_s=10.0 + rng.random(),
                cpu_s=9.0,
                warm=True,
            ),
            environment=ENVIRONMENT,
            load_by_others=0.0,
            artifacts={n: Artifact(sha256=sha(d), size_bytes=len(d)) for n, d in files.items()},
        ),
        isolation=Isolation(oversubscribed=False, host_cores=(0,), cpuset="affinity", neighbours=()),
        guest={"name": f"cpus-{spec.threads.cpus}", "provider": "local"},
        agent_sha256=sha(b"agent"),
        attempt=1,
        started_at="2025-01-01T00:00:00Z",
        finished_at="2025-01-01T00:00:10Z",
    )
    (folder / RECORD).write_text(encode_record(record))


def time_loading(directory: Path, runs: int, epochs: int) -> tuple[float, float]:
    """Seconds to load a fabricated study into tables, and to read its predictions."""
    began = time.perf_counter()
    study = load_study(directory)
    loaded = time.perf_counter()
    read_predictions(study)
    done = time.perf_counter()
    assert len(study.runs) == runs, study.problems[:1]
    assert len(study.epochs) == runs * epochs
    return loaded - began, done - loaded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2304)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fabricate(Path(name), arguments.runs, arguments.epochs)
        tables_s, predictions_s = time_loading(Path(name), arguments.runs, arguments.epochs)
    print(f"{arguments.runs} runs of {arguments.epochs} epochs into tables: {tables_s:.2f} s")
    print(f"their predictions ({SAMPLES} samples x {CLASSES} classes x 2): {predictions_s:.2f} s")


if __name__ == "__main__":
    main()
