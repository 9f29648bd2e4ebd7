"""Sweeps that add runs until the answer is clear. Which sets are still open is decided elsewhere
(`analysis.sequential`) and handed in; here runs are added, and the planned looks held to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import StoreError, UsageError
from orchestrator.guests import guest_for
from orchestrator.plan import plan
from orchestrator.store import Store, write_durably
from orchestrator.study import Study
from orchestrator.sweep import run_specs

OpenSets = Callable[[int], frozenset[str]]
"""Looks done -> the experiment sets that need more runs."""


def hold_to_plan(store: Store, looks: Sequence[int], rule: str) -> None:
    """Writes the plan of the looks down, or compares it with the one that was begun: an error spent over
    planned looks is kept only by these. Raises UsageError for another plan."""
    asked = {"until": rule, "looks": list(looks)}
    if not store.sequential_file.exists():
        write_durably(store.sequential_file, json.dumps({"plan": asked}, indent=1) + "\n")
        return
    begun = _read(store).get("plan")
    if begun != asked:
        text = json.dumps(begun)
        raise UsageError(
            f"{store.sequential_file}: this study's looks were planned otherwise ({text}); go on with those, "
            "or remove the file to begin anew: the error stated holds for one plan"
        )


def note(store: Store, looks_done: int, answers: Any) -> None:
    """Keeps what the looks said beside their plan."""
    kept = {"plan": _read(store).get("plan"), "looks_done": looks_done, "answers": answers}
    write_durably(store.sequential_file, json.dumps(kept, indent=1) + "\n")


def _read(store: Store) -> dict[str, Any]:
    try:
        data = json.loads(store.sequential_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{store.sequential_file}: {error}; remove it to begin anew") from None
    if not isinstance(data, dict):
        raise StoreError(f"{store.sequential_file}: is not an object; remove it to begin anew")
    return data


def sweep_until(
    study: Study,
    store: Store,
    engine: Engine,
    observer: Observer,
    looks: Sequence[int],
    open_sets: OpenSets,
) -> Summary:
    """Brings the open sets from look to look, until none is open or the last look is done. Nothing
    is kept but the runs: a killed sweep goes through the same looks again, and finds them done."""
    total = Summary()
    active: frozenset[str] | None = None
    before = 0
    for done, n in enumerate(looks, start=1):
        added = [
            spec
            for spec in plan(study, n)
            if spec.repetition > before
            and (active is None or (spec.set_id in active and engine.has_guest(guest_for(spec))))
        ]
        if not added:
            break
        _add(total, run_specs(added, store, engine, observer))
        active, before = open_sets(done), n
        if not active:
            break
    return total


def _add(total: Summary, part: Summary) -> None:
    total.planned += part.planned
    total.done_before += part.done_before
    total.done_now += part.done_now
    total.failed += part.failed
    total.quarantined += part.quarantined
    total.without_guest += [name for name in part.without_guest if name not in total.without_guest]
    total.elapsed_s += part.elapsed_s
