"""How long a workload trains until it converges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.cost.times import exclusions
from analysis.load.study import StudyData, View, by_threads
from analysis.results.model import ACROSS, WHERE, Kind, Table, col, count, interval
from analysis.stats import metrics, statistics
from analysis.stats.observations import distinct


def convergence(study: StudyData) -> Table:
    """Epochs and seconds to convergence of each set, and across thread counts, with RelDiff and RelSD of
    the seconds (Pham et al., ASE 2020, section 3.3)."""
    rows = []
    for workload, variant, runs in study.experiments():
        reached = _reached(study, runs, f"validation_{study.metrics[workload][0]}")
        head = {"workload": workload, "variant": variant}
        fit = []
        sets = by_threads(runs)
        reasons = exclusions(sets)
        for threads, setting in sets.items():
            mine, reason = reached.loc[setting.run_id], reasons[threads]
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
    epochs, mean = (statistics.mean(v, within=statistics.NOT_NEGATIVE) for v in (reached.to_numpy(), times))
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
