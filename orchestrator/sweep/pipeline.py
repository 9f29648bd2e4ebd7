"""The pipeline: planned runs that are not in the store are run by the engine, and published there."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from guest.records.run import RunSpec
from orchestrator.cores.leases import host_cores
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import UsageError
from orchestrator.inventory import guest_for
from orchestrator.store.index import Checked, opened
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store


def run_missing(
    specs: list[RunSpec],
    store: Store,
    engine: Engine,
    observer: Observer,
    starting: Callable[[], None] = lambda: None,
) -> Summary:
    """Runs those of `specs` that are not in the store. The caller holds the study's lock. `starting` is
    called when nothing here refuses them. KeyboardInterrupt stops all guests cleanly and passes on."""
    began = time.perf_counter()
    store.clear_incoming()
    needed = list(dict.fromkeys(map(guest_for, specs)))  # point: plan checked
    summary = Summary(planned=len(specs))
    with opened(store.checked_file, store.runs) as checked:
        found = resume(store, specs, checked)  # point: store checked
        finished = {spec.run_id for spec in found.done}
        unfinished = [spec for spec in specs if spec.run_id not in finished]
        waiting = list(dict.fromkeys(map(guest_for, unfinished)))
        without = summary.without_guest = [name for name in waiting if not engine.has_guest(name)]
        if without and not any(map(engine.has_guest, needed)):
            raise UsageError(f"there is no guest {_or(without)}; run `vbstudy provision`")
        for spec, reason in found.damaged:  # point: damage found
            summary.quarantined.append(spec.run_id)
            observer.quarantined(spec, reason, store.quarantine(spec, reason))  # point: damage reported
        summary.done_before = len(found.done)
        observer.planned(specs, found.done)  # point: plan reported
        missing = [spec for spec in unfinished if guest_for(spec) not in without]
        if missing:
            store.require_one_disk(store.runs, store.failed)
        starting()
        engine.run(missing, observer, summary, checked)
    store.clear_incoming()  # hosts may have left files of runs that are no longer planned
    summary.elapsed_s = time.perf_counter() - began  # point: all guests at rest
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Planned runs: done, damaged (with the reason), and how many of them were read to know it."""

    done: list[RunSpec]
    damaged: list[tuple[RunSpec, str]]
    read: int


def resume(store: Store, specs: Sequence[RunSpec], checked: Checked) -> Resumption:
    """Reads all bytes of the planned runs in the store, but of those that `checked` knows to be whole.
    Changes nothing but `checked`. Raises as `Store.check` for runs that are not this study's to judge."""
    repetitions = functools.cache(store.repetitions)  # one listing for each experiment set
    present = [spec for spec in specs if spec.repetition in repetitions(spec.set_id)]
    unread = [spec for spec in present if not checked.holds(spec)]

    def damage(spec: RunSpec) -> str:
        before = checked.state(spec)  # what is written while it is read will show
        try:
            store.check(spec)
        except DamagedRunError as error:
            return str(error)
        checked.add(spec, before)
        return ""

    with ThreadPoolExecutor(max_workers=len(host_cores())) as pool:
        reasons = list(pool.map(damage, unread))  # hashing lets other threads run
    damaged = [(spec, reason) for spec, reason in zip(unread, reasons, strict=True) if reason]
    broken = {spec.run_id for spec, _ in damaged}
    done = [spec for spec in present if spec.run_id not in broken] if broken else present
    return Resumption(done=done, damaged=damaged, read=len(unread))


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
