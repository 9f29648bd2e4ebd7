from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.cost.convergence import convergence
from analysis.load.study import load_study
from analysis.results.model import ACROSS


def test_epochs_and_seconds_to_convergence(study):
    # the fabricated histories take one second an epoch
    study.run(1, 1, accuracies=(0.5, 0.8, 0.8), losses=(1.0,) * 3)
    study.run(1, 2, accuracies=(0.5, 0.6, 0.8), losses=(1.0,) * 3, weights="v")
    study.run(2, 1, accuracies=(0.8, 0.7, 0.7), losses=(1.0,) * 3)
    study.run(4, 1, accuracies=(0.5, 0.6, 0.8), losses=(1.0,) * 3, oversubscribed=True)
    frame = convergence(load_study(study.directory)).frame.set_index("threads")
    one = frame.loc["1"]
    assert (one.n, one.epochs, one.time_s, one.rel_diff) == (2, 2.5, 2.5, 0.5)
    assert one.rel_sd == pytest.approx(np.std([2, 3], ddof=1) / 2.5)
    assert frame.loc["4", "excluded"] == "oversubscribed"
    across = frame.loc[ACROSS]
    assert (across.n, across.time_s, across.rel_diff) == (2, 1.75, 1.5)  # of the means 2.5 and 1
    assert across.excluded == "1 excluded thread counts left out"


def test_epochs_of_copies_count_once(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, accuracies=(0.5, 0.8), weights="copies")
    study.run(1, 4, accuracies=(0.8, 0.8), weights="other")
    row = convergence(load_study(study.directory)).frame.iloc[0]
    assert (row.n, row.epochs) == (4, 1.5)


def test_a_run_without_a_finite_metric_does_not_converge(study):
    study.run(1, 1, accuracies=(float("nan"),) * 2)
    row = convergence(load_study(study.directory)).frame.iloc[0]
    assert row.n == 0
    assert pd.isna(row.time_s)


def test_times_of_different_machines_are_not_compared_across_thread_counts(study):
    for cpus, model in ((1, "Slow CPU"), (2, "Fast CPU")):
        study.run(cpus, cpu_model=model)
    frame = convergence(load_study(study.directory)).frame.set_index("threads")
    assert set(frame.excluded[["1", "2"]]) == {"2 CPU models (Slow CPU, Fast CPU)"}
    assert (frame.loc[ACROSS, "n"], frame.loc[ACROSS, "excluded"]) == (0, "2 excluded thread counts left out")
