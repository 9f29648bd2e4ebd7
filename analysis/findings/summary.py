"""The result in plain words: a headline, and which thread count to use.
Nothing is decided here: all of it is read from the tables and the findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.cost.times import PLAIN, leads
from analysis.findings.evidence import as_tested, names_of, shortened, size_range, tally
from analysis.load.study import by_seeds, shared_seeds, thread_settings
from analysis.provenance.checks import missing_runs, mixture
from analysis.provenance.overrides import own_threads
from analysis.results.cells import missing, number, spread
from analysis.results.model import ACROSS, Analysis, Kind, Verdict
from analysis.sameness.verdicts import DIFFER, IDENTICAL, LEVELS, NOT_RECORDED, OWN
from analysis.stats.statistics import finite
from guest.machine.tiers import tier_text
from guest.records.printable import counted, series
from guest.records.run import Tier, Variant

REASONS = {
    "oversubscribed": "more threads than cores",
    "contended": "other programs used the cores",
    "emulated": "emulated CPUs have times of their own",
}
MORE = "the runs differ in more than threads: inconclusive"
FEASIBLE = 200  # runs of each condition; more are no next step


# ---- the headline --------------------------------------------------------------------------------


def headline(analysis: Analysis) -> str:
    """What came out, in a sentence on equal seeds, one on exact mode and one on free seeds."""
    return " ".join(filter(None, (_equal_seeds(analysis), exact(analysis), _free_seeds(analysis))))


def compared(analysis: Analysis, workload: str) -> tuple[str, dict[str, dict[Any, Any]]]:
    """The variant by which a workload's models are compared bit for bit, "" without any; and its rows of the
    table of verdicts by scope, of the models that findings are decided by."""
    rows = analysis.tables["verdicts"].rows_of(workload)
    variant = next((each.value for each in Variant if each.seeds_fixed and each in set(rows.variant)), "")
    rows = rows[rows.variant == variant]
    view = analysis.study.primary(workload)[1].value
    rows = rows[rows["view"] == view] if view in set(rows["view"]) else rows.drop_duplicates("scope")
    found = {row["scope"]: row for row in rows.to_dict("records")}
    runs = analysis.study.runs_of(workload, variant=variant)
    for scope, row in found.items():
        if scope == ACROSS and own_threads(runs):
            row |= {level: OWN for level in LEVELS if row[level] == DIFFER}
        elif mixture(runs if scope == ACROSS else runs[runs.threads == scope]):
            row |= {level: MORE for level in LEVELS if row[level] == DIFFER}
    return variant, found


def by_workload(analysis: Analysis) -> dict[str, dict[str, dict[Any, Any]]]:
    """The rows of the workloads whose models are compared bit for bit, by scope."""
    each = {workload: compared(analysis, workload) for workload in analysis.study.metrics}
    return {workload: rows for workload, (variant, rows) in each.items() if variant}


def on_models(row: Mapping[Any, Any]) -> str:
    """The verdict on weights; where they are not recorded, models that predict differently differ."""
    unknown = row["weights"] == NOT_RECORDED and row["predictions"] == DIFFER
    return DIFFER if unknown else str(row["weights"])


def differs(analysis: Analysis, workload: str) -> bool:
    """Whether equal seeds gave different models on different thread counts."""
    _, rows = compared(analysis, workload)
    return bool(rows) and on_models(rows[ACROSS]) == DIFFER


def _equal_seeds(analysis: Analysis) -> str:
    outcomes: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for workload, rows in by_workload(analysis).items():
        outcomes.setdefault((_levels(rows), compared(analysis, workload)[0]), []).append(workload)
    if not outcomes:
        return "No run has a fixed seed, so whether a seed gives one model is not asked."
    each = {w: _runs(analysis, w) for workloads in outcomes.values() for w in workloads}
    seeds = max(runs.seeds_used.nunique() for runs in each.values())
    settings = thread_settings(pd.concat(each.values()))[1]
    head = "One seed" if seeds == 1 else f"{seeds} seeds"
    head += f", {settings}: "
    said: dict[tuple[str, str], list[str]] = {}
    for (levels, variant), workloads in outcomes.items():
        said.setdefault((_outcome(analysis, levels, workloads), variant), []).extend(workloads)
    alone = len(analysis.study.metrics) == 1
    parts = []
    for (text, variant), workloads in said.items():
        of = ([] if alone else [names_of(workloads)]) + _named_variant([variant])
        parts.append(text + (f" ({', '.join(of)})" if of else ""))
    return head + "; ".join(parts) + "."


def _named_variant(variants: list[str]) -> list[str]:
    """The variants other than `fixed-seed`, which is meant where none is named."""
    other = sorted(set(variants) - {Variant.FIXED_SEED.value, ""})
    return [f"variant {series(other)}"] if other else []


def _runs(analysis: Analysis, workload: str) -> pd.DataFrame:
    """The runs whose models are compared: those of seeds on several thread counts, where there are some."""
    runs = analysis.study.runs_of(workload, variant=compared(analysis, workload)[0])
    return pd.concat(shared_seeds(runs) or [runs])


def exact(analysis: Analysis) -> str:
    """Whether the variant `exact` made models equal, on all thread counts and all CPU models that it ran on;
    a CPU model is the one asked for, where the study compares several, else the one that a run saw."""
    fixed = analysis.study.runs[analysis.study.runs.seeds_fixed]
    seeds = fixed.groupby("workload_name").seeds_used.nunique()
    outcomes: dict[str, list[str]] = {}
    for workload, mine in fixed[fixed.variant == "exact"].groupby("workload_name", sort=False):
        outcomes.setdefault(_exact_outcome(mine, seeds[workload]), []).append(str(workload))
    alone = analysis.study.runs.workload_name.nunique() == 1
    parts = [said + ("" if alone else f" ({names_of(names)})") for said, names in outcomes.items()]
    return f"The variant exact {'; '.join(parts)}." if parts else ""


def _exact_outcome(runs: pd.DataFrame, seeds: int) -> str:
    """`seeds` are those of all variants."""
    weights, n = runs.last_weights_sha256, counted(len(runs), "run")
    if weights.isna().any():
        return f"is not compared, as weights are not recorded ({n})"
    if own := own_threads(runs):
        return f"is not compared: {own} ({n})"
    parts = by_seeds(runs)
    if any(part.last_weights_sha256.nunique() > 1 for part in parts):
        if other := mixture(runs, machines=False):
            return f"is not compared, as its runs differ in more than threads: {other} ({n})"
        return f"did not make models equal: {weights.nunique()} from {counted(len(parts), 'seed')} ({n})"
    if all(len(part) == 1 for part in parts):
        return f"has one run of each seed, so that nothing is compared ({n})"
    machines = runs.cpu_model_asked.where(runs.cpu_model_asked != "", runs.cpu_model)
    crossed = any(part.threads.nunique() > 1 for part in parts)
    settings = thread_settings(runs)[1] if crossed else "1 thread count"
    said = f"made models equal, bit for bit, on {settings}"
    if (compared := sum(len(part) > 1 for part in parts)) < seeds:
        said += f", of {compared} of {seeds} seeds"
    if any(machines[part.index].nunique() > 1 for part in parts):
        said += f", and identical across CPU models ({series(sorted(machines.unique()))})"
    return f"{said} ({n})"


def _levels(rows: Mapping[str, dict[Any, Any]]) -> tuple[str, ...]:
    """The verdicts across thread counts on models, predictions and metric, and on the models within: on all
    thread counts, or on those that differ."""
    within = {on_models(row) for scope, row in rows.items() if scope != ACROSS}
    inside = IDENTICAL if within == {IDENTICAL} else "not compared"
    inside = next((verdict for verdict in (DIFFER, NOT_RECORDED) if verdict in within), inside)
    across = rows[ACROSS]
    return on_models(across), across["predictions"], across["metric"], inside


def _outcome(analysis: Analysis, levels: tuple[str, ...], workloads: list[str]) -> str:
    """Of workloads with the same verdicts."""
    weights, predictions, metric, within = levels
    across = [_runs(analysis, workload) for workload in workloads]
    one_seed = all(runs.seeds_used.nunique() == 1 for runs in across)
    if within == DIFFER:
        return "different models even where seed and thread count are equal"
    if weights == IDENTICAL:
        one = "one and the same model" if one_seed else "each seed gives one and the same model"
        return f"{one}, bit for bit in all {sum(map(len, across))} runs"
    view, name = analysis.study.primary(workloads[0])[1], _metric(analysis)
    gaps = [gap for each in workloads if math.isfinite(gap := _largest_gap(analysis, each))]
    gap = max(gaps, default=math.nan)
    apart = f"{name} differs by up to {spread(gap)} at one seed"
    if gap == 0:
        every = [_primary_values(analysis, workload) for workload in workloads]
        known, n = (sum(map(len, each)) for each in (map(finite, every), every))
        one = f"{name} is equal, another metric differs"
        apart = one if known == n else f"{name} is finite in {known} of {n} runs only, and equal in these"
    if weights != DIFFER:
        why = weights.removesuffix(": inconclusive")
        why = "weights are not recorded" if weights == NOT_RECORDED else why
        said = f"whether models are the same is inconclusive ({why})"
        return f"{said}; {apart}" if gaps and metric == DIFFER else said
    models = "different models" if one_seed else "equal seeds give different models"
    hashes = across[0][view.sha256("weights")]
    if one_seed and len(across) == 1 and hashes.notna().all():
        models = f"{hashes.nunique()} {models}"
    models += {IDENTICAL: " that predict the same", DIFFER: " that predict differently"}.get(predictions, "")
    if not gaps:
        return f"{models}; {name} is finite in no run, so nothing is hidden behind it"
    return f"{models}, hidden behind equal {name}" if metric == IDENTICAL else f"{models}; {apart}"


def _primary_values(analysis: Analysis, workload: str) -> np.ndarray:
    metric, view = analysis.study.primary(workload)
    return _runs(analysis, workload)[view.metric(metric)].to_numpy(float)


def _largest_gap(analysis: Analysis, workload: str) -> float:
    """Between runs of one seed, in the primary metric; NaN where it is finite in none."""
    metric, view = analysis.study.primary(workload)
    each = [part[view.metric(metric)] for part in by_seeds(_runs(analysis, workload))]
    known = [values for mine in each if len(values := finite(mine.to_numpy()))]
    return max((float(np.ptp(values)) for values in known), default=math.nan)


def _free_seeds(analysis: Analysis) -> str:
    """By F1 alone: runs that merely look alike are not called equal."""
    found = {f.workload: f for f in analysis.findings if f.id == "F1"}
    each = [f for f in found.values() if f.workload]
    measured = [f for f in each if "metric" in f.numbers]
    if not measured:
        return ""
    metric = series(list(dict.fromkeys(f.numbers["metric"] for f in measured)))
    margins = series(sorted({f"{f.numbers['margin']:g}" for f in measured if f.numbers["margin"]}))
    one = len({f.numbers["metric"] for f in measured}) == 1
    verb = "is" if one else "are"
    said = {
        Verdict.NOT_SUPPORTED: f"{'differs' if one else 'differ'} between thread counts",
        Verdict.SUPPORTED: f"{verb} equivalent within {margins} on all thread counts",
        Verdict.INCONCLUSIVE: f"{verb} inconclusive",
    }
    verdict = found[""].verdict
    if verdict is Verdict.INCONCLUSIVE:
        n = size_range([as_tested(analysis, f) for f in measured])
        failed = sum(sum(f.numbers["failed"] + f.numbers["failed_attempts"]) for f in measured)
        why = f"n = {n}" + (f"; {counted(failed, 'training')} failed" if failed else "")
        depends = "depends" if one else "depend"
        return f"With free seeds, whether {metric} {depends} on the thread count is inconclusive ({why})."
    named = {v: [f.workload for f in each if f.verdict is v] for v in said}
    parts = [
        text + (f" ({names_of(named[v])})" if len(each) > 1 else "") for v, text in said.items() if named[v]
    ]
    return f"With free seeds, {metric} {'; '.join(parts)}."


# ---- which thread count? -------------------------------------------------------------------------


def which_threads(analysis: Analysis) -> list[tuple[str, str]]:
    """Five questions and their answers."""
    return [
        ("same model?", _same_model(analysis)),
        (f"same {_metric(analysis)}?", _same_quality(analysis)),
        ("fastest?", _fastest(analysis)),
        ("do not trust", _untrusted(analysis)),
        ("advice", _so(analysis)),
    ]


def _same_model(analysis: Analysis) -> str:
    levels = {workload: _levels(rows) for workload, rows in by_workload(analysis).items()}
    other = [w for w, (weights, *_) in levels.items() if weights == DIFFER]
    if not levels:
        return "not asked: no run has a fixed seed"
    if not other:
        weights = {weights for weights, *_ in levels.values()}
        of = _named_variant([compared(analysis, workload)[0] for workload in levels])
        yes = "yes, bit for bit" + "".join(f" ({variant})" for variant in of)
        return yes if weights == {IDENTICAL} else "; ".join(sorted(weights - {IDENTICAL}))
    some = "no" if len(other) == len(levels) else f"not for {names_of(other)}"
    inside = {levels[w][-1] for w in other}
    if DIFFER in inside:
        some += ", not even at one count"
    elif NOT_RECORDED not in inside:
        some += ", only at one count" if inside == {IDENTICAL} else "; not repeated at every count"
    cures = hardened(analysis)
    if all(cures.get(w) for w in other):
        some += f"; yes by tier {series(list(dict.fromkeys(cures[w] for w in other)))}"
    return some


def hardened(analysis: Analysis) -> dict[str, str]:
    """The tier that is proved for each workload that was hardened, "" where none is; else that of exact mode
    where the variant `exact` gave one model on all thread counts that the workload ran on. With the seeds
    that it is shown for, where the study has more."""
    runs, rows = analysis.study.runs, analysis.tables["verdicts"].frame
    rows = rows[(rows.variant == "exact") & (rows.scope == ACROSS)]
    shown: dict[str, tuple[str, int]] = {}  # the tier, and the seeds it is shown for
    for workload, mine in runs.groupby("workload"):
        exact, weights = mine[mine.variant == "exact"], set(rows.weights[rows.workload == workload])
        if weights == {IDENTICAL} and set(mine.threads) == set(exact.threads):
            shown[str(workload)] = tier_text(Tier.EXACT), len(shared_seeds(exact))
    if "hardening" in analysis.tables:
        frame = analysis.tables["hardening"].frame
        tiers = dict.fromkeys(frame.workload, "") | dict(
            frame.loc[frame.cheapest != "", ["workload", "tier"]].itertuples(index=False)
        )
        names = runs.drop_duplicates("workload")[["workload", "workload_name"]]
        for workload, name in names.itertuples(index=False):
            if name in tiers and (workload not in shown or shown[workload][0] != tiers[name]):
                shown[workload] = tiers[name], 1  # `harden` trains with one seed
    seeds = runs[runs.seeds_fixed].groupby("workload").seeds_used.nunique()
    return {
        w: f"{tier} (shown for {n} of {seeds[w]} seeds)" if tier and n < seeds.get(w, 0) else tier
        for w, (tier, n) in shown.items()
    }


def _metric(analysis: Analysis) -> str:
    names = {analysis.study.primary(workload)[0] for workload in analysis.study.metrics}
    return next(iter(names)) if len(names) == 1 else "quality"


def _same_quality(analysis: Analysis) -> str:
    found = [f for f in analysis.findings if f.id == "F1"]
    finding = next(f for f in found if not f.workload)
    if finding.verdict is Verdict.SUPPORTED:
        return "yes, within " + series(
            sorted({f"{f.numbers['margin']:g}" for f in found if "margin" in f.numbers})
        )
    if finding.verdict is Verdict.INCONCLUSIVE:
        needed = runs_needed(analysis)
        if needed is None:
            open_ = next(f for f in found if f.workload and f.verdict is Verdict.INCONCLUSIVE)
            if open_.numbers.get("runs_needed"):
                return (
                    f"inconclusive: a difference near the margin takes more than {open_.numbers['runs']} runs"
                )
            return "inconclusive: " + shortened(open_.why, 60)
        if needed > FEASIBLE:
            return f"inconclusive; needs {needed:,} runs of each condition, out of reach"
        return f"inconclusive; a difference near the margin takes {counted(needed, 'run')} of each condition"
    refuted = [f.workload for f in found if f.workload and f.verdict is Verdict.NOT_SUPPORTED]
    return "no" if len(refuted) == len(analysis.study.metrics) else f"not for {names_of(refuted)} (F1)"


def runs_needed(analysis: Analysis) -> int | None:
    """Runs of each condition that show a difference as large as the margin, where F1 is inconclusive; None
    where it is decided, where this cannot be estimated, and where there are as many."""
    wanted = [
        (f.numbers.get("runs_needed"), f.numbers.get("runs")) for f in analysis.findings
        if f.id == "F1" and f.workload and f.verdict is Verdict.INCONCLUSIVE
    ]  # fmt: skip
    return max((n for n, done in wanted if n is not None and n > done), default=None)


def _fastest(analysis: Analysis) -> str:
    """By workload, of the variant that tells most, among those that F5 is decided by; others are named."""
    rows: list[dict[str, Any]] = []
    for workload in analysis.study.metrics:
        mine = leads(analysis.tables["time"].rows_of(workload).to_dict("records"))
        mine = [row for row in mine if row["variant"] in PLAIN] or mine
        rows += sorted(mine, key=lambda row: (missing(row["fastest"]), row["decided"] is not True))[:1]
    timed = [row for row in rows if not missing(row["fastest"])]
    if not timed:
        return rows[0]["lead"] if rows else "not measured"
    decided = [row for row in timed if row["decided"] is True]
    if len(rows) == 1:
        text = f"{timed[0]['fastest']} ({number(Kind.SECONDS, timed[0]['wall_s'])} s, n = {timed[0]['n']})"
    else:
        text = tally(Counter(row["fastest"] for row in timed))
    if other := {row["variant"] for row in timed} - set(PLAIN):
        text += f" with {series(sorted(other))}"
    lead = f"decided in {len(decided)}" if decided else "not decided"
    if len(decided) == len(timed):
        lead = "decided"
    return f"{text}; its lead is {lead}" if len(rows) == 1 else f"{text}; leads {lead}"


def _untrusted(analysis: Analysis) -> str:
    """Thread counts whose times are excluded, with why, and in which variants where it is not in all."""
    found = leads(analysis.tables["time"].frame.to_dict("records"))
    variants: dict[str, set[str]] = {}
    for lead in found:
        for piece in filter(None, lead["left_out"].split("; ")):
            variants.setdefault(piece, set()).add(lead["variant"])
    told = []
    for piece, some in sorted(variants.items()):
        threads, _, why = piece.partition(": ")
        where = "" if some == {lead["variant"] for lead in found} else f" with {series(sorted(some))}"
        told.append(f"{threads}{where}: {why}" + (f" ({REASONS[why]})" if why in REASONS else ""))
    return "times of " + "; ".join(told) if told else "none: no time is excluded"


def _so(analysis: Analysis) -> str:
    each = {workload: _levels(rows) for workload, rows in by_workload(analysis).items()}
    other = [workload for workload, (weights, *_) in each.items() if weights == DIFFER]
    levels, cures = list(each.values()), hardened(analysis)
    if other and all(cures.get(workload) for workload in other):
        tiers = series(list(dict.fromkeys(cures[workload] for workload in other)))
        return f"use tier {tiers}, or keep one count in all runs; state it with the CPU model"
    if any(inside == DIFFER for *_, inside in levels):
        return "equal settings give several models: find out why first (F2)"
    if other:
        return "keep one count in all runs; state it with the CPU model"
    if any(weights != IDENTICAL for weights, *_ in levels):
        if any(OWN in each for each in levels):
            return "not known: let the program take the study's thread count, then repeat the study"
        if any(MORE in each for each in levels):
            return "not known: run all of a comparison on one machine, with one version"
        if any(weights == NOT_RECORDED for weights, *_ in levels):
            return "not known: weights are not recorded"
        return "not known: " + (missing_runs(analysis.study) or "add thread counts or repetitions")
    by_time = "choose by time" + (", if the missing runs agree too" if missing_runs(analysis.study) else "")
    if of := _named_variant([compared(analysis, w)[0] for w in by_workload(analysis)]):
        return f"in the {of[0]} {by_time}; state both with the CPU model"
    return f"{by_time}; state the count with the CPU model"
