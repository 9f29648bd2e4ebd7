"""Where the variance of the metric comes from: seeds (ALGO), run-to-run differences with equal seeds (IMPL),
thread counts, and the rest.

The model, one a workload: value = mean of the variant + thread count + seeds + implementation + their
interaction, all but the first random. The four variants switch two of its terms on and off (Zhuang et
al., MLSys 2022, section 3): seeds vary in `default` and `algo`, the implementation in `default` and
`fixed-seed`. Each variant is split by a one-way analysis of variance over its thread counts (statsmodels),
and the parts are found by moments:

    IMPL    = variance within thread counts of fixed-seed
    ALGO    = variance within thread counts of algo
    threads = variance between the thread counts of default, their means' sampling error taken off
    rest    = variance within thread counts of default - ALGO - IMPL

Its limits: IMPL is that of the one seed of fixed-seed, or the mean over its few; the seeds of default and
algo are drawn again for each run, so an interaction of seeds and threads is part of the rest; each estimate
carries its sampling error, which leaves `rest` below 0 now and then (shown as it is), and `threads` (shown
as 0)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from analysis.load.study import StudyData, by_seeds, by_threads
from analysis.results.model import Kind, Table, col, cols, count
from analysis.stats.observations import succeeded
from analysis.stats.statistics import finite, is_constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One variant's variance: within its thread counts, and between them (both are variances, and
    `between` is that of the thread effect, >= 0). None where the design gives none; `why` says so."""

    within: float | None
    between: float | None
    n: int
    groups: int
    why: str = ""
    below: bool = False  # `between` was estimated below 0
    settings: int | None = None  # thread counts, where the groups are of several seeds


def split(groups: list[np.ndarray]) -> Split:
    """One-way random effects by moments: within = MSW, between = max(0, (MSB - MSW) / n0) with
    n0 = (N - sum n_i^2 / N) / (k - 1) (Searle, Casella and McCulloch 1992, section 3.6). Values that are
    not finite are left out, and empty groups with them."""
    kept = [values for values in map(finite, groups) if len(values)]
    n, k = sum(map(len, kept)), len(kept)
    if n == k:
        return Split(within=None, between=None, n=n, groups=k, why="no thread count has two runs")
    if all(is_constant(values) for values in kept):
        means = np.array([values[0] for values in kept])
        among = 0.0 if is_constant(means) else float(means.var(ddof=1))
        return _split(0.0, among if k > 1 else None, n, k, 1.0)
    if k == 1:
        return _split(float(kept[0].var(ddof=1)), None, n, k, 1.0)
    centre = float(np.concatenate(kept).mean())  # taken off: the squares keep their digits
    frame = pd.DataFrame(
        {
            "value": np.concatenate(kept) - centre,
            "threads": np.repeat(np.arange(k), [len(values) for values in kept]),
        }
    )
    squares = anova_lm(ols("value ~ C(threads)", frame).fit())["mean_sq"]
    within, among = float(squares["Residual"]), float(squares["C(threads)"])
    n0 = (n - sum(len(values) ** 2 for values in kept) / n) / (k - 1)
    return _split(within, among, n, k, n0)


def _split(within: float, among: float | None, n: int, k: int, n0: float) -> Split:
    if among is None:
        why = "one thread count only"
        return Split(within=within, between=None, n=n, groups=k, why=why)
    between = (among - within) / n0
    return Split(within=within, between=max(0.0, between), n=n, groups=k, below=between < 0)


def components(study: StudyData) -> Table:
    """The variance of each workload's metric in the default variant, by where it comes from."""
    rows = []
    for workload, runs in study.runs.groupby("workload", sort=False):
        for metric in study.metrics[str(workload)]:
            for view in study.views(str(workload)):
                head = {"workload": workload, "metric": metric, "view": view.value}
                kept = succeeded(runs, view, metric)
                rows += [head | row for row in _parts(kept, view.metric(metric))]
    return Table.of(
        rows,
        *cols("workload", "metric", "view", "component"),
        col("source", "from"),
        count("n"),
        count("groups", "thread counts"),
        col("variance", kind=Kind.SPREAD),
        col("sd", "SD", Kind.SPREAD),
        col("share", kind=Kind.RATIO),
        col("remark"),
        name="components",
        title="Where the variance comes from: seeds, implementation, threads",
        note="Moments of the model metric = variant + threads + seeds (ALGO) + implementation (IMPL) + "
        "interaction. IMPL is the variance within thread counts of fixed-seed, ALGO that of algo, threads "
        "that between the thread counts of default, rest what default has beyond them: interaction and "
        "sampling error, which may fall below 0. IMPL is that of the fixed seeds alone. Shares are of the "
        "variance of default, without trainings that failed. There are no intervals: those of these moments "
        "suppose normal values, and do not cover for others; the table 'seeds' has one for threads beside "
        "seeds. Different models can have equal metrics and a variance of 0; 'estimated below 0' is no "
        "proof that there is none.",
    )


def _split_of(runs: pd.DataFrame, column: str) -> Split:
    """Of one variant; with several fixed seeds, only the runs of one seed repeat each other."""
    settings = by_threads(runs).values()
    groups = [same[column].to_numpy() for setting in settings for same in by_seeds(setting)]
    found = split(groups)
    if len(groups) == len(settings):
        return found
    why = (
        "the table `seeds` compares them"
        if found.within is not None
        else "no seed has two runs on a thread count"
    )
    return dataclasses.replace(found, between=None, why=why, settings=len(settings))


def _parts(runs: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    splits = {str(variant): _split_of(mine, column) for variant, mine in runs.groupby("variant", sort=False)}
    default, algo, fixed, control = (
        splits.get(v, Split(within=None, between=None, n=0, groups=0, why=f"no runs of {v}"))
        for v in ("default", "algo", "fixed-seed", "control")
    )
    total = None
    if default.within is not None and default.between is not None:
        total = default.within + default.between
    rest, why = None, "; ".join(dict.fromkeys(s.why for s in (default, algo, fixed) if s.within is None))
    if not why:
        rest = (default.within or 0.0) - (algo.within or 0.0) - (fixed.within or 0.0)
    sources = (
        ("ALGO: seeds", "algo, within", algo.within, algo, algo.why, True),
        ("IMPL: run to run", "fixed-seed, within", fixed.within, fixed, fixed.why, True),
        ("threads", "default, between", default.between, default, default.why, True),
        ("rest", "default, within, less ALGO and IMPL", rest, default, why, True),
        ("all", "default", total, default, default.why, True),
        ("threads, one seed", "fixed-seed, between", fixed.between, fixed, fixed.why, False),
        ("nothing left free", "control, within", control.within, control, control.why, False),
    )
    return [
        {
            "component": name,
            "source": source,
            "n": from_.n,
            "groups": from_.settings or from_.groups,
            "variance": variance,
            "sd": None if variance is None or variance < 0 else variance**0.5,
            "share": variance / total if shared and variance is not None and total else None,
            "remark": _remark(variance, reason, below=from_.below and "between" in source),
        }
        for name, source, variance, from_, reason, shared in sources
    ]


def _remark(variance: float | None, reason: str, *, below: bool) -> str:
    if variance is None:
        return f"inconclusive: {reason}"
    return "estimated below 0" if below else "below 0" if variance < 0 else ""
