"""Calibration: is a model as often right as it is sure? Expected calibration error (Naeini et al., AAAI 2015;
Guo et al., ICML 2017, section 2) in equal bins of the predicted class's softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ACROSS, SCOPE, VIEWS_NOTE, Kind, Table, col, count, interval
from analysis.stats import statistics

BINS = 15


def bins(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(samples, sum of confidence, correct), each (BINS,), by equal bins of the confidence (N,) in [0, 1];
    a bound belongs to the bin below it. Samples whose confidence is not finite are in none."""
    known = np.isfinite(confidence)
    at = np.clip(np.ceil(confidence[known].astype(np.float64) * BINS).astype(int) - 1, 0, BINS - 1)
    weights = (None, confidence[known], correct[known])
    count, sure, right = (np.bincount(at, weight, BINS) for weight in weights)
    return count, sure, right


def ece(confidence: np.ndarray, correct: np.ndarray) -> float:
    """ECE = sum over bins of |correct - confidence| / N, in [0, 1]; NaN without a finite confidence."""
    count, sure, right = bins(confidence, correct)
    return float(np.abs(right - sure).sum() / count.sum()) if count.sum() else float("nan")


def calibration_tables(study: StudyData, predictions: Predictions) -> tuple[Table, Table]:
    """One row a set, and the bins of its reliability diagram, all runs of the set together."""
    rows: list[dict[str, Any]] = []
    diagram: list[pd.DataFrame] = []
    for head, view, runs in study.by_view():
        truth = predictions.truth[head["workload"]]
        means = []
        for threads, setting in by_threads(runs).items():
            found = [
                (predictions.confidence[view][run], predictions.labels[view][run] == truth)
                for run in setting.run_id
            ]
            row = _set(found)
            means.append(row["ece"])
            rows.append(head | {"scope": threads} | row)
            sums = np.sum([bins(*each) for each in found], axis=0)
            diagram.append(_diagram(sums, len(setting)).assign(**head, scope=threads, n=len(setting)))
        if len(means) > 1:
            errors = np.array(means, dtype=float)
            rows.append(head | {"scope": ACROSS} | _spread(errors) | {"samples": len(truth)})
    table = Table.of(
        rows,
        *SCOPE,
        count("samples"),
        interval("ece", "ECE"),
        interval("sd", "SD of ECE"),
        col("range", "max-min of ECE", Kind.SPREAD),
        interval("gap", "confidence less accuracy"),
        name="calibration",
        title="Calibration: are the models as often right as they are sure?",
        note=f"ECE: expected calibration error in {BINS} equal bins. Confidence is the softmax of the "
        "predicted class; confidence less accuracy is above 0 for models that are too sure. Mean over the "
        f"runs with Student's t, SD with its chi-square interval, 95 %. Scope '{ACROSS}': n thread counts, "
        "each with the mean of its runs. The bins are in calibration_bins.csv. " + VIEWS_NOTE,
    )
    return table, Table(
        name="calibration_bins",
        title="Reliability: accuracy by confidence",
        note="All runs of a set together; the accuracy has Wilson's interval for the samples of one run, for "
        "runs share their test samples.",
        frame=pd.concat(diagram, ignore_index=True),
        columns=(),
        shown=False,
    )


def _set(found: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    errors = np.array([ece(*each) for each in found])
    gap = statistics.mean([float(np.nanmean(sure)) - float(right.mean()) for sure, right in found])
    return _spread(errors) | {
        "samples": len(found[0][1]),
        **gap.cells("gap"),
    }


def _spread(errors: np.ndarray) -> dict[str, Any]:
    mean, sd = statistics.mean(errors), statistics.sd(errors)
    return {
        "n": mean.n,
        **mean.cells("ece"),
        **sd.cells("sd"),
        "range": float(np.nanmax(errors) - np.nanmin(errors)) if mean.n > 1 else None,
    }


def _diagram(sums: np.ndarray, runs: int) -> pd.DataFrame:
    count, sure, right = sums
    # Runs share their test samples: however many runs there are, the samples of one count.
    shares = [statistics.share(r / runs, c / runs) for r, c in zip(right, count, strict=True)]
    with np.errstate(invalid="ignore", divide="ignore"):
        confidence = sure / count
    return pd.DataFrame(
        {
            "bin": np.arange(1, BINS + 1),
            "samples": count.astype(int),
            "confidence": confidence,
            "accuracy": [share.value for share in shares],
            "low": [share.low for share in shares],
            "high": [share.high for share in shares],
        }
    )
