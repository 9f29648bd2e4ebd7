"""What `vbstudy sweep` does: the planned runs, or those that a rule asks for, then the measurements on stored
models."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from guest.records.printable import counted
from orchestrator.engine import Engine, Summary, require_dask
from orchestrator.engine.local import LocalEngine
from orchestrator.errors import VbstudyError
from orchestrator.experiments.assessment import Measured, measure
from orchestrator.forecast.model import guest_cores
from orchestrator.guests.provision import destroy_workers, read_guests
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import Study
from orchestrator.sweep.failures import failing
from orchestrator.sweep.live import LiveFile
from orchestrator.sweep.pipeline import run_missing
from orchestrator.sweep.progress import SweepProgress, composite
from orchestrator.sweep.sequential import Interim, Sequential, sweep_until
from orchestrator.text import Say


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """What was done."""

    summary: Summary
    interim: Interim | None = None
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
    repetitions: int | None,
    rule: Sequential | None,
    robustness: bool,
) -> SweepOutcome:
    """Takes the study's lock, and runs what is missing; then measures the stored models where asked to."""
    live = LiveFile(store.live_file, guest_cores(study))
    with store.lock("vbstudy sweep"), SweepProgress(console) as progress, live:
        report = progress.report
        inventory = read_guests(study, store) if robustness else None  # it is needed in the end
        with contextlib.suppress(VbstudyError):  # what cannot be removed now is by `vbstudy destroy`
            destroy_workers(store)
        engine, observer = _engine(study, store, report), composite(progress, live)
        interim = None
        if rule is None:
            summary = run_missing(plan(study, repetitions), store, engine, observer)
        else:
            summary, interim = sweep_until(study, store, engine, observer, rule, report)
        outcome = SweepOutcome(summary=summary, interim=interim)  # point: sweep over
        if inventory is None:
            return outcome
        measured = measure(study, store, make(study, store), inventory, report)
        return dataclasses.replace(outcome, robustness=measured)


def _engine(study: Study, store: Store, report: Say) -> Engine:
    if study.engine.kind == "local":
        return LocalEngine(study, store, make(study, store), read_guests(study, store))
    require_dask()
    from orchestrator.fleet.dask import DaskEngine

    return DaskEngine(study, store, report)


def _unclear(interim: Interim) -> Iterator[str]:
    """Where more runs are needed: at the cap, or at the most that a variant may have."""
    runs = {interim.interim[interim.interim_done - 1]: set(interim.open_sets)}
    for answer in interim.answers:
        if not answer["clear"]:
            runs.setdefault(answer["runs"], set()).update(filter(None, (answer["a"], answer["b"])))
    for n, sets in sorted(runs.items()):
        if sets:
            yield f"not clear after {counted(n, 'run')}: {', '.join(sorted(sets))}"
    if interim.without_runs:
        yield f"not compared, because there are no runs yet: {', '.join(interim.without_runs)}"
    elif not interim.answers and not interim.open_sets:
        yield "there is nothing to compare"


def summaries(outcome: SweepOutcome, store: Store) -> tuple[dict[str, Any], str]:
    """The outcome as JSON, and as text."""
    summary = outcome.summary
    text = (
        f"{counted(summary.done_now, 'run')} done in {summary.elapsed_s:.0f} s, "
        f"{summary.done_before} were done before"
    )
    if summary.quarantined:
        text += f", {len(summary.quarantined)} damaged ones quarantined in {store.quarantined}"
    data = dataclasses.asdict(summary)
    if outcome.interim is not None:
        found = outcome.interim
        text += f"; {found.rule}: interim analysis {found.interim_done} of {len(found.interim)}, "
        text += "; ".join(_unclear(found)) or "everything is clear"
        data |= dataclasses.asdict(found)
    if outcome.robustness is not None:
        measured = outcome.robustness
        text += f"; robustness of {counted(measured.now, 'model')} measured, "
        text += f"{measured.before} measured before"
        if measured.not_applicable:
            text += f", not applicable to {measured.not_applicable} (their data are words)"
        if measured.failed:
            text += f", {len(measured.failed)} failed ({', '.join(measured.failed)})"
        data["robustness"] = dataclasses.asdict(measured)
    if summary.failed:
        text += f"; {len(summary.failed)} failed, the last: {failing(store, summary.failed)}"
    if summary.without_guest:
        waiting = ", ".join(summary.without_guest)
        text += f"; runs without a guest were not started ({waiting}); next: vbstudy provision"
    elif not summary.failed:
        text += "; next: vbstudy analyze"
    return data, text
