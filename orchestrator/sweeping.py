"""What `vbstudy sweep` does: the runs that are planned, or those that a rule asks for, then what is to be
measured on the stored models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console

from orchestrator import sequential_sweep
from orchestrator.engine import Engine, Observer, Summary, require_dask
from orchestrator.engine.local import LocalEngine
from orchestrator.guests import read_inventory
from orchestrator.live import LiveFile
from orchestrator.progress import Several, SweepProgress
from orchestrator.providers import make
from orchestrator.robustness import Measured, measure
from orchestrator.scheduler import host_cores
from orchestrator.store import Store
from orchestrator.study import Study
from orchestrator.sweep import sweep


class Decided(Protocol):
    """What the analysis says after a look (`analysis.sequential.Decision`)."""

    @property
    def answers(self) -> Sequence[Any]: ...
    @property
    def open_sets(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """A rule by which runs are added, its planned looks, and who decides after each."""

    rule: str
    looks: tuple[int, ...]
    decide: Callable[[int], Decided]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done. `open_sets` are those that the rule would have given more runs than the cap."""

    summary: Summary
    rule: str = ""
    looks: tuple[int, ...] = ()
    looks_done: int = 0
    answers: tuple[dict[str, Any], ...] = ()
    open_sets: tuple[str, ...] = ()
    robustness: Measured | None = None

    @property
    def failed(self) -> bool:
        return bool(self.summary.failed or (self.robustness and self.robustness.failed))


def work(
    study: Study,
    store: Store,
    console: Console,
    quiet: bool,
    repetitions: int | None,
    rule: Sequential | None,
    robustness: bool,
) -> Outcome:
    """Takes the study's lock, and sweeps; then measures the stored models where that is asked for."""
    cores = len(host_cores()) if study.engine.kind == "local" else 0
    live = LiveFile(store.live_file, cores)
    with store.lock("vbstudy sweep"), SweepProgress(console, quiet=quiet) as progress, live:
        engine, observer = _engine(study, store, progress.say), Several(progress, live)
        outcome = _sweep(study, store, engine, observer, progress.say, repetitions, rule)
        if not robustness:
            return outcome
        inventory = read_inventory(store.guests_file)
        measured = measure(study, store, make(study, store), inventory, progress.say)
        return dataclasses.replace(outcome, robustness=measured)


def _engine(study: Study, store: Store, say: Callable[[str], None]) -> Engine:
    if study.engine.kind == "local":
        return LocalEngine(study, store, make(study, store), read_inventory(store.guests_file))
    require_dask()
    from orchestrator.engine.dask import DaskEngine

    return DaskEngine(study, store, say)


def _sweep(
    study: Study,
    store: Store,
    engine: Engine,
    observer: Observer,
    say: Callable[[str], None],
    repetitions: int | None,
    rule: Sequential | None,
) -> Outcome:
    if rule is None:
        return Outcome(summary=sweep(study, store, engine, observer, repetitions))
    sequential_sweep.hold_to_plan(store, rule.looks, rule.rule)
    last: list[tuple[int, Decided]] = []

    def open_sets(done: int) -> frozenset[str]:
        decision = rule.decide(done)
        last.append((done, decision))
        answers = [dataclasses.asdict(answer) for answer in decision.answers]
        sequential_sweep.note(store, done, answers)
        say(
            f"look {done} of {len(rule.looks)}, {rule.looks[done - 1]} runs a set: "
            f"{sum(a.clear for a in decision.answers)} of {len(decision.answers)} questions clear"
        )
        return decision.open_sets

    summary = sequential_sweep.sweep_until(study, store, engine, observer, rule.looks, open_sets)
    done, decision = last[-1]
    return Outcome(
        summary=summary,
        rule=rule.rule,
        looks=rule.looks,
        looks_done=done,
        answers=tuple(dataclasses.asdict(answer) for answer in decision.answers),
        open_sets=tuple(sorted(decision.open_sets)),
    )


def told(outcome: Outcome, store: Store) -> tuple[dict[str, Any], str]:
    """The outcome for a program, and for a person."""
    summary = outcome.summary
    text = (
        f"{summary.done_now} runs done in {summary.elapsed_s:.0f} s, {summary.done_before} were done before"
    )
    if summary.quarantined:
        text += f", {len(summary.quarantined)} damaged ones set aside in {store.quarantined}"
    if summary.without_guest:
        text += (
            f"; the runs of guests that are not there wait ({', '.join(summary.without_guest)}): "
            "run `vbstudy provision`"
        )
    data = dataclasses.asdict(summary)
    if outcome.rule:
        text += f"; {outcome.rule}: look {outcome.looks_done} of {len(outcome.looks)}, "
        text += f"not clear after {outcome.looks[outcome.looks_done - 1]} runs: " if outcome.open_sets else ""
        text += ", ".join(outcome.open_sets) or "everything is clear"
        kept = dataclasses.asdict(outcome)
        data |= {key: kept[key] for key in ("rule", "looks", "looks_done", "answers", "open_sets")}
    if outcome.robustness is not None:
        found = outcome.robustness
        text += f"; robustness of {found.now} models measured, of {found.before} before"
        if found.not_applicable:
            text += f", not applicable to {found.not_applicable} (their data are words)"
        if found.failed:
            text += f", {len(found.failed)} failed ({', '.join(found.failed)})"
        data["robustness"] = dataclasses.asdict(found)
    if summary.failed:
        text += f"; {len(summary.failed)} failed, evidence in {store.failed}"
    else:
        text += "; next: vbstudy analyze"
    return data, text
