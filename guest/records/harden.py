"""What `vbstudy harden` measures, as it is stored (`harden/<workload>.json`). The vocabulary that the
orchestrator and the analysis share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from guest.records.codec import RecordError, unseal
from guest.records.run import FOLDER_NAME, Isa, Seeds, Tier, WorkloadSpec
from guest.records.valid import are_steps, is_count, is_time

HARDEN_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One training of a tier: SHA-256 of what it computed, seconds of its training steps, and how alone it
    was. `error` says why there is no result; then the hashes are empty. `environment` is the key of what
    computed it."""

    tier: Tier
    cpus: int
    intra_op: int  # the tier's threads
    repetition: int  # counted from 1; equal numbers were trained one after the other: they are pairs
    weights: str
    logits: str
    step_hashes: dict[str, str]
    train_s: float
    oversubscribed: bool
    emulated: bool
    load_by_others: float | None
    environment: str
    error: str = ""
    finished_at: str

    @property
    def key(self) -> tuple[Tier, int, int]:
        return self.tier, self.cpus, self.repetition


class Proof(StrEnum):
    """What is known of a tier. Only what was seen is proved."""

    PROVED = "proved"
    DIFFERS = "differs"
    INCOMPLETE = "not proved: incomplete"
    FAILED = "not proved: failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Training time of a tier over that of the default (tier 0) on as many threads as the guest has CPUs: the
    geometric mean of the ratios of n pairs, with the 95 % interval of Student's t on logarithms (None below
    two pairs). `excluded` says why it supports no conclusion."""

    cpus: int
    n: int
    ratio: float | None
    low: float | None
    high: float | None
    excluded: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """A tier's verdict over `n` trainings, with its cost on each CPU count. `mean_cost` is the geometric mean
    over the CPU counts (None unless the times of all are fit), with the interval over the repetitions, each
    of which has one such mean; None below two of them, and for the default itself."""

    tier: Tier
    proof: Proof
    why: str
    n: int
    models: int  # distinct ones, by weights, logits and step hashes
    costs: tuple[Cost, ...]
    mean_cost: float | None
    mean_low: float | None
    mean_high: float | None

    @property
    def estimate(self) -> float | None:
        """The mean cost, or that of all ratios there are: of times that support no conclusion it is a guess,
        and a better one than none."""
        ratios = [cost.ratio for cost in self.costs if cost.ratio is not None]
        if self.mean_cost is not None or not ratios:
            return self.mean_cost
        return math.exp(sum(map(math.log, ratios)) / len(ratios))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Operations that the workload executes, by the names of its framework: those that were seen to give
    other bits on other thread counts, and those that the registry of operations does not know."""

    traces: tuple[str, ...]
    varying: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardening:
    """`harden/<workload>.json`: what was asked, what was measured, and what follows. `environments` are what
    computed the measurements; `profile` is None where no trace of the workload is stored."""

    workload: WorkloadSpec
    seeds: Seeds
    isa: Isa
    cpus: tuple[int, ...]
    repetitions: int
    tiers: tuple[Tier, ...]
    not_applicable: dict[str, str]  # by tier: why
    provider: str
    agent_sha256: str
    environments: dict[str, dict[str, Any]]
    measurements: tuple[Measurement, ...]
    profile: Profile | None = None
    results: tuple[TierResult, ...] = ()
    cheapest: Tier = Tier.NONE  # the cheapest that was proved
    tree_sha256: str = ""  # of a project's files; since version 3
    version: int = HARDEN_VERSION


def _upgrade(data: dict[str, Any], version: int) -> None:
    data["version"] = HARDEN_VERSION
    for result in data["results"] if version < 2 else ():
        for cost in result["costs"]:
            cost["excluded"] = cost.pop("unfit")


def decode(text: str | bytes) -> Hardening:
    """Raises RecordError for damage, NewerSchemaError for the file of a newer vbstudy."""
    hardening = unseal(Hardening, text, "harden", known=HARDEN_VERSION, version="version", upgrade=_upgrade)
    wrong = next(_wrong(hardening), None)
    if wrong:
        raise RecordError(f"harden: {wrong}")
    return hardening


def _wrong(hardening: Hardening) -> Iterator[str]:
    """What no vbstudy wrote, a phrase each."""
    if not re.fullmatch(FOLDER_NAME, hardening.workload.name):  # it names files
        yield f"workload.name: {hardening.workload.name!r:.80} is no name"
    if len(set(hardening.cpus)) < 2:
        yield "cpus: less than two counts"
    if Tier.NONE in hardening.tiers:
        yield "tiers: one without a name"
    counts = {*hardening.cpus, hardening.repetitions}
    for each in hardening.measurements:
        counts |= {each.cpus, each.intra_op, each.repetition}
        if not are_steps(each.step_hashes):
            yield "step_hashes: other names than numbers of steps"
        for seconds in (each.train_s, each.load_by_others or 0.0):
            if not is_time(seconds):
                yield f"{seconds} is no number of seconds"
    yield from (f"{count} is no count" for count in counts if not is_count(count))
