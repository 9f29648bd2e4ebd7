"""What each thread count costs, which is fastest, and what determinism costs. Sets that were emulated or
oversubscribed, or whose cores others kept busy, are shown, and excluded from comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from analysis.cost.blocks import ratio
from analysis.load.study import StudyData, by_threads
from analysis.provenance.checks import mixture
from analysis.provenance.overrides import own_threads
from analysis.results.model import ALPHA, WHERE, Kind, Table, col, count, interval
from analysis.stats import statistics
from guest.records.run import CONTENDED_ABOVE, EMULATORS

LOAD_WORTH_SAYING = 0.1  # cores kept busy by others, mean over a set's runs
# variant with the determinism switches or exact mode, and the one that differs from it in nothing else
DETERMINISTIC = {"algo": "default", "control": "fixed-seed", "exact": "fixed-seed"}
PLAIN = ("default", "fixed-seed")  # the variants that leave the implementation as it is
MACHINE = ("cpu_model", "caches", "framework_version")  # alike in conditions whose times are compared
COMPARED = ("speed_up", "behind", "overhead")  # with the smallest, the fastest, the one without determinism
SAID = {
    "speed_up": ("slower", "faster", "no speed-up found"),
    "overhead": ("determinism saves time", "determinism costs time", "no cost of determinism found"),
}
"""Of a ratio that is shown to be below 1, above 1, neither."""


def exclusion(*, emulated: bool, oversubscribed: bool, load_by_others: float) -> str:
    """Why times are excluded from comparisons; empty when they are not. The load is a mean over runs."""
    if emulated:
        return "emulated"
    if oversubscribed:
        return "oversubscribed"
    return "contended" if load_by_others >= CONTENDED_ABOVE else ""


def excluded(runs: pd.DataFrame) -> str:
    """`exclusion` of a condition."""
    return exclusion(
        emulated=bool(runs.accelerator.isin(EMULATORS).any()),
        oversubscribed=bool(runs.oversubscribed.any()),
        load_by_others=float(runs.load_by_others.mean()),
    )


def exclusions(sets: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """`excluded` of each thread setting; of all of them, where those left differ in more than threads, or the
    program sets its own count."""
    reasons = {threads: excluded(here) for threads, here in sets.items()}
    own = [here for threads, here in sets.items() if not reasons[threads]]
    left = pd.concat(own) if own else None
    other = "" if left is None else mixture(left) or own_threads(left)
    return {threads: reason or other for threads, reason in reasons.items()}


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


# ---- the table -------------------------------------------------------------------------------------------


def times(study: StudyData) -> Table:
    """Wall time of each condition (from the start of the run to the end of testing, data loading included,
    import of the framework excluded), its speed-up against the smallest thread count, which thread count is
    fastest, and what determinism costs: time with its switches, or exact mode, over time without, seeds
    treated alike (Zhuang et al., MLSys 2022, section 5)."""
    tests: dict[tuple[str, ...], float | None] = {}  # of two conditions, however often they are compared
    rows = [row for experiment in study.experiments() for row in _rows(study, *experiment, tests)]
    corrected = dict(zip(tests, statistics.holm(list(tests.values())), strict=True))
    for row in rows:
        row |= {f"{name}_p_holm": corrected.get(row.pop(f"{name}_pair")) for name in COMPARED}
    for lead in leads(rows):
        for row in lead["rows"]:
            row["verdict"] = _verdict(row, lead)
    return Table.of(
        rows,
        *WHERE,
        col("threads"),
        count("n"),
        interval("wall_s", "seconds", Kind.SECONDS, bounds="wall"),
        interval("speed_up", "speed-up", Kind.RATIO),
        col("verdict"),
        interval("overhead", "determinism costs", Kind.RATIO),
        col("flags"),
        name="time",
        title="Time of a run",
        note=f"{statistics.INTERVALS_NOTE} Speed-up is against the smallest thread count; determinism "
        "costs the time with its switches, or with exact mode, over that without. Both are ratios of "
        "geometric means, on logarithms with Student's interval over the ratios within blocks, or with "
        f"Welch's where blocks are not recorded. Verdicts are by these t tests, p < {ALPHA} after Holm's "
        "correction over all tests of the table: each thread count with the smallest and with the fastest, "
        "and with determinism and without. Intervals are not corrected. The fastest has the largest "
        "speed-up; its lead is decided when it beats every other one. Oversubscribed conditions had fewer "
        f"cores than threads; a load by others from {CONTENDED_ABOVE} cores makes them contended; emulated "
        "CPUs have times of their own. "
        "All are shown, and excluded from comparisons, as are the thread counts of a variant that differ in "
        "more than threads, or whose program sets its own.",
    )


def _rows(
    study: StudyData,
    workload: str,
    variant: str,
    runs: pd.DataFrame,
    tests: dict[tuple[str, ...], float | None],
) -> Iterator[dict[str, Any]]:
    sets = by_threads(runs)
    reasons = exclusions(sets)
    own = [here for threads, here in sets.items() if not reasons[threads]]
    tests = tests if own else {}  # where nothing is comparable, nothing is tested
    first = next(iter(sets.values()))
    best = max(own, key=lambda here: _speed(ratio(first, here).estimate.value), default=None)
    plain = by_threads(study.runs_of(workload, variant=DETERMINISTIC.get(variant, "")))
    for threads, here in sets.items():
        mean, train = (
            statistics.mean(here[column].to_numpy(), within=statistics.NOT_NEGATIVE)
            for column in ("wall_s", "train_s")
        )
        row = {
            "workload": workload,
            "variant": variant,
            "threads": threads,
            "set_id": here.set_id.iloc[0],
            "n": mean.n,
            **mean.cells("wall_s", "wall"),
            **statistics.sd(here.wall_s.to_numpy()).cells("sd"),
            **train.cells("train_s", "train"),
            "cpu_s": here.cpu_s.mean(),
            "oversubscribed": bool(here.oversubscribed.any()),
            "excluded": reasons[threads],
            "flags": ", ".join(_flags(here)),
        }
        pairs = (first, here), (here, best), (here, plain.get(threads))
        for name, pair in zip(COMPARED, pairs, strict=True):
            row |= _compared(name, *pair, tests)
        if here is first:
            row["speed_up"] = 1.0
        more = int(here.intra_op.iloc[0]) / int(first.intra_op.iloc[0])
        for end in ("", "_low", "_high"):
            speed = row[f"speed_up{end}"]
            row[f"efficiency{end}"] = None if speed is None else speed / more
        yield row


def _compared(
    name: str, above: pd.DataFrame, below: pd.DataFrame | None, tests: dict[tuple[str, ...], float | None]
) -> dict[str, Any]:
    """The ratio of two conditions, where there are two; its p is noted in `tests` where times are fit."""
    row: dict[str, Any] = {f"{name}{end}": None for end in ("", "_low", "_high", "_pair")}
    if below is None or above is below:
        return row | {f"{name}_blocks": 0}
    found = ratio(above, below, 1 - ALPHA)
    row |= found.estimate.cells(name)
    alike = pd.concat([above, below])[list(MACHINE)].nunique().max() == 1
    if alike and not (excluded(above) or excluded(below)):
        row[f"{name}_pair"] = pair = tuple(sorted((above.set_id.iloc[0], below.set_id.iloc[0])))
        tests[pair] = found.p
    return row | {f"{name}_blocks": found.blocks}


def _speed(speed_up: float | None) -> float:
    """By which the fastest is chosen: what is tested, not the mean, that one slow run moves."""
    return 0.0 if speed_up is None or pd.isna(speed_up) else speed_up


def leads(rows: Sequence[dict[Any, Any]]) -> list[dict[str, Any]]:
    """Of the rows of the table, for each workload and variant: the fastest thread count by its speed-up,
    among the `eligible`, whose times are comparable (None below two), with its mean and n, and whether its
    lead is decided (None: not tested); `left_out` names the others."""
    found = []
    for (workload, variant), group in groupby(rows, key=lambda row: (row["workload"], row["variant"])):
        mine = list(group)
        own = [row for row in mine if not row["excluded"]]
        reasons = dict.fromkeys(row["excluded"] for row in mine if row["excluded"])
        left_out = [
            f"{', '.join(row['threads'] for row in mine if row['excluded'] == reason)}: {reason}"
            for reason in reasons
        ]
        lead: dict[str, Any] = {"workload": workload, "variant": variant, "rows": mine}
        lead |= {"eligible": [row["threads"] for row in own], "left_out": "; ".join(left_out)}
        lead |= {"fastest": None, "wall_s": None, "n": None, "decided": None}
        if len(own) < 2:
            only = f"only {own[0]['threads']} has" if own else "no thread count has"
            reason = "one thread count only" if len(mine) == 1 else f"{only} comparable times"
            found.append(lead | {"lead": f"inconclusive: {reason}"})
            continue
        best = max(own, key=lambda row: _speed(row["speed_up"]))
        p = [(row["behind_p_holm"], row["behind"]) for row in own if row is not best]
        decided = None if any(pd.isna(q) for q, _ in p) else all(q < ALPHA and by > 1 for q, by in p)
        text = "decided" if decided else "not decided"
        text = "inconclusive: too few runs, or times that do not vary" if decided is None else text
        lead |= {"fastest": best["threads"], "wall_s": best["wall_s"], "n": best["n"], "decided": decided}
        found.append(lead | {"lead": text})
    return found


def _verdict(row: dict[str, Any], lead: dict[str, Any]) -> str:
    """What is decided of a condition."""
    if row["excluded"]:
        return f"not compared: {row['excluded']}"
    said = []
    for name, (below, above, neither) in SAID.items():
        if not pd.isna(p := row[f"{name}_p_holm"]):
            said.append(neither if p >= ALPHA else below if row[name] < 1 else above)
    if row["threads"] == lead["fastest"]:
        said.append(f"fastest, lead {lead['lead'].partition(':')[0]}")
    return "; ".join(said)
