"""What `vbstudy sweep` does: the planned runs, or those that a rule asks for, then the measurements on stored
models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console

from orchestrator.cores.leases import host_cores
from orchestrator.engine import Engine, Observer, Summary, require_dask
from orchestrator.engine.local import LocalEngine
from orchestrator.experiments.assessment import Measured, measure
from orchestrator.inventory import read_inventory
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import Study
from orchestrator.sweep import sequential
from orchestrator.sweep.live import LiveFile
from orchestrator.sweep.pipeline import run_missing
from orchestrator.sweep.progress import SweepProgress, composite


class Decision(Protocol):
    """The result of an interim analysis (`analysis.inference.sequential.Decision`)."""

    @property
    def answers(self) -> Sequence[Any]: ...
    @property
    def open_sets(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """A rule by which runs are added, the runs of each condition at its planned interim analyses, and the
    function that decides at each."""

    rule: str
    interim: tuple[int, ...]
    decide: Callable[[int], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """What was done. `open_sets` are the conditions that need more runs than the cap."""

    summary: Summary
    rule: str = ""
    interim: tuple[int, ...] = ()
    interim_done: int = 0
    answers: tuple[dict[str, Any], ...] = ()
    open_sets: tuple[str, ...] = ()
    robustness: Measured | None = None

    @property
    def failed(self) -> bool:
        """Whether runs failed, or wait for guests that are not there."""
        robustness = self.robustness is not None and self.robustness.failed
        return bool(self.summary.failed or self.summary.without_guest or robustness)


def sweep(
    study: Study,
    store: Store,
    console: Console,
    quiet: bool,
    repetitions: int | None,
    rule: Sequential | None,
    robustness: bool,
) -> SweepOutcome:
    """Takes the study's lock, and runs what is missing; then measures the stored models where asked to."""
    cores = len(host_cores()) if study.engine.kind == "local" else 0
    live = LiveFile(store.live_file, cores)
    with store.lock("vbstudy sweep"), SweepProgress(console, quiet=quiet) as progress, live:
        report = progress.report
        engine, observer = _engine(study, store, report), composite(progress, live)
        outcome = _run(study, store, engine, observer, report, repetitions, rule)  # point: sweep over
        if not robustness:
            return outcome
        inventory = read_inventory(store.guests_file)
        measured = measure(study, store, make(study, store), inventory, progress.report)
        return dataclasses.replace(outcome, robustness=measured)


def _engine(study: Study, store: Store, report: Callable[[str], None]) -> Engine:
    if study.engine.kind == "local":
        return LocalEngine(study, store, make(study, store), read_inventory(store.guests_file))
    require_dask()
    from orchestrator.fleet.dask import DaskEngine

    return DaskEngine(study, store, report)


def _run(
    study: Study,
    store: Store,
    engine: Engine,
    observer: Observer,
    report: Callable[[str], None],
    repetitions: int | None,
    rule: Sequential | None,
) -> SweepOutcome:
    if rule is None:
        return SweepOutcome(summary=run_missing(plan(study, repetitions), store, engine, observer))
    sequential.keep_plan(store, rule.interim, rule.rule)
    outcome = SweepOutcome(summary=Summary(), rule=rule.rule, interim=rule.interim)

    def open_sets(done: int) -> frozenset[str]:
        nonlocal outcome
        decision = rule.decide(done)
        answers = tuple(dataclasses.asdict(answer) for answer in decision.answers)
        sequential.keep_answers(store, done, answers)
        still_open = tuple(sorted(decision.open_sets))
        outcome = dataclasses.replace(outcome, interim_done=done, answers=answers, open_sets=still_open)
        report(
            f"interim analysis {done} of {len(rule.interim)}, {rule.interim[done - 1]} runs each: "
            f"{sum(a.clear for a in decision.answers)} of {len(decision.answers)} questions clear"
        )
        return decision.open_sets

    summary = sequential.sweep_until(study, store, engine, observer, rule.interim, open_sets)
    return dataclasses.replace(outcome, summary=summary)


def summaries(outcome: SweepOutcome, store: Store) -> tuple[dict[str, Any], str]:
    """The outcome as JSON, and as text."""
    summary = outcome.summary
    text = (
        f"{summary.done_now} runs done in {summary.elapsed_s:.0f} s, {summary.done_before} were done before"
    )
    if summary.quarantined:
        text += f", {len(summary.quarantined)} damaged ones quarantined in {store.quarantined}"
    data = dataclasses.asdict(summary)
    if outcome.rule:
        text += f"; {outcome.rule}: interim analysis {outcome.interim_done} of {len(outcome.interim)}, "
        text += (
            f"not clear after {outcome.interim[outcome.interim_done - 1]} runs: " if outcome.open_sets else ""
        )
        text += ", ".join(outcome.open_sets) or "everything is clear"
        kept = dataclasses.asdict(outcome)
        data |= {key: kept[key] for key in ("rule", "interim", "interim_done", "answers", "open_sets")}
    if outcome.robustness is not None:
        found = outcome.robustness
        text += f"; robustness of {found.now} models measured, {found.before} measured before"
        if found.not_applicable:
            text += f", not applicable to {found.not_applicable} (their data are words)"
        if found.failed:
            text += f", {len(found.failed)} failed ({', '.join(found.failed)})"
        data["robustness"] = dataclasses.asdict(found)
    if summary.failed:
        text += f"; {len(summary.failed)} failed, evidence in {store.failed}"
    if summary.without_guest:
        waiting = ", ".join(summary.without_guest)
        text += f"; runs without a guest were not started ({waiting}); next: vbstudy provision"
    elif not summary.failed:
        text += "; next: vbstudy analyze"
    return data, text
