"""The pipeline: plan - store -> engine. What is planned and not in the store is run, and published there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from guest.records import RunSpec
from orchestrator.checked import opened
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import UsageError
from orchestrator.guests import guest_for
from orchestrator.plan import plan
from orchestrator.resume import resume
from orchestrator.store import Store
from orchestrator.study import Study


def sweep(
    study: Study, store: Store, engine: Engine, observer: Observer, repetitions: int | None = None
) -> Summary:
    """Runs what is planned and not in the store. The caller holds the study's lock.
    KeyboardInterrupt stops all guests cleanly and passes on."""
    return run_specs(plan(study, repetitions), store, engine, observer)


def run_specs(specs: list[RunSpec], store: Store, engine: Engine, observer: Observer) -> Summary:
    """As `sweep`, for these runs."""
    began = time.perf_counter()
    store.clear_incoming()
    needed = list(dict.fromkeys(map(guest_for, specs)))
    without = [name for name in needed if not engine.has_guest(name)]
    if without == needed:
        raise UsageError(f"there is no guest {_or(needed)}; run `vbstudy provision`")
    summary = Summary(planned=len(specs), without_guest=without)
    with opened(store.checked_file, store.runs) as checked:
        found = resume(store, specs, checked)
        for spec, reason in found.damaged:
            summary.quarantined.append(spec.run_id)
            observer.quarantined(spec, reason, store.set_aside(spec, reason))
        summary.done_before = len(found.done)
        observer.planned(specs, found.done)
        finished = {spec.run_id for spec in found.done}
        missing = [s for s in specs if s.run_id not in finished and guest_for(s) not in without]
        engine.work(missing, observer, summary, checked)
    store.clear_incoming()  # hosts may have left something that nobody asks for any more
    summary.elapsed_s = time.perf_counter() - began
    return summary


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
