"""What `vbstudy harden -- PROGRAM` does: runs a program with every tier on every thread count, proves which
tiers make all that it writes and prints equal, and prices them in pairs with the default."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from guest.machine import fingerprint, tiers
from guest.records.harden import Proof
from guest.records.printable import counted, series
from guest.records.run import Framework, Tier
from orchestrator.errors import UnmetError
from orchestrator.programs import try_runs
from orchestrator.programs.conditions import Condition, given, oversubscribed
from orchestrator.programs.kept import Kept
from orchestrator.programs.try_files import Role
from orchestrator.programs.try_report import cost, evidence, invalid_times, times_default
from orchestrator.programs.try_runs import Ask, Seen
from orchestrator.programs.try_verdicts import (
    LEVELS,
    METRIC,
    OUTPUT,
    PREDICTIONS,
    Answer,
    LevelVerdict,
    Trial,
    decide,
    overall,
    unrepeated,
)
from orchestrator.text import Say

UNREPEATED = (
    "on one thread it does not repeat itself either: the seed does not reach every generator, or time or "
    "another input plays a part"
)
WITHOUT_FRAMEWORK = (Tier.SEEDS, Tier.LOGICAL_THREADS, Tier.ONE_THREAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierProof:
    """One tier: whether all runs agree, and the time of a run as a ratio to the default's, with its 95 %
    interval over `pairs`."""

    tier: Tier
    proof: Proof
    why: str
    runs: int
    pairs: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardened:
    """What was found. `lines` are the way to have the cheapest proved tier, or what to try where the program
    does not repeat itself; `rivals` are the proved tiers that may be as cheap: their ratios lie within its
    interval, or it has none."""

    command: tuple[str, ...]
    framework: Framework | None
    threads: tuple[int, ...]
    varied: bool  # False: the program sets its own thread count, which was that of all runs
    repetitions: int
    seed: int | None
    results: tuple[TierProof, ...]
    cheapest: Tier
    rivals: tuple[Tier, ...]
    compared: tuple[str, ...]  # the levels at which there was something
    lines: tuple[str, ...]
    oversubscribed: tuple[int, ...]
    notes: tuple[str, ...]


def run(ask: Ask, counts: Sequence[int], asked: Sequence[Tier], say: Say) -> Hardened:
    """Raises UsageError, and UnmetError when the program fails or
    shows nothing that could be compared."""
    most = max(counts)
    say("a first run, to see what it computes with; its time does not count")
    warm = Condition(label="default", threads=most)
    first = try_runs.run(dataclasses.replace(ask, repetitions=1), [warm], say)
    if overall(decide(first.trials)) is Answer.ABSENT:
        raise UnmetError(
            f"{shlex.join(ask.argv)}: writes no file and prints nothing, so that nothing can be compared"
        )
    framework = try_runs.framework_of(first.software)
    chosen = [tier for tier in tiers.TIERS if tier in {Tier.SEEDS, *asked}]
    refused = {tier: _not_applicable(tier, framework) for tier in chosen}
    conditions = {
        tier: [_condition(tier, framework, n, most) for n in counts] for tier in chosen if not refused[tier]
    }
    in_turns = [each for of_one_count in zip(*conditions.values(), strict=True) for each in of_one_count]
    kept = Kept(ask.argv, ask.folder, ask.seed, in_turns, first.software)
    seen = try_runs.run(ask, in_turns, say, kept)
    kept.remove()
    default = conditions[Tier.SEEDS]
    proofs = tuple(
        TierProof(tier=tier, proof=Proof.NOT_APPLICABLE, why=refused[tier], runs=0)
        if refused[tier]
        else _proof(tier, ask.argv, seen.trials, conditions[tier], default)
        for tier in chosen
    )
    cheapest, rivals = choose(proofs)
    by_default = {condition.label for condition in default}
    verdicts = decide([trial for trial in seen.trials if trial.condition in by_default])
    hopeless = not cheapest and _unrepeated(seen.trials, conditions)
    again = f"vbstudy try --replay{given(counts, None)} -- {shlex.join(ask.argv)}"
    return Hardened(
        command=ask.argv,
        framework=framework,
        threads=tuple(counts),
        varied=seen.varied,
        repetitions=ask.repetitions,
        seed=ask.seed,
        results=proofs,
        cheapest=cheapest,
        rivals=rivals,
        compared=tuple(v.level for v in verdicts if v.answer is not Answer.ABSENT),
        lines=_lines(cheapest, framework, ask, most, seen) if cheapest else (again,) if hopeless else (),
        oversubscribed=oversubscribed(counts),
        notes=(*seen.notes, *((UNREPEATED,) if hopeless else ())),
    )


def _unrepeated(trials: Sequence[Trial], conditions: dict[Tier, list[Condition]]) -> bool:
    """Whether no tier can help: runs of one thread differ under one condition."""
    labels = {condition.label for condition in conditions.get(Tier.ONE_THREAD, ())}
    mine = [trial for trial in trials if trial.condition in labels]
    return bool(unrepeated(decide(mine)))


def _not_applicable(tier: Tier, framework: Framework | None) -> str:
    if framework is not None:
        return tiers.not_applicable(tier, framework, fingerprint.cpu()["vendor"])
    return "" if tier in WITHOUT_FRAMEWORK else "for PyTorch and TensorFlow, and the program uses neither"


def _condition(tier: Tier, framework: Framework | None, count: int, most: int) -> Condition:
    asked = tiers.threads_of(tier, framework or Framework.TORCH, count, most)
    torch = framework is Framework.TORCH
    return Condition(
        label=f"{'default' if tier is Tier.SEEDS else tier}, {counted(count, 'thread')}",
        threads=count,
        intra_op=asked.intra_op,
        inter_op=asked.inter_op,
        env=tiers.settings(tier, framework) if framework else {},
        hook=tiers.hook(tier),
        exact=torch and tier is Tier.EXACT,
    )


def _proof(
    tier: Tier,
    argv: Sequence[str],
    trials: Sequence[Trial],
    conditions: Sequence[Condition],
    default: Sequence[Condition],
) -> TierProof:
    labels = {one.label: other.label for one, other in zip(conditions, default, strict=True)}
    mine = [trial for trial in trials if trial.condition in labels]
    status = next((trial.status for trial in mine if trial.status), 0)
    if status:
        shown = f"; `vbstudy exact -- {shlex.join(argv)}` shows why" if tier is Tier.EXACT else ""
        why = f"the program ended with status {status} in it{shown}"
        return TierProof(tier=tier, proof=Proof.FAILED, why=why, runs=len(mine))
    verdicts = decide(mine)
    printed_by_threads = verdicts[-1].answer is Answer.MATTERS
    if printed_by_threads or overall(verdicts, _deciding(verdicts)) is not Answer.SAME:
        return TierProof(tier=tier, proof=Proof.DIFFERS, why=_how(verdicts), runs=len(mine))
    prints_alike = verdicts[-1].answer in (Answer.SAME, Answer.ABSENT)
    printed = "" if prints_alike else f", but for what they print ({_how(verdicts)})"
    ratio, low, high, pairs = (1.0, None, None, 0) if tier is Tier.SEEDS else cost(trials, labels)
    return TierProof(
        tier=tier,
        proof=Proof.PROVED,
        why=f"all {len(mine)} runs agree{printed}",
        runs=len(mine),
        pairs=pairs,
        ratio=ratio,
        low=low,
        high=high,
    )


def _deciding(verdicts: Sequence[LevelVerdict]) -> Sequence[str]:
    """The levels that decide: lines that do not repeat do not beside weights, predictions or metrics."""
    seen = {verdict.level for verdict in verdicts if verdict.answer is not Answer.ABSENT}
    weights = any(each.kind == Role.WEIGHTS for verdict in verdicts for each in verdict.compared)
    return LEVELS if weights or seen & {PREDICTIONS, METRIC} else (*LEVELS, OUTPUT)


def _how(verdicts: Sequence[LevelVerdict]) -> str:
    """The first thing that differs."""
    differing = (
        each
        for verdict in verdicts
        if verdict.answer is not Answer.SAME
        for each in verdict.compared
        if each.answer is not Answer.SAME
    )
    one = next(differing, None)
    return "nothing was seen that could be compared" if one is None else evidence(one)[0]


def choose(proofs: Sequence[TierProof]) -> tuple[Tier, tuple[Tier, ...]]:
    """The proved tier with the lowest estimate, and those that its interval does not set apart. Where exact
    mode is one of these it is taken: it is a command, and the others are lines to paste."""
    proved = {each.tier: each for each in proofs if each.proof is Proof.PROVED}
    if not proved:
        return Tier.NONE, ()
    if Tier.SEEDS in proved:  # nothing needs to be done
        return Tier.SEEDS, ()
    best = min(proved.values(), key=lambda each: each.ratio or float("inf"))
    rivals = {
        each.tier
        for each in proved.values()
        if best.high is None or (each.ratio or float("inf")) <= best.high
    }
    chosen = Tier.EXACT if Tier.EXACT in rivals else best.tier
    return chosen, tuple(tier for tier in proved if tier in rivals and tier is not chosen)


def _lines(tier: Tier, framework: Framework | None, ask: Ask, most: int, seen: Seen) -> tuple[str, ...]:
    """A command where there is one, else lines for the shell and for the script; with the seeds that the
    program does not set itself."""
    if tier is Tier.SEEDS:
        return ()
    command, seed, own = shlex.join(ask.argv), ask.seed or 0, _seeded(seen)
    if framework is not None and tier is not Tier.EXACT:
        paste = tiers.lines(tier, framework, seed, most, own)
        return ("before the program starts:", *paste.shell, "at the top of the script:", *paste.python)
    settings = {}
    if tier is Tier.EXACT:
        fixed = f"--threads {tiers.EXACT_TENSORFLOW_THREADS} " if framework is Framework.TENSORFLOW else ""
        command = f"vbstudy exact {fixed}-- {command}"
    else:
        count = 1 if tier is Tier.ONE_THREAD else most
        settings = tiers.fixed_pools(count) | ({"NPROC": str(count)} if "jax" in seen.software else {})
    seeds: tuple[str, ...] = ()
    if any(notice["kind"] == "start" for notice in seen.noticed):  # it is Python
        settings["PYTHONHASHSEED"] = str(seed)
        seeds = tiers.seeds(framework, seed, own)
    exports = (f"export {name}={shlex.quote(value)}" for name, value in settings.items())
    head = ("at the top of the script, which does not seed these:",) if seeds else ()
    return (*exports, command, *head, *seeds)


def _seeded(seen: Seen) -> set[str]:
    """The generators that need no seed, by the calls that give one: the program makes them, or has no numpy.
    Whether it draws from the others is unknown."""
    own = {each.what for each in seen.overrides if each.value != "from the operating system"}
    return own if "numpy" in seen.software else own | {"numpy.random.seed"}


# ---- for a person -------------------------------------------------------------------------------------


def text(found: Hardened) -> str:
    """The cheapest cure first, then all tiers, then how to have it."""
    lines = [
        _answer(found),
        "",
        (
            f"{shlex.join(found.command)}: {series(list(map(str, found.threads)))} threads, "
            f"{found.repetitions} times each; compared: {', '.join(found.compared)}"
        ),
        "",
    ]
    for each in found.results:
        info = tiers.TIERS[each.tier]
        head = f"{info.number} {each.tier.value:<16} {each.proof.value:<15}"
        lines.append(f"{head} {_price(each) if each.proof is Proof.PROVED else each.why}")
    lines += invalid_times(found.oversubscribed)
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(
        [*lines, *(["", "next:", *(f"  {line}" for line in found.lines)] if found.lines else [])]
    )


def _answer(found: Hardened) -> str:
    if not found.cheapest:
        return "No tier is proved: with each tier, something differs between the runs."
    title = tiers.TIERS[found.cheapest].title
    best = next(each for each in found.results if each.tier is found.cheapest)
    if found.cheapest is Tier.SEEDS:
        counts = (
            "on all thread counts" if found.varied else "with the thread count that the program sets itself"
        )
        return f"Nothing needs to be done: with fixed seeds, {counts}, {best.why}."
    alone = sum(each.proof is Proof.PROVED for each in found.results) == 1
    rank = "The only proved cure" if alone else "The cheapest proved cure"
    if found.rivals:
        rank = "Proved, and none is shown to be cheaper"
    rivals = series([tiers.TIERS[tier].title for tier in found.rivals])
    told = f"\nAs cheap, as far as {best.runs} runs can tell: {rivals}." if rivals else ""
    return f"{rank}: {title}, {_price(best)}: {best.why}.{told}"


def _price(each: TierProof) -> str:
    if each.tier is Tier.SEEDS:
        return "the default"
    if each.ratio is None:
        return "time not measured"
    return f"{times_default(each.ratio, each.low, each.high)} time ({counted(each.pairs, 'pair')})"
