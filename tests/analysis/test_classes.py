from __future__ import annotations

import numpy as np

from analysis.classes import class_accuracy, class_ranges
from analysis.load import View, load_study
from analysis.predictions import read_predictions


def test_each_class_has_its_own_accuracy_in_each_run():
    truth = np.array([0, 0, 2, 2, 2, 2])
    labels = np.array([[0, 1, 2, 2, 2, 0], [0, 0, 0, 0, 0, 0]])
    classes, samples, accuracy = class_accuracy(truth, labels)
    assert list(classes) == [0, 2], "class 1 has no test sample"
    assert list(samples) == [2, 4]
    assert accuracy.tolist() == [[0.5, 0.75], [1.0, 0.0]]


def test_ranges_go_from_the_worst_to_the_best_run_of_a_set(study):
    study.run(1, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 0))
    study.run(1, 2, truth=(0, 0, 1, 1), predicted=(0, 1, 1, 1))
    study.run(2, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 1))
    frame = class_ranges(*read_predictions(load_study(study.directory)), "lenet5", View.LAST)
    assert frame[["threads", "class_", "n", "samples", "low", "mean", "high"]].to_numpy().tolist() == [
        ["1", 0, 2, 2, 0.5, 0.75, 1.0],
        ["1", 1, 2, 2, 0.5, 0.75, 1.0],
        ["2", 0, 1, 2, 1.0, 1.0, 1.0],
        ["2", 1, 1, 2, 1.0, 1.0, 1.0],
    ]
