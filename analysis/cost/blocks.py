"""Ratios of times between conditions, run by run of a block: what slows all runs of a block down is not in
them. Where blocks are not recorded, as between independent samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats import paired, statistics

FEWEST_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Of geometric means, with its interval and a two-sided p; None where there is none. `blocks` is the
    number of pairs; 0: not paired."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    blocks: int


def ratio(a: pd.DataFrame, b: pd.DataFrame, confidence: float = 0.95) -> Ratio:
    """Of the wall times of the runs `a` over those of the runs `b`, of two conditions: Student's t on the
    logarithms of the ratios within blocks where all runs have one, else Welch's t on logarithms."""
    x, y = (_by_block(runs) for runs in (a, b))
    if x is not None and y is not None:
        quotients = (x / y).dropna().to_numpy()  # of the blocks that both have
        if len(quotients) >= FEWEST_BLOCKS:
            return _paired(np.log(quotients), confidence)
    first, second = (statistics.finite(runs.wall_s.to_numpy()) for runs in (a, b))
    value, low, high = statistics.ratio(first, second, confidence)
    p = None if value is None else statistics.welch(np.log(first), np.log(second))
    return Ratio(value=value, low=low, high=high, p=p, blocks=0)


def _by_block(runs: pd.DataFrame) -> pd.Series | None:
    """None where a run has no block, shares it with another one of its condition, or took no time."""
    times = runs.set_index("block").wall_s
    known = bool((times.index > 0).all()) and times.index.is_unique and bool((times > 0).all())
    return times if known else None


def _paired(logs: np.ndarray, confidence: float) -> Ratio:
    value = math.exp(float(logs.mean()))
    low, high = paired.bounds(logs, confidence)
    if low is None or high is None:
        return Ratio(value=value, low=None, high=None, p=None, blocks=len(logs))
    carried = len(logs) >= statistics.RATIOS_FROM
    return Ratio(
        value=value,
        low=math.exp(low) if carried else None,
        high=math.exp(high) if carried else None,
        p=float(DescrStatsW(logs).ttest_mean(0.0)[1]),
        blocks=len(logs),
    )
