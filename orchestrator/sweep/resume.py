"""What is left to run: the plan without the runs that the store holds in good health."""

from __future__ import annotations

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
    present = _present(store, specs)
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


def _present(store: Store, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those whose folder is there: one listing for each experiment set."""
    listed: dict[str, set[int]] = {}
    present = []
    for spec in specs:
        set_id = spec.set_id
        repetitions = listed.get(set_id)
        if repetitions is None:
            repetitions = listed[set_id] = store.repetitions(set_id)
        if spec.repetition in repetitions:
            present.append(spec)
    return present
