"""Calibration: is a model as often right as it is sure? Expected calibration error (Naeini et al., AAAI 2015;
Guo et al., ICML 2017, section 2) in bins of equal width of the predicted class's probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import Predictions
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ACROSS, SCOPE, VIEWS_NOTE, Kind, Table, col, count, interval
from analysis.stats import statistics
from analysis.stats.observations import COUNTED_NOTE, Observations, by_seed, distinct

BINS = 15


def bins(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(samples, sum of confidence, correct), each (BINS,), by equal bins of the confidence (N,) in [0, 1];
    a bound belongs to the bin below it. Samples whose confidence is not finite are in none."""
    known = np.isfinite(confidence)
    at = np.clip(np.ceil(confidence[known].astype(np.float64) * BINS).astype(int) - 1, 0, BINS - 1)
    weights = (None, confidence[known], correct[known])
    count, sure, right = (np.bincount(at, weight, BINS) for weight in weights)
    return count, sure, right


def ece(count: np.ndarray, sure: np.ndarray, right: np.ndarray) -> float:
    """ECE = sum over `bins` of |correct - confidence| / N, at least the gap between accuracy and mean
    confidence. NaN without a finite confidence."""
    return float(np.abs(right - sure).sum() / count.sum()) if count.any() else float("nan")


def calibration_tables(study: StudyData, predictions: Predictions) -> tuple[Table, Table]:
    """One row a set, and the bins of its reliability diagram, all runs of the set together."""
    rows: list[dict[str, Any]] = []
    diagram: list[pd.DataFrame] = []
    for head, view, runs in study.by_view():
        truth = predictions.truth[head["workload"]]
        means = []
        for threads, setting in by_threads(runs).items():
            each = distinct(setting, view)
            found = [
                bins(predictions.confidence[view][run], predictions.labels[view][run] == truth)
                for run in each.run_id
            ]
            row = _set(found, each.seeds_used, len(setting))
            means.append(row["ece"])
            rows.append(head | {"scope": threads} | row | {"samples": len(truth)})
            diagram.append(
                _diagram(np.sum(found, axis=0), len(each)).assign(**head, scope=threads, n=len(each))
            )
        if len(means) > 1:
            errors = np.array(means, dtype=float)
            rows.append(head | {"scope": ACROSS} | _spread(errors, len(errors)) | {"samples": len(truth)})
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
        note=f"ECE: expected calibration error in {BINS} bins of equal width (Guo et al., 2017). With few "
        "samples it lies above 0 for calibrated models too. Confidence is the softmax of the "
        "predicted class, or its probability where a project's scores are probabilities; confidence less "
        "accuracy is above 0 for models that are too sure. For these "
        f"test samples. {COUNTED_NOTE}{statistics.INTERVALS_NOTE} Scope '{ACROSS}': n "
        "thread counts, each with the mean of its runs. The bins are in calibration_bins.csv. " + VIEWS_NOTE,
    )
    return table, Table(
        name="calibration_bins",
        title="Reliability: accuracy by confidence",
        note="All runs of a condition together; the accuracy has Wilson's interval for the samples of one "
        "run, for runs share their test samples.",
        frame=pd.concat(diagram, ignore_index=True),
    )


def _set(
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], seeds: pd.Series, runs: int
) -> dict[str, Any]:
    """`found` has the bins of each distinct run, `seeds` their seeds."""
    errors = by_seed(np.array([ece(*each) for each in found]), seeds)
    with np.errstate(invalid="ignore"):
        gaps = np.array([(sure - right).sum() / count.sum() for count, sure, right in found])
    gap = Observations(values=by_seed(gaps, seeds), runs=runs, distinct=len(gaps), failed=0).mean()
    return _spread(errors, runs) | gap.cells("gap")


def _spread(errors: np.ndarray, runs: int) -> dict[str, Any]:
    known = statistics.finite(errors)
    found = Observations(values=known, runs=runs, distinct=len(errors), failed=0)
    return {
        "n": runs,
        **found.mean(within=statistics.PROPORTION).cells("ece"),
        **found.sd().cells("sd"),
        "range": float(np.ptp(known)) if runs > 1 and len(known) else None,
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
