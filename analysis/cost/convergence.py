"""How long a workload trains until it converges, and what determinism costs. Both compare times:
sets whose times are excluded (`analysis.cost.times.excluded`) are shown, and not compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.cost.blocks import ratio
from analysis.cost.times import excluded
from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import ACROSS, ALPHA, WHERE, Kind, Table, col, cols, count, interval
from analysis.stats import metrics, statistics
from analysis.stats.observations import distinct
from analysis.stats.statistics import finite

# variant with the determinism switches, and the one that differs from it in nothing else
DETERMINISTIC = {"algo": "default", "control": "fixed-seed"}


def convergence(study: StudyData) -> Table:
    """Epochs and seconds to convergence of each set, and across thread counts, with RelDiff and RelSD of
    the seconds (Pham et al., ASE 2020, section 3.3)."""
    rows = []
    for workload, variant, runs in study.experiments():
        reached = _reached(study, runs, f"validation_{study.metrics[workload][0]}")
        head = {"workload": workload, "variant": variant}
        fit = []
        for threads, setting in by_threads(runs).items():
            mine, reason = reached.loc[setting.run_id], excluded(setting)
            epochs = reached.epoch.loc[distinct(setting, View.LAST).run_id]
            fit += [] if reason else [mine]
            rows.append(head | {"threads": threads} | _converged(epochs, mine.elapsed_s))
            rows[-1] |= {"excluded": reason}
        if runs.threads.nunique() > 1:
            means = pd.DataFrame([mine.mean() for mine in fit], columns=reached.columns, dtype=float)
            left = runs.threads.nunique() - len(fit)
            reason = f"{left} excluded thread counts left out" if left else ""
            rows.append(head | {"threads": ACROSS} | _converged(means.epoch, means.elapsed_s))
            rows[-1] |= {"excluded": reason}
    return Table.of(
        rows,
        *WHERE,
        col("threads"),
        count("n"),
        interval("epochs", kind=Kind.RATIO),
        interval("time_s", "seconds", Kind.SECONDS, bounds="time"),
        col("rel_diff", "RelDiff", Kind.SPREAD),
        interval("rel_sd", "RelSD", bounds="rel"),
        col("excluded", "excluded"),
        name="convergence",
        title="Epochs and time to convergence",
        note=f"The first epoch at which a run's validation metric reaches {metrics.CONVERGED:.0%} of its "
        "best, and the seconds until its end. RelDiff is (slowest - "
        "fastest) / fastest of the runs, RelSD is SD / mean, with the interval of the SD. "
        f"{statistics.INTERVALS_NOTE} "
        "Epochs are those of runs that are no copies. Across thread counts, n thread counts that are not "
        "excluded, each with the mean of its runs.",
    )


def _reached(study: StudyData, runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """By run_id: `epoch` of convergence (NaN: none) and `elapsed_s` at its end."""
    epochs = study.epochs[study.epochs.run_id.isin(runs.run_id)]
    values = epochs.pivot(index="run_id", columns="epoch", values=column).sort_index(axis=1)
    times = epochs.pivot(index="run_id", columns="epoch", values="elapsed_s").sort_index(axis=1)
    reached = metrics.epochs_to_converge(values.to_numpy())
    at = np.nan_to_num(reached, nan=1).astype(int) - 1
    elapsed = np.where(np.isnan(reached), np.nan, times.to_numpy()[np.arange(len(at)), at])
    return pd.DataFrame({"epoch": reached, "elapsed_s": elapsed}, index=values.index)


def _converged(reached: pd.Series, elapsed_s: pd.Series) -> dict[str, Any]:
    times = elapsed_s.to_numpy()
    epochs, mean = statistics.mean(reached.to_numpy()), statistics.mean(times)
    rel_sd, sd = metrics.rel_sd(times), statistics.sd(times)
    return {
        "n": mean.n,
        **epochs.cells("epochs"),
        **mean.cells("time_s", "time"),
        "rel_diff": metrics.rel_diff(times),
        "rel_sd": rel_sd,
        "rel_low": None if sd.low is None or not mean.value else sd.low / mean.value,
        "rel_high": None if sd.high is None or not mean.value else sd.high / mean.value,
    }


# ---- what determinism costs -----------------------------------------------------------------------------


def overhead(study: StudyData) -> Table:
    """Time with the determinism switches over time without (Zhuang et al., MLSys 2022, section 5), at
    each thread count: `algo` over `default`, `control` over `fixed-seed`."""
    rows = []
    for workload, runs in study.runs.groupby("workload", sort=False):
        for switched, plain in DETERMINISTIC.items():
            with_, without = (by_threads(runs[runs.variant == v]) for v in (switched, plain))
            rows += [
                {"workload": workload, "variant": switched, "against": plain, "threads": threads}
                | _overhead(with_[threads], without[threads])
                for threads in with_
                if threads in without
            ]
    return Table.of(
        rows,
        *WHERE,
        *cols("against", "threads"),
        count("n_a", "n"),
        count("n_b", "n against"),
        count("blocks"),
        interval("ratio", "time ratio", Kind.RATIO, bounds=""),
        col("conclusion"),
        name="overhead",
        title="What determinism costs in time",
        note="Wall time with the determinism switches over that without, seeds treated alike: the ratio of "
        "geometric means, on logarithms with the 95 % interval of Student's t over the ratios within so many "
        "blocks, or of Welch's t where blocks are 0 (not recorded). Excluded times are shown, and not "
        "compared.",
        hidden=["excluded"],
    )


def _overhead(with_: pd.DataFrame, without: pd.DataFrame) -> dict[str, Any]:
    reason = excluded(with_) or excluded(without)
    found = ratio(with_, without, 1 - ALPHA)
    return {
        "n_a": len(finite(with_.wall_s.to_numpy())),
        "n_b": len(finite(without.wall_s.to_numpy())),
        "blocks": found.blocks,
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "excluded": reason,
        "conclusion": f"none: {reason}" if reason else _conclusion(found.low, found.high),
    }


def _conclusion(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "inconclusive: fewer than two runs in a set, or times that do not vary"
    return "slower" if low > 1 else "faster" if high < 1 else "no difference found"
