"""What is left to run: the plan without the runs that the store holds in good health."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from guest.records.run import RunSpec
from orchestrator.cores.leases import host_cores
from orchestrator.store.index import Checked
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store


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
