"""Sweeps that add runs until the answer is clear. Which conditions are still open is decided by
`analysis.inference.sequential`; here runs are added, and the plan of interim analyses is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import write_durably
from orchestrator.inventory import guest_for
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import Study
from orchestrator.sweep.pipeline import run_missing

OpenSets = Callable[[int], frozenset[str]]
"""Interim analyses done -> the conditions that need more runs."""


def keep_plan(store: Store, interim: Sequence[int], rule: str) -> None:
    """Stores the plan of the interim analyses, or compares it with the stored one: the error rate holds only
    for the analyses that were planned. Raises UsageError for another plan."""
    asked = {"until": rule, "interim": list(interim)}
    if not store.sequential_file.exists():
        write_durably(store.sequential_file, json.dumps({"plan": asked}, indent=1) + "\n")
        return
    begun = _read(store).get("plan")
    if begun != asked:
        text = json.dumps(begun)
        raise UsageError(
            f"{store.sequential_file}: this study has another plan of interim analyses ({text}); use that, "
            "or remove the file to begin again: the stated error rate holds for one plan"
        )


def keep_answers(store: Store, interim_done: int, answers: Any) -> None:
    """Stores the results of the interim analyses with their plan."""
    kept = {"plan": _read(store).get("plan"), "interim_done": interim_done, "answers": answers}
    write_durably(store.sequential_file, json.dumps(kept, indent=1) + "\n")


def _read(store: Store) -> dict[str, Any]:
    try:
        data = plain_json.parse(read_bounded(store.sequential_file, bounded.RECORD), bounded.RECORD)
    except (OSError, ValueError) as error:
        raise StoreError(f"{store.sequential_file}: {error}; remove it to begin again") from None
    if not isinstance(data, dict):
        raise StoreError(f"{store.sequential_file}: is not an object; remove it to begin again")
    plan = data.get("plan")
    if isinstance(plan, dict) and "looks" in plan:  # the key before it was renamed
        data["plan"] = {"until": plan.get("until"), "interim": plan["looks"]}
    return data


def sweep_until(
    study: Study,
    store: Store,
    engine: Engine,
    observer: Observer,
    interim: Sequence[int],
    open_sets: OpenSets,
) -> Summary:
    """Adds runs to the open conditions up to each interim analysis, until none is open or the last one is
    done. Only runs are kept: a killed sweep repeats the same analyses, and finds their runs done."""
    total = Summary()
    active: frozenset[str] | None = None
    before = 0
    for done, n in enumerate(interim, start=1):
        added = [
            spec
            for spec in plan(study, n)
            if spec.repetition > before
            and (active is None or (spec.set_id in active and engine.has_guest(guest_for(spec))))
        ]
        if not added:
            break
        _add(total, run_missing(added, store, engine, observer))
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
