"""What each thread count costs, and which is fastest. Sets that were emulated or oversubscribed, or whose
cores others kept busy, are shown, and left out of every conclusion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.load import Study, by_threads
from analysis.results import ALPHA, WHERE, Column, Kind, Table
from guest.records import DISTURBED_ABOVE, EMULATORS

LOAD_WORTH_SAYING = 0.1  # cores kept busy by others, mean over a set's runs


def unfit(runs: pd.DataFrame) -> str:
    """Why the times of a set support no conclusion; empty when they do."""
    if runs.accelerator.isin(EMULATORS).any():
        return "emulated"
    if runs.oversubscribed.any():
        return "oversubscribed"
    if runs.load_by_others.mean() >= DISTURBED_ABOVE:
        return "disturbed by others"
    return ""


def wall_time(study: Study) -> Table:
    """Wall time of each set (from the start of the run to the end of testing, data loading included,
    import of the framework excluded), and its speed-up against the smallest thread count."""
    rows = []
    for workload, variant, runs in study.experiments():
        first: np.ndarray | None = None
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
                    "wall_s": mean.value,
                    "wall_low": mean.low,
                    "wall_high": mean.high,
                    "sd": sd.value,
                    "sd_low": sd.low,
                    "sd_high": sd.high,
                    "train_s": training.value,
                    "train_low": training.low,
                    "train_high": training.high,
                    "cpu_s": setting.cpu_s.mean(),
                    "oversubscribed": bool(setting.oversubscribed.any()),
                    "unfit": unfit(setting),
                    "flags": ", ".join(_flags(setting)),
                }
                | _speed_up(first, setting.wall_s.to_numpy(), more)
            )
            first = setting.wall_s.to_numpy() if first is None else first
    return Table(
        name="time",
        title="Time of a run",
        note="Seconds with 95 % intervals (mean: Student's t, SD: chi-square). Speed-up is against the "
        "smallest thread count, the ratio of geometric means with Welch's interval on logarithms; "
        "efficiency the speed-up over the factor of threads: 1 is all that more "
        "threads could give. Oversubscribed sets had fewer cores than threads; a load by others from "
        f"{DISTURBED_ABOVE} cores disturbs a set; emulated CPUs have times of their own. All are shown, and "
        "no conclusion rests on them.",
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="threads", source="threads"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="seconds", source="wall_s", kind=Kind.SECONDS, low="wall_low", high="wall_high"),
            Column(header="SD", source="sd", kind=Kind.SPREAD, low="sd_low", high="sd_high"),
            Column(
                header="training", source="train_s", kind=Kind.SECONDS, low="train_low", high="train_high"
            ),
            Column(header="speed-up", source="speed_up", kind=Kind.RATIO, low="speed_low", high="speed_high"),
            Column(
                header="efficiency",
                source="efficiency",
                kind=Kind.RATIO,
                low="efficiency_low",
                high="efficiency_high",
            ),
            Column(header="marks", source="flags"),
        ),
    )


def _speed_up(first: np.ndarray | None, here: np.ndarray, more: float) -> dict[str, Any]:
    """Against the first set, which is 1 by definition."""
    bounds = (1.0, None, None) if first is None else statistics.ratio(first, here)
    names = ("speed_up", "speed_low", "speed_high"), ("efficiency", "efficiency_low", "efficiency_high")
    parts = [None if bound is None else bound / more for bound in bounds]
    return dict(zip(names[0], bounds, strict=True)) | dict(zip(names[1], parts, strict=True))


def _flags(runs: pd.DataFrame) -> list[str]:
    flags = ["emulated"] if runs.accelerator.isin(EMULATORS).any() else []
    for flag, marked in (
        ("oversubscribed", runs.oversubscribed),
        ("beside other guests", runs.neighbours > 0),
        ("disturbed", runs.disturbed != ""),
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


def fastest(study: Study) -> Table:
    """The thread count with the least mean wall time among those whose times are fit to conclude from, and
    whether its lead over each other one is decided (Welch's t test, Holm's correction over them)."""
    rows = [
        {"workload": workload, "variant": variant} | _fastest(runs)
        for workload, variant, runs in study.experiments()
    ]
    return Table(
        name="fastest",
        title="The fastest thread count",
        note="Among the thread counts whose times are fit to conclude from; the others are left out. The "
        "lead "
        f"is decided when the fastest beats every other one (Welch's t, Holm-corrected p < {ALPHA}). n is "
        "that "
        "of the fastest, then of those compared with it.",
        frame=pd.DataFrame(rows),
        columns=(
            *WHERE,
            Column(header="fastest", source="fastest"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="seconds", source="wall_s", kind=Kind.SECONDS, low="wall_low", high="wall_high"),
            Column(header="compared with", source="others"),
            Column(
                header="their seconds",
                source="others_s",
                kind=Kind.SECONDS,
                low="others_low",
                high="others_high",
            ),
            Column(header="p (Holm)", source="p_holm", kind=Kind.P),
            Column(header="lead", source="lead"),
            Column(header="left out", source="left_out"),
        ),
    )


def _fastest(runs: pd.DataFrame) -> dict[str, Any]:
    sets = by_threads(runs)
    reasons = {name: unfit(s) for name, s in sets.items()}
    own = {name: s.wall_s.to_numpy() for name, s in sets.items() if not reasons[name]}
    left_out = [
        f"{', '.join(name for name in sets if reasons[name] == reason)}: {reason}"
        for reason in dict.fromkeys(filter(None, reasons.values()))
    ]
    row: dict[str, Any] = {"eligible": list(own), "left_out": "; ".join(left_out)}
    if len(own) < 2:
        only = f"only {next(iter(own))} has" if own else "no thread count has"
        only += " times fit to conclude from"
        reason = "one thread count only" if len(sets) == 1 else only
        empty: dict[str, Any] = {
            "fastest": None,
            "wall_s": None,
            "wall_low": None,
            "wall_high": None,
            "others": [],
            "others_s": [],
            "others_low": [],
            "others_high": [],
            "n": [],
            "p_holm": [],
        }
        return row | empty | {"decided": None, "lead": f"cannot be told: {reason}"}
    best = min(own, key=lambda name: float(np.mean(own[name])))
    others = [name for name in own if name != best]
    p_holm = statistics.holm([statistics.welch(own[best], own[name]) for name in others])
    told = all(p is not None for p in p_holm)
    lead, *means = (statistics.mean(own[name]) for name in (best, *others))
    decided = told and all(p is not None and p < ALPHA for p in p_holm)
    return row | {
        "fastest": best,
        "wall_s": lead.value,
        "wall_low": lead.low,
        "wall_high": lead.high,
        "others": others,
        "others_s": [mean.value for mean in means],
        "others_low": [mean.low for mean in means],
        "others_high": [mean.high for mean in means],
        "n": [len(own[name]) for name in (best, *others)],
        "p_holm": p_holm,
        "decided": decided if told else None,
        "lead": ("decided" if decided else "not decided")
        if told
        else "cannot be told: too few runs, or times that do not vary",
    }
