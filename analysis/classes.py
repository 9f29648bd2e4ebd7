"""How far the accuracy of single classes ranges over runs (Pham et al., ASE 2020, section 4: per-class
differences are far larger than overall ones)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.load import Study, View, by_threads
from analysis.predictions import Predictions


def class_accuracy(truth: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(classes (C,), their samples (C,), accuracy (R, C)): the share of each true class that each run
    puts there. `truth` is (N,), `labels` (R, N). Classes without a test sample are not among them."""
    classes, samples = np.unique(truth, return_counts=True)
    right = labels == truth
    return classes, samples, np.stack([right[:, truth == c].mean(axis=1) for c in classes], axis=1)


def class_ranges(study: Study, predictions: Predictions, workload: str, view: View) -> pd.DataFrame:
    """One row a variant, thread setting and class: variant, threads, class_, samples, n (runs), mean, low
    and high (the least and the greatest of the n runs, not an interval)."""
    rows = []
    for name, variant, runs in study.experiments():
        if name != workload:
            continue
        for threads, setting in by_threads(runs).items():
            found = class_accuracy(predictions.truth[workload], predictions.stack(view, setting.run_id))
            for class_, samples, each in zip(*found[:2], found[2].T, strict=True):
                row = {"variant": variant, "threads": threads, "class_": int(class_)}
                row |= {"samples": int(samples), "n": len(each), "mean": each.mean()}
                rows.append(row | {"low": each.min(), "high": each.max()})
    return pd.DataFrame(rows)
