"""The pipeline: planned runs that are not in the store are run by the engine, and published there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from guest.records.run import RunSpec
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import UsageError
from orchestrator.inventory import guest_for
from orchestrator.store.index import opened
from orchestrator.store.store import Store
from orchestrator.sweep.resume import resume


def run_missing(specs: list[RunSpec], store: Store, engine: Engine, observer: Observer) -> Summary:
    """Runs those of `specs` that are not in the store. The caller holds the study's lock.
    KeyboardInterrupt stops all guests cleanly and passes on."""
    began = time.perf_counter()
    store.clear_incoming()
    needed = list(dict.fromkeys(map(guest_for, specs)))  # point: plan checked
    without = [name for name in needed if not engine.has_guest(name)]
    if without == needed:
        raise UsageError(f"there is no guest {_or(needed)}; run `vbstudy provision`")
    summary = Summary(planned=len(specs), without_guest=without)
    with opened(store.checked_file, store.runs) as checked:
        found = resume(store, specs, checked)  # point: store checked
        for spec, reason in found.damaged:  # point: damage found
            summary.quarantined.append(spec.run_id)
            observer.quarantined(spec, reason, store.quarantine(spec, reason))  # point: damage reported
        summary.done_before = len(found.done)
        observer.planned(specs, found.done)  # point: plan reported
        finished = {spec.run_id for spec in found.done}
        missing = [s for s in specs if s.run_id not in finished and guest_for(s) not in without]
        engine.run(missing, observer, summary, checked)
    store.clear_incoming()  # hosts may have left files of runs that are no longer planned
    summary.elapsed_s = time.perf_counter() - began  # point: all guests at rest
    return summary


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
