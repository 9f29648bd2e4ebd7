"""What `vbstudy harden` measured: which tier is proved to give equal models on all thread counts, and what
each costs (the overhead of determinism of Zhuang et al., MLSys 2022, section 5, tier by tier)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.load import Problem
from analysis.results import ALPHA, Column, Kind, Table
from analysis.times import LOAD_TOO_MUCH
from guest.harden_records import Cost, Hardening, Measurement, Proof, TierResult, decode
from guest.records import NewerSchemaError, RecordError, Tier
from guest.tiers import TIERS

FOLDER = "harden"


# ---- the verdicts --------------------------------------------------------------------------------


def judge(hardening: Hardening) -> Hardening:
    """The hardening with a result for each of its tiers, and the cheapest tier that is proved: the one
    with the lowest mean cost, or the first one where no time is fit to compare."""
    results = tuple(_judge(hardening, tier) for tier in hardening.tiers)
    proved = [result for result in results if result.proof is Proof.PROVED]
    costed = [result for result in proved if result.mean_cost is not None]
    best = min(costed, key=lambda result: result.mean_cost or 0.0) if len(costed) == len(proved) else None
    cheapest = (best or proved[0]).tier if proved else Tier.NONE
    return dataclasses.replace(hardening, results=results, cheapest=cheapest)


def _judge(hardening: Hardening, tier: Tier) -> TierResult:
    mine = [each for each in hardening.measurements if each.tier is tier and _asked(hardening, each)]
    done = [each for each in mine if not each.error]
    costs = tuple(_cost(hardening, tier, cpus) for cpus in hardening.cpus) if done else ()
    fit = [cost.ratio for cost in costs if cost.ratio is not None and not cost.unfit]
    proof, why = _proof(hardening, tier, mine)
    return TierResult(
        tier=tier,
        proof=proof,
        why=why,
        n=len(done),
        models=len({_model(each) for each in done}),
        costs=costs,
        mean_cost=float(np.exp(np.mean(np.log(fit)))) if fit else None,
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
    return Proof.PROVED, f"weights, logits and step hashes equal on {counts} CPUs, {wanted} trainings"


def _how_they_differ(mine: Sequence[Measurement]) -> str:
    """Whether already repetitions differ, or only CPU counts, and from which recorded step on."""
    models = {_model(each) for each in mine}
    by_cpus = {each.cpus: {_model(other) for other in mine if other.cpus == each.cpus} for each in mine}
    where = (
        "within a CPU count too" if any(len(found) > 1 for found in by_cpus.values()) else "across CPU counts"
    )
    steps = sorted({int(step) for each in mine for step in each.step_hashes})
    first = next((s for s in steps if len({each.step_hashes.get(str(s)) for each in mine}) > 1), None)
    since = f", since step {first} or before" if first else ", after the last recorded step"
    unlike = (
        "; computed by unlike machines or versions" if len({each.environment for each in mine}) > 1 else ""
    )
    return f"{len(models)} models in {len(mine)} trainings, {where}{since}{unlike}"


def _cost(hardening: Hardening, tier: Tier, cpus: int) -> Cost:
    done = {each.key: each for each in hardening.measurements if not each.error and _asked(hardening, each)}
    numbers = range(1, hardening.repetitions + 1)
    keys = [((tier, cpus, number), (Tier.SEEDS, cpus, number)) for number in numbers]
    pairs = [(done[a], done[b]) for a, b in keys if a in done and b in done]
    pairs = [(a, b) for a, b in pairs if a.train_s > 0 and b.train_s > 0]
    if not pairs:
        return Cost(cpus=cpus, n=0, ratio=None, low=None, high=None, unfit="not measured")
    unfit = _unfit([each for pair in pairs for each in pair])
    if tier is Tier.SEEDS:  # it is the default
        return Cost(cpus=cpus, n=len(pairs), ratio=1.0, low=None, high=None, unfit=unfit)
    ratio, low, high = paired_ratio([a.train_s for a, _ in pairs], [b.train_s for _, b in pairs])
    return Cost(cpus=cpus, n=len(pairs), ratio=ratio, low=low, high=high, unfit=unfit)


def _unfit(measurements: Sequence[Measurement]) -> str:
    if any(each.emulated for each in measurements):
        return "emulated"
    if any(each.oversubscribed for each in measurements):
        return "oversubscribed"
    loads = [each.load_by_others for each in measurements if each.load_by_others is not None]
    return "disturbed by others" if loads and float(np.mean(loads)) >= LOAD_TOO_MUCH else ""


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The geometric mean of a/b of positive pairs (n,), with its interval (1 - ALPHA) by Student's t on
    logarithms; no interval below two pairs."""
    logs = np.log(np.asarray(a) / np.asarray(b))
    mean = float(logs.mean())
    if len(logs) < 2:
        return float(np.exp(mean)), None, None
    half = float(stats.t.ppf(1 - ALPHA / 2, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


# ---- the table -----------------------------------------------------------------------------------


def read_hardenings(directory: Path) -> tuple[tuple[Hardening, ...], tuple[Problem, ...]]:
    """All that were measured, judged; and a reservation for each file that cannot be read."""
    found, problems = [], []
    for path in sorted((directory / FOLDER).glob("*.json")):
        try:
            found.append(judge(decode(path.read_bytes())))
        except (OSError, RecordError, NewerSchemaError, UnicodeDecodeError) as error:
            todo = "move it away and run `vbstudy harden`"
            problems.append(Problem(path=f"{FOLDER}/{path.name}", what=str(error), todo=todo, skipped=False))
    return tuple(found), tuple(problems)


def hardening_tables(hardenings: Sequence[Hardening]) -> dict[str, Table]:
    """The one table, where there is something for it."""
    if not hardenings:
        return {}
    rows = [row for hardening in hardenings for row in _rows(hardening)]
    table = Table(
        name="hardening",
        title="What makes models equal on all thread counts, and what it costs",
        note="Proved: weights, logits and the weights after steps 1, 2, 4, ... are bitwise equal on all CPU "
        "counts asked for, in all trainings; nothing is said of other counts, data or machines. Time ratio: "
        "seconds of training over those of the default (tier 0) on the same CPUs, geometric mean of n pairs "
        "trained one after the other, with the 95 % interval of Student's t on logarithms. Times with a mark "
        "support no conclusion.",
        frame=pd.DataFrame(rows),
        columns=(
            Column(header="workload", source="workload"),
            Column(header="tier", source="tier"),
            Column(header="proof", source="proof"),
            Column(header="trainings", source="trainings", kind=Kind.COUNT),
            Column(header="models", source="models", kind=Kind.COUNT),
            Column(header="CPUs", source="cpus"),
            Column(header="pairs", source="n", kind=Kind.COUNT),
            Column(header="time ratio", source="ratio", kind=Kind.RATIO, low="low", high="high"),
            Column(header="marks", source="unfit"),
            Column(header="why", source="why"),
        ),
    )
    return {table.name: table}


def _rows(hardening: Hardening) -> list[dict[str, Any]]:
    rows = []
    for result in hardening.results:
        head = {
            "workload": hardening.workload.name,
            "number": TIERS[result.tier].number,
            "tier": tier_text(result.tier),
            "proof": result.proof.value,
            "cheapest": result.tier is hardening.cheapest,
            "trainings": result.n,
            "models": result.models,
            "why": result.why,
        }
        nothing = Cost(cpus=0, n=0, ratio=None, low=None, high=None, unfit="")
        rows += [
            head | dataclasses.asdict(cost) | {"cpus": str(cost.cpus) if cost.cpus else ""}
            for cost in result.costs or (nothing,)
        ]
    return rows


def tier_text(tier: Tier) -> str:
    return f"{TIERS[tier].number} {TIERS[tier].title}"
