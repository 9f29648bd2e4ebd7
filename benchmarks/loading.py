"""How long 2,304 runs of 20 epochs (the size of the ASE 2020 study) take to load into tidy tables, beside
a bare reading of the same files: json.loads of every run.json and csv.reader of every history.csv.

What is fair about it: both read the same files out of the page cache, in turns. The bare reading
checks nothing and keeps nothing; what is above it is the price of the checks and of the tables."""

from __future__ import annotations

import csv
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from benchmarks.fabricated import fabricate
from benchmarks.table import Row, over
from guest.records.run import HISTORY, RECORD

TARGET_S = 5.0
EPOCHS = 20
LOADS = 5


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        directory = Path(folder)
        report(f"fabricating {runs} runs of {EPOCHS} epochs")
        fabricate(directory, runs, EPOCHS)
        report(f"loading {runs} runs, {LOADS} times")
        _read_barely(directory)
        loads = [(*_time_loading(directory, runs), _read_barely(directory)) for _ in range(LOADS)]
    tables, predictions, bare = zip(*loads, strict=True)

    what = f"{runs:,} runs of {EPOCHS} epochs into tables"
    return [
        Row.of(what, tables, "s", name=name, at_most=TARGET_S),
        Row.of("the same : json.loads and csv.reader of the same files", over(tables, bare)),
        Row.of("their predictions, on top", predictions, "s"),
    ]


def _time_loading(directory: Path, runs: int) -> tuple[float, float]:
    """Seconds to load a fabricated study into tables, and to read its predictions."""
    began = time.perf_counter()
    study = load_study(directory)
    loaded = time.perf_counter()
    read_predictions(study)
    done = time.perf_counter()
    assert len(study.runs) == runs, study.problems[:1]
    assert len(study.epochs) == runs * EPOCHS
    return loaded - began, done - loaded


def _read_barely(directory: Path) -> float:
    began = time.perf_counter()
    for record in directory.glob(f"runs/**/{RECORD}"):
        json.loads(record.read_bytes())
        with (record.parent / HISTORY).open(newline="") as file:
            list(csv.reader(file))
    return time.perf_counter() - began
