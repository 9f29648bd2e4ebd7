"""`vbstudy try --which`: of the thread pools in a program (OpenMP of scikit-learn, OpenBLAS of numpy, ...),
the one that matters. Each has its threads alone, while all others have one."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass

from guest.records.printable import counted, series
from guest.records.run import Framework
from orchestrator.programs import try_runs
from orchestrator.programs.conditions import Condition
from orchestrator.programs.try_report import evidence
from orchestrator.programs.try_runs import Ask
from orchestrator.programs.try_verdicts import Answer, Compared, decide, overall
from orchestrator.text import Say

ALL_ONE = "one thread in each pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool with all its threads, against one thread in each; `first` is what differs, where anything
    does."""

    name: str
    answer: Answer
    first: Compared | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The pools of a program."""

    command: tuple[str, ...]
    threads: int
    repetitions: int
    seed: int | None
    pools: tuple[Pool, ...]
    notes: tuple[str, ...]


def run(ask: Ask, count: int, say: Say) -> Which:
    """Raises UsageError and UnmetError."""
    say("a first run, to see which thread pools there are")
    first = _condition("all pools", "", count, others=count)
    seen = try_runs.run(dataclasses.replace(ask, repetitions=1), [first], say)
    names = dict.fromkeys(str(notice["name"]) for notice in seen.noticed if notice["kind"] == "pool")
    if Framework.TENSORFLOW in seen.software:
        names |= {Framework.TENSORFLOW.value: None}
    notes = list(seen.notes)
    if "jax" in seen.software:
        notes.append("JAX's own pool has as many threads as there are cores, and is not varied")
    pools: list[Pool] = []
    if names:
        conditions = [_condition(ALL_ONE, "", count), *(_condition(name, name, count) for name in names)]
        seen = try_runs.run(ask, conditions, say)
        of_all_one = [trial for trial in seen.trials if trial.condition == ALL_ONE]
        for name in names:
            verdicts = decide([*of_all_one, *(t for t in seen.trials if t.condition == name)])
            answer = overall(verdicts)
            differing = (each for v in verdicts for each in v.compared if each.answer is answer)
            pools.append(
                Pool(name=name, answer=answer, first=None if answer is Answer.SAME else next(differing, None))
            )
    return Which(
        command=ask.argv,
        threads=count,
        repetitions=ask.repetitions,
        seed=ask.seed,
        pools=tuple(pools),
        notes=tuple(dict.fromkeys([*notes, *seen.notes])),
    )


def _condition(label: str, pool: str, count: int, others: int = 1) -> Condition:
    framework = pool.partition(" ")[0] in tuple(Framework)  # its pool is set by its own call
    intra_op = count if framework or others == count else 1
    return Condition(
        label=label,
        threads=count,
        intra_op=intra_op,
        inter_op=intra_op,
        hook={"pools": {"counts": {pool: count}, "others": others}},
    )


def text(found: Which) -> str:
    """The pools that matter first."""
    mattering = [pool.name for pool in found.pools if pool.answer is Answer.MATTERS]
    if not found.pools:
        answer = "No thread pool of OpenMP, OpenBLAS, MKL, BLIS or TensorFlow was seen: none matters."
    elif mattering:
        answer = f"What matters: the threads of {series(mattering)}."
    else:
        answer = "No single pool shows an effect."
    lines = [
        answer,
        "",
        (
            f"{shlex.join(found.command)}: each pool with {counted(found.threads, 'thread')}, "
            f"the others with one, {found.repetitions} times each"
        ),
        "",
    ]
    for pool in found.pools:
        lines.append(f"{pool.name}: {pool.answer.upper()}")
        if pool.first is not None:
            lines.append(f"  {evidence(pool.first)[0]}")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])
