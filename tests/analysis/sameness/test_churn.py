from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.results.cells import rows
from analysis.results.model import ACROSS
from analysis.sameness.churn import churn


def test_token_ids_and_rounded_values_have_the_churn_of_classes(study):
    for cpus, predictions in ((1, ((0, 1, 0, 1), (0, 1, 1, 1))), (2, ((1, 1, 0, 0), (0, 0, 0, 1)))):
        for repetition, predicted in enumerate(predictions, 1):
            weights = f"{cpus}{repetition}"
            study.run(cpus, repetition, truth=(0, 1, 0, 1), predicted=predicted, weights=weights)
    loaded, small = read_predictions(load_study(study.directory))
    factor = np.int64(2**45)  # one cell a label would need more than there are addresses
    labels = {
        view: {run: each * factor for run, each in by_run.items()} for view, by_run in small.labels.items()
    }
    truth = {name: each * factor for name, each in small.truth.items()}
    large = replace(small, labels=labels, truth=truth)
    assert churn(loaded, large).frame.equals(churn(loaded, small).frame)


def test_churn_of_different_models_is_exact_and_not_equal_where_each_thread_count_has_copies(study):
    for cpus, predicted in ((1, (0, 1, 2, 0)), (2, (0, 1, 1, 1))):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"{cpus}", predicted=predicted)
    table = churn(*read_predictions(load_study(study.directory)))
    shown = dict(zip(zip(table.frame["view"], table.frame.scope, strict=True), rows(table), strict=True))
    assert "0.50 (exact)" in shown["last", ACROSS]
    assert "0 (exact)" in shown["last", "1"]
