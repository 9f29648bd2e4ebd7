"""The pipeline: plan - store -> engine. What is planned and not in the store is run, and published there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from guest.records import RunSpec
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import UsageError
from orchestrator.guests import guest_for
from orchestrator.plan import plan
from orchestrator.scheduler import host_cores
from orchestrator.store import DamagedRunError, Store
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
    done = _stored(store, specs, summary, observer)
    summary.done_before = len(done)
    observer.planned(specs, done)
    finished = {spec.run_id for spec in done}
    missing = [s for s in specs if s.run_id not in finished and guest_for(s) not in without]
    engine.work(missing, observer, summary)
    summary.elapsed_s = time.perf_counter() - began
    return summary


def _stored(store: Store, specs: list[RunSpec], summary: Summary, observer: Observer) -> list[RunSpec]:
    """The runs that the store holds in good health. Damaged ones are set aside, to be redone."""
    present = [spec for spec in specs if store.folder(spec).exists()]

    def damage(spec: RunSpec) -> str:
        try:
            store.check(spec)
        except DamagedRunError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(max_workers=len(host_cores())) as pool:
        reasons = list(pool.map(damage, present))  # hashing lets other threads run
    for spec, reason in zip(present, reasons, strict=True):
        if reason:
            summary.quarantined.append(spec.run_id)
            observer.quarantined(spec, reason, store.set_aside(spec, reason))
    return [spec for spec, reason in zip(present, reasons, strict=True) if not reason]


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
