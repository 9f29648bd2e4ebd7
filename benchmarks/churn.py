"""Churn of all pairs of 2,304 runs on 10,000 samples (the size of the ASE 2020 study), beside scipy's
pdist(metric="hamming") of the same labels.

What is fair about it: both are given labels of one byte, on the same machine, in one process; pdist comes
last, for its memory would count as ours. pdist gives every pair; our mean over the pairs needs no pair, only
how many runs put a sample in a class; our matrix gives every pair as pdist does. Predictions are drawn so
that no sample is agreed on by all runs, which the matrix would leave out.

The limit by memory: every label must be read once. How long that takes is measured by looking for the
largest, which does little else.

The matrix has no target of 30: every pair must be looked at. Packed into bits, ten classes take 5 kB a
run, and numpy works on a pair in nine passes (four XOR, three OR, count, sum) that move some 23 kB through
the caches. 30 times pdist (10 us a pair on the machine where this was written) would be 70 GB/s; the matrix
moved 17 there, on two cores. It is short of passes that are fused, not of memory: that takes compiled code
of our own. One-hot classes through BLAS in float32 were thirteen times slower than the bits."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from analysis.stats.metrics import churn_matrix, churn_within
from benchmarks.table import Row, over

SAMPLES, CLASSES = 10_000, 10
NOISE = 0.1  # the share of samples that a run puts in a class of its own
TURNS = 3
BYTES_A_PAIR = 23_000  # read and written by the nine passes, of four planes of 1,250 bytes
TARGET = 30.0
TARGET_GIB = 2.0


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    rng = np.random.default_rng(1)
    common = rng.integers(0, CLASSES, SAMPLES)
    labels = np.empty((runs, SAMPLES), np.uint8)
    for run in labels:  # row by row: the peak of memory is to be that of the kernels
        run[:] = np.where(rng.random(SAMPLES) < NOISE, rng.integers(0, CLASSES, SAMPLES), common)
    before = _peak_gib()
    turns = []
    for turn in range(TURNS):
        report(f"our mean and matrix of {runs:,} runs, turn {turn + 1} of {TURNS}")
        turns.append([_timed(f, labels) for f in (churn_within, churn_matrix, np.max)])
    peak = _peak_gib()
    mean_s, matrix_s, sum_s = ([turn[i][0] for turn in turns] for i in range(3))
    report(f"pdist of {runs:,} runs, {TURNS} times")
    theirs = [_timed(lambda x: pdist(x, "hamming"), labels) for _ in range(TURNS)]
    pdist_s = [seconds for seconds, _ in theirs]
    ours, expected = turns[0], theirs[0][1]
    assert abs(ours[0][1] - expected.mean()) < 1e-9
    assert np.allclose(ours[1][1][np.triu_indices(runs, 1)], expected)

    moved = [runs * (runs - 1) / 2 * BYTES_A_PAIR / 1e9 / seconds for seconds in matrix_s]
    in_memory = f"peak of memory with both of ours; {before:.2f} GiB before"
    size = f"{runs:,} runs x {SAMPLES:,} samples"
    return [
        Row.of(f"pdist : mean churn of all pairs, {size}", over(pdist_s, mean_s), name=name, at_least=TARGET),
        Row.of("pdist : the churn of every pair, as a matrix", over(pdist_s, matrix_s)),
        Row.of("mean churn", mean_s, "s"),
        Row.of("the matrix", matrix_s, "s"),
        Row.of("the matrix: nine numpy passes a pair, through the caches", moved, "GB/s"),
        Row.of("pdist", pdist_s, "s"),
        Row.of("mean churn : reading the labels once (the limit by memory)", over(mean_s, sum_s)),
        Row.of(in_memory, [peak], "GiB", n=str(TURNS), at_most=TARGET_GIB),
    ]


def _timed(function: Callable[[np.ndarray], Any], labels: np.ndarray) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function(labels)
    return time.perf_counter() - began, result


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
