"""What each thread count costs, and which is fastest. Sets that were emulated or oversubscribed, or whose
cores others kept busy, are shown, and excluded from comparisons."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.cost.blocks import Ratio, ratio
from analysis.load.study import StudyData, by_threads
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, cols, count, interval
from analysis.stats import statistics
from guest.records.run import CONTENDED_ABOVE, EMULATORS

LOAD_WORTH_SAYING = 0.1  # cores kept busy by others, mean over a set's runs


def exclusion(*, emulated: bool, oversubscribed: bool, load_by_others: float) -> str:
    """Why times are excluded from comparisons; empty when they are not. The load is a mean over runs."""
    if emulated:
        return "emulated"
    if oversubscribed:
        return "oversubscribed"
    return "contended" if load_by_others >= CONTENDED_ABOVE else ""


def excluded(runs: pd.DataFrame) -> str:
    """`exclusion` of a set of runs."""
    return exclusion(
        emulated=bool(runs.accelerator.isin(EMULATORS).any()),
        oversubscribed=bool(runs.oversubscribed.any()),
        load_by_others=float(runs.load_by_others.mean()),
    )


def wall_time(study: StudyData) -> Table:
    """Wall time of each set (from the start of the run to the end of testing, data loading included,
    import of the framework excluded), and its speed-up against the smallest thread count."""
    rows = []
    for workload, variant, runs in study.experiments():
        first: pd.DataFrame | None = None
        base = int(runs.intra_op.iloc[0])
        for threads, setting in by_threads(runs).items():
            mean, sd = (f(setting.wall_s.to_numpy()) for f in (statistics.mean, statistics.sd))
            training = statistics.mean(setting.train_s.to_numpy())
            more = int(setting.intra_op.iloc[0]) / base
            rows.append(
                {
                    "workload": workload,
                    "variant": variant,
                    "threads": threads,
                    "set_id": setting.set_id.iloc[0],
                    "n": mean.n,
                    **mean.cells("wall_s", "wall"),
                    **sd.cells("sd"),
                    **training.cells("train_s", "train"),
                    "cpu_s": setting.cpu_s.mean(),
                    "oversubscribed": bool(setting.oversubscribed.any()),
                    "excluded": excluded(setting),
                    "flags": ", ".join(_flags(setting)),
                }
                | _speed_up(first, setting, more)
            )
            first = setting if first is None else first
    return Table.of(
        rows,
        *WHERE,
        col("threads"),
        count("n"),
        interval("wall_s", "seconds", Kind.SECONDS, bounds="wall"),
        interval("sd", "SD"),
        interval("train_s", "training", Kind.SECONDS, bounds="train"),
        count("blocks"),
        interval("speed_up", "speed-up", Kind.RATIO, bounds="speed"),
        interval("efficiency", kind=Kind.RATIO),
        col("flags"),
        name="time",
        title="Time of a run",
        note=f"Seconds. {statistics.INTERVALS_NOTE} Speed-up is against the "
        "smallest thread count: the ratio of geometric means, on logarithms with Student's interval over "
        "the ratios within so many blocks, or with Welch's where blocks are 0 (not recorded); "
        "efficiency the speed-up over the factor of threads: 1 is all that more threads could give. "
        f"Oversubscribed sets had fewer cores than threads; a load by others from {CONTENDED_ABOVE} cores "
        "makes it contended; emulated CPUs have times of their own. All are shown, and excluded from "
        "comparisons.",
    )


def _speed_up(first: pd.DataFrame | None, here: pd.DataFrame, more: float) -> dict[str, Any]:
    """Against the first set, which is 1 by definition."""
    found = Ratio(value=1.0, low=None, high=None, p=None, blocks=0) if first is None else ratio(first, here)
    bounds = found.value, found.low, found.high
    names = ("speed_up", "speed_low", "speed_high"), ("efficiency", "efficiency_low", "efficiency_high")
    parts = [None if bound is None else bound / more for bound in bounds]
    cells = dict(zip(names[0], bounds, strict=True)) | dict(zip(names[1], parts, strict=True))
    return cells | {"blocks": found.blocks}


def _flags(runs: pd.DataFrame) -> list[str]:
    flags = ["emulated"] if runs.accelerator.isin(EMULATORS).any() else []
    for flag, marked in (
        ("oversubscribed", runs.oversubscribed),
        ("co-located", runs.neighbours > 0),
        ("contended", runs.contended != ""),
    ):
        if marked.all():
            flags.append(flag)
        elif marked.any():
            flags.append(f"{flag} ({marked.sum()} of {len(runs)} runs)")
    load = runs.load_by_others.mean()
    if load >= LOAD_WORTH_SAYING:
        flags.append(f"load by others {load:.1f} cores")
    return flags


# ---- the fastest thread count -----------------------------------------------------------------------


def fastest(study: StudyData) -> Table:
    """The thread count with the least mean wall time among those with comparable times, and
    whether its lead over each other one is decided (t tests on the logarithms of times, within blocks where
    they are recorded, Holm's correction over them)."""
    rows = [
        {"workload": workload, "variant": variant} | _fastest(runs)
        for workload, variant, runs in study.experiments()
    ]
    return Table.of(
        rows,
        *WHERE,
        col("fastest"),
        count("n"),
        interval("wall_s", "seconds", Kind.SECONDS, bounds="wall"),
        col("others", "compared with"),
        interval("others_s", "their seconds", Kind.SECONDS, bounds="others"),
        count("blocks"),
        col("p_holm", "p (Holm)", Kind.P),
        *cols("lead", "left_out"),
        name="fastest",
        title="The fastest thread count",
        note="Among the thread counts with comparable times. The lead "
        "is decided when the fastest beats every other one (t tests on logarithms, Holm-corrected p < "
        f"{ALPHA}): paired within so many blocks, or Welch's where blocks are 0 (not recorded). n is that of "
        "the fastest, then of those compared with it.",
    )


def _fastest(runs: pd.DataFrame) -> dict[str, Any]:
    sets = by_threads(runs)
    reasons = {name: excluded(s) for name, s in sets.items()}
    own = {name: s for name, s in sets.items() if not reasons[name]}
    left_out = [
        f"{', '.join(name for name in sets if reasons[name] == reason)}: {reason}"
        for reason in dict.fromkeys(filter(None, reasons.values()))
    ]
    row: dict[str, Any] = {"eligible": list(own), "left_out": "; ".join(left_out)}
    if len(own) < 2:
        only = f"only {next(iter(own))} has" if own else "no thread count has"
        only += " comparable times"
        reason = "one thread count only" if len(sets) == 1 else only
        empty: dict[str, Any] = dict.fromkeys(("fastest", "wall_s", "wall_low", "wall_high"))
        empty |= {name: [] for name in ("others", "others_s", "others_low", "others_high", "n")}
        empty |= {"blocks": [], "p_holm": []}
        return row | empty | {"decided": None, "lead": f"inconclusive: {reason}"}
    best = min(own, key=lambda name: float(own[name].wall_s.mean()))
    others = [name for name in own if name != best]
    ratios = [ratio(own[best], own[name]) for name in others]
    p_holm = statistics.holm([found.p for found in ratios])
    tested = all(p is not None for p in p_holm)
    lead, *means = (statistics.mean(own[name].wall_s.to_numpy()) for name in (best, *others))
    decided = tested and all(p is not None and p < ALPHA for p in p_holm)
    return row | {
        "fastest": best,
        **lead.cells("wall_s", "wall"),
        "others": others,
        "others_s": [mean.value for mean in means],
        "others_low": [mean.low for mean in means],
        "others_high": [mean.high for mean in means],
        "n": [len(own[name]) for name in (best, *others)],
        "blocks": [found.blocks for found in ratios],
        "p_holm": p_holm,
        "decided": decided if tested else None,
        "lead": ("decided" if decided else "not decided")
        if tested
        else "inconclusive: too few runs, or times that do not vary",
    }
