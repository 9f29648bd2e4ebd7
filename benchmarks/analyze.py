"""The whole of `vbstudy analyze`, report and figures included, of a fabricated study (see `fabricated`) of
2,304 runs on 10,000 test samples: 8 networks, 3 variants, 6 thread counts, 16 repetitions, 20 epochs, and
weights of LeNet-5's size; beside a bare reading of the same files with their SHA-256.

What is fair about it: both read 3 GB out of the page cache, in turns, with two threads or processes. The
bare reading does nothing that an analysis of checked files could do without."""

from __future__ import annotations

import hashlib
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.fabricated import LENET5, fabricate
from benchmarks.studies import vbstudy
from benchmarks.table import Row, over

SAMPLES, EPOCHS = 10_000, 20
TURNS = 2
TARGET_S = 60.0


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        directory = Path(folder)
        report(f"fabricating {runs:,} runs")
        fabricate(directory, runs, EPOCHS, samples=SAMPLES, weights=LENET5)
        _read_barely(directory)
        whole, bare = [], []
        for turn in range(TURNS):
            report(f"analyze, turn {turn + 1} of {TURNS}")
            began = time.perf_counter()
            vbstudy(directory, "analyze")
            whole.append(time.perf_counter() - began)
            bare.append(_read_barely(directory))
        assert (directory / "report" / "index.html").is_file()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20

    what = f"{runs:,} runs, figures and report included"
    return [
        Row(what, whole, "s", name=name, at_most=TARGET_S),
        Row("the same : reading its files with their SHA-256", over(whole, bare)),
        Row("peak of memory of the largest process", [peak], "GiB", n=str(TURNS)),
    ]


def _read_barely(directory: Path) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        files = [path for path in directory.glob("runs/**/*") if path.is_file()]
        list(pool.map(lambda path: hashlib.sha256(path.read_bytes()).digest(), files))
    return time.perf_counter() - began
