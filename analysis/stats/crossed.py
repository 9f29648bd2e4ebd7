"""Runs crossed with test samples: what would hold for other test samples of the same kind too."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as _mcnemar

from analysis.stats.statistics import MEAN_FROM, UPPER, Estimate, mean, share

BY_TABLE = 25  # discordant samples up to which McNemar's p is the exact binomial one


def crossed_mean(correct: np.ndarray) -> Estimate:
    """The mean of `correct` (R, N) over other runs and other test samples. Its interval is that of the runs
    (`statistics.mean`), widened by what other samples add, each with its own t (Howe 1974; Zou and Donner
    2008): so it is never the narrower one. Samples add s^2 of their means / N, less s^2 of the rest / RN,
    which the runs' means have too (Owen 2007, section 3). One run has Wilson's interval, and fewer than
    MEAN_FROM have none."""
    runs, samples = correct.shape
    value = float(correct.mean())
    if runs == 1:
        return share(int(correct.sum()), samples)
    if runs < MEAN_FROM or samples < 2:
        return Estimate(value=value, n=runs)
    by_run, by_sample = correct.mean(axis=1), correct.mean(axis=0)
    # The rest's sum of squares, from the others': no second array of this size is made.
    squares = float(correct.var()) * correct.size
    squares -= samples * runs * float(by_run.var()) + runs * samples * float(by_sample.var())
    rest = max(0.0, squares) / ((runs - 1) * (samples - 1)) / correct.size
    t = float(stats.t.ppf(UPPER, samples - 1))
    of_samples = float(by_sample.var(ddof=1)) / samples
    added, least = t * math.sqrt(max(0.0, of_samples - rest)), t * math.sqrt(of_samples)
    of_runs = mean(by_run)
    if least == 0 and of_runs.low is None:
        return Estimate(value=value, n=runs)
    low, high = (
        max(least, math.hypot(added, 0.0 if bound is None else bound - value))
        for bound in (of_runs.low, of_runs.high)
    )
    return Estimate(value=value, low=max(0.0, value - low), high=min(1.0, value + high), n=runs)


def mcnemar(a: np.ndarray, b: np.ndarray) -> float | None:
    """Two-sided p of McNemar's test that two models, right on the samples `a` and `b` (N,) bool, have one
    accuracy; None where they are right on the same samples."""
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    if only_a + only_b == 0:
        return None
    table = [[int((a & b).sum()), only_a], [only_b, int((~a & ~b).sum())]]
    return float(_mcnemar(table, exact=only_a + only_b <= BY_TABLE).pvalue)
