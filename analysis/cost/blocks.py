"""Ratios of times between conditions, run by run of a block: what slows all runs of a block down is not in
them. Where blocks are not recorded, as between independent samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats import paired, statistics
from analysis.stats.statistics import Estimate

FEWEST_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The `estimate` is of geometric means; `p` is two-sided, None where there is none. `blocks` is the
    number of pairs; 0: not paired."""

    estimate: Estimate
    p: float | None
    blocks: int = 0


def ratio(a: pd.DataFrame, b: pd.DataFrame, confidence: float = statistics.CONFIDENCE) -> Ratio:
    """Of the wall times of the runs `a` over those of the runs `b`, of two conditions: Student's t on the
    logarithms of the ratios within blocks where all runs have one, else Welch's t on logarithms."""
    x, y = (_by_block(runs) for runs in (a, b))
    if x is not None and y is not None:
        quotients = (x / y).dropna().to_numpy()  # of the blocks that both have
        if len(quotients) >= FEWEST_BLOCKS:
            logs = np.log(quotients)
            p = None if statistics.is_constant(logs) else float(DescrStatsW(logs).ttest_mean(0.0)[1])
            return Ratio(estimate=paired.ratio(quotients, confidence), p=p, blocks=len(logs))
    first, second = (statistics.finite(runs.wall_s.to_numpy()) for runs in (a, b))
    value = statistics.ratio(first, second, confidence)
    p = None if value.value is None else statistics.welch(np.log(first), np.log(second))
    return Ratio(estimate=value, p=p)


def _by_block(runs: pd.DataFrame) -> pd.Series | None:
    """None where a run has no block, shares it with another one of its condition, or took no time."""
    times = runs.set_index("block").wall_s
    known = bool((times.index > 0).all()) and times.index.is_unique and bool((times > 0).all())
    return times if known else None
