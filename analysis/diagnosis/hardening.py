"""What `vbstudy harden` measured: which tier is proved to give equal models on all thread counts, and what
each costs (the overhead of determinism of Zhuang et al., MLSys 2022, section 5, tier by tier)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.cost.times import exclusion
from analysis.diagnosis.traces import require_runs_of
from analysis.load.runs import Problem, read_stored
from analysis.load.study import StudyData
from analysis.results.model import ALPHA, Kind, Table, col, cols, count, counts, interval
from analysis.stats.paired import ratio
from analysis.stats.statistics import RATIOS_FROM, Estimate
from guest.machine.tiers import lines, tier_text
from guest.records.harden import Cost, Hardening, Measurement, Proof, TierResult, decode
from guest.records.printable import series
from guest.records.run import Tier

FOLDER = "harden"


# ---- the verdicts --------------------------------------------------------------------------------


def judge(hardening: Hardening) -> Hardening:
    """The hardening with a result for each of its tiers, and the cheapest tier that is proved: the one
    with the lowest mean cost, or the lowest estimate where times are excluded from comparisons."""
    results = tuple(_judge(hardening, tier) for tier in hardening.tiers)
    proved = [result for result in results if result.proof is Proof.PROVED]
    proved.sort(key=lambda result: math.inf if result.estimate is None else result.estimate)
    cheapest = proved[0].tier if proved else Tier.NONE
    return dataclasses.replace(hardening, results=results, cheapest=cheapest)


def _judge(hardening: Hardening, tier: Tier) -> TierResult:
    mine = [each for each in hardening.measurements if each.tier is tier and _asked(hardening, each)]
    done = [each for each in mine if not each.error]
    costs = tuple(_cost(hardening, tier, cpus) for cpus in hardening.cpus) if done else ()
    fit = [cost.cpus for cost in costs if cost.ratio is not None and not cost.excluded]
    # One CPU count would not do for all: on one CPU, one thread costs nothing.
    whole = fit if len(fit) == len(hardening.cpus) else []
    mean_cost = _mean_cost(hardening, tier, whole)
    proof, why = _proof(hardening, tier, mine)
    return TierResult(
        tier=tier,
        proof=proof,
        why=why,
        n=len(done),
        models=len({_model(each) for each in done}),
        costs=costs,
        mean_cost=mean_cost.value,
        mean_low=mean_cost.low,
        mean_high=mean_cost.high,
    )


def _asked(hardening: Hardening, each: Measurement) -> bool:
    return each.cpus in hardening.cpus and each.repetition <= hardening.repetitions


def _model(each: Measurement) -> tuple[Any, ...]:
    return each.weights, each.logits, tuple(sorted(each.step_hashes.items()))


def _proof(hardening: Hardening, tier: Tier, mine: Sequence[Measurement]) -> tuple[Proof, str]:
    if tier.value in hardening.not_applicable:
        return Proof.NOT_APPLICABLE, hardening.not_applicable[tier.value]
    error = next((each.error for each in mine if each.error), "")
    if error:
        return Proof.FAILED, error
    if len({_model(each) for each in mine}) > 1:
        return Proof.DIFFERS, _how_they_differ(mine)
    wanted = len(hardening.cpus) * hardening.repetitions
    if len(mine) < wanted:
        return Proof.INCOMPLETE, f"{len(mine)} of {wanted} trainings are done"
    counts = ", ".join(map(str, hardening.cpus))
    own = hardening.workload.project is not None
    one = mine[0]  # all are alike
    kept = {
        "weights": one.weights,
        "predictions" if own else "logits": one.logits,
        "step hashes": one.step_hashes,
    }
    what = series([name for name, hashes in kept.items() if hashes])
    return Proof.PROVED, f"{what} equal on {counts} CPUs, {wanted} trainings"


def _how_they_differ(mine: Sequence[Measurement]) -> str:
    """Whether already repetitions differ, or only CPU counts, and from which recorded step on."""
    models = {_model(each) for each in mine}
    by_cpus = {each.cpus: {_model(other) for other in mine if other.cpus == each.cpus} for each in mine}
    where = (
        "within a CPU count too" if any(len(found) > 1 for found in by_cpus.values()) else "across CPU counts"
    )
    steps = sorted({int(step) for each in mine for step in each.step_hashes})
    first = next((s for s in steps if len({each.step_hashes.get(str(s)) for each in mine}) > 1), None)
    since = f", since step {first} or before" if first else ", after the last recorded step" if steps else ""
    mixed = (
        "; computed by different machines or versions" if len({each.environment for each in mine}) > 1 else ""
    )
    return f"{len(models)} models in {len(mine)} trainings, {where}{since}{mixed}"


def _mean_cost(hardening: Hardening, tier: Tier, fit: Sequence[int]) -> Estimate:
    """Over these CPU counts: the geometric mean of each repetition that has them all, and over these means
    theirs with its interval."""
    if not fit:
        return Estimate(value=None, n=0)
    by_cpus = [_pairs(hardening, tier, cpus) for cpus in fit]
    whole = set.intersection(*(set(pairs) for pairs in by_cpus))
    if tier is Tier.SEEDS:  # it is the default
        return Estimate(value=1.0, n=len(whole))
    if not whole:
        return Estimate(value=None, n=0)
    means = [
        np.exp(np.mean([np.log(pairs[number][0].train_s / pairs[number][1].train_s) for pairs in by_cpus]))
        for number in sorted(whole)
    ]
    return ratio(means, 1 - ALPHA)


def _pairs(hardening: Hardening, tier: Tier, cpus: int) -> dict[int, tuple[Measurement, Measurement]]:
    """By repetition: the tier's training and the default's."""
    done = {each.key: each for each in hardening.measurements if not each.error and each.train_s > 0}
    keys = {
        number: ((tier, cpus, number), (Tier.SEEDS, cpus, number))
        for number in sorted({each.repetition for each in done.values()})
        if number <= hardening.repetitions
    }
    return {number: (done[a], done[b]) for number, (a, b) in keys.items() if a in done and b in done}


def _cost(hardening: Hardening, tier: Tier, cpus: int) -> Cost:
    pairs = list(_pairs(hardening, tier, cpus).values())
    if not pairs:
        return Cost(cpus=cpus, n=0, ratio=None, low=None, high=None, excluded="not measured")
    default = Estimate(value=1.0, n=len(pairs))
    found = default if tier is Tier.SEEDS else ratio([a.train_s / b.train_s for a, b in pairs], 1 - ALPHA)
    excluded = _excluded([each for pair in pairs for each in pair])
    return Cost(cpus=cpus, n=found.n, ratio=found.value, low=found.low, high=found.high, excluded=excluded)


def _excluded(measurements: Sequence[Measurement]) -> str:
    loads = [each.load_by_others for each in measurements if each.load_by_others is not None]
    return exclusion(
        emulated=any(each.emulated for each in measurements),
        oversubscribed=any(each.oversubscribed for each in measurements),
        load_by_others=float(np.mean(loads)) if loads else 0.0,
    )


# ---- the table -----------------------------------------------------------------------------------


def read_hardenings(study: StudyData) -> tuple[tuple[Hardening, ...], tuple[Problem, ...]]:
    """Those of the study's workloads, judged; and a reservation for each file that is of none of them or
    cannot be read."""

    def judged(content: bytes, _: Path) -> Hardening:
        hardening = decode(content)
        require_runs_of(study, hardening.workload, hardening.tree_sha256)
        return judge(hardening)

    paths = sorted((study.directory / FOLDER).glob("*.json"))
    todo = "it is left out; move it away and run `vbstudy harden`"
    return read_stored(study.directory, paths, judged, todo)


def hardening_tables(hardenings: Sequence[Hardening]) -> dict[str, Table]:
    """What is proved, and what it costs; nothing where nothing was hardened."""
    if not hardenings:
        return {}
    tables = (_proofs(hardenings), _costs(hardenings))
    return {table.name: table for table in tables if len(table.frame)}


def _proofs(hardenings: Sequence[Hardening]) -> Table:
    rows = [
        {
            "workload": hardening.workload.name,
            "tier": tier_text(result.tier),
            "proof": result.proof.value,
            "cpus": ", ".join(map(str, hardening.cpus)),
            "n": result.n,
            "models": result.models,
            "mean_cost": result.mean_cost,
            "mean_low": result.mean_low,
            "mean_high": result.mean_high,
            "cheapest": _choice(hardening, result),
            "why": result.why,
            "profile": _profile(hardening),
            **_paste(hardening, result),
        }
        for hardening in hardenings
        for result in hardening.results
    ]
    return Table.of(
        rows,
        *cols("workload", "tier", "proof"),
        col("cpus", "CPUs"),
        *counts("n", "models"),
        interval("mean_cost", "cost", Kind.RATIO, bounds="mean"),
        col("cheapest", "choice"),
        col("why"),
        col("profile", "operations"),
        name="hardening",
        title="What makes models equal on all thread counts",
        note="Proved: weights, logits and the weights after steps 1, 2, 4, ... are bitwise equal on these "
        "CPU counts, in all n trainings; nothing is said of other counts, data or machines. Cost: the "
        "geometric mean of the time ratios over these CPU counts, where none of their times is excluded, "
        f"with its interval over repetitions, from {RATIOS_FROM} on. Operations: those that a stored trace "
        "saw vary by themselves, and those that the registry does not know.",
    )


def _choice(hardening: Hardening, result: TierResult) -> str:
    if result.tier is not hardening.cheapest:
        return ""
    proved = [each for each in hardening.results if each.proof is Proof.PROVED]
    return "cheapest" if all(each.mean_cost is not None for each in proved) else "cheapest, estimated"


def _paste(hardening: Hardening, result: TierResult) -> dict[str, str]:
    """The lines by which a user has the chosen tier; empty for the others."""
    if result.tier is not hardening.cheapest:
        return {"shell": "", "python": ""}
    framework, seed = hardening.workload.computes_with, hardening.seeds.initialisation or 0
    if framework is None:  # none of ours measured this
        return {"shell": "", "python": ""}
    paste = lines(result.tier, framework, seed, max(hardening.cpus))
    return {"shell": "\n".join(paste.shell), "python": "\n".join(paste.python)}


def _profile(hardening: Hardening) -> str:
    known = hardening.profile
    if known is None:
        return "not profiled"
    return f"{len(known.varying)} vary, {len(known.unknown)} unknown"


def _costs(hardenings: Sequence[Hardening]) -> Table:
    rows = [
        {
            "workload": hardening.workload.name,
            "tier": tier_text(result.tier),
            "proof": result.proof.value,
            **dataclasses.asdict(cost),
        }
        for hardening in hardenings
        for result in hardening.results
        for cost in result.costs
    ]
    return Table.of(
        rows,
        *cols("workload", "tier", "proof"),
        count("cpus", "CPUs"),
        count("n"),
        interval("ratio", "time ratio", Kind.RATIO, bounds=""),
        col("excluded", "excluded"),
        name="tier_costs",
        title="What each tier costs in training time",
        note="Seconds of training over those of the default (tier 0) on the same CPUs: geometric mean of n "
        "pairs, trained in turns, with the 95 % interval of Student's t on logarithms, from "
        f"{RATIOS_FROM} pairs on. Times with a reason under 'excluded' are excluded from comparisons.",
    )
