"""Whether the study file is still the one by which its runs were made."""

from __future__ import annotations

from guest.records.printable import counted
from orchestrator.errors import UsageError
from orchestrator.store.integrity import differences
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.study.plan import block

NAMED = 2  # conditions


def edited(store: Store) -> str:
    """In what the stored runs differ from those that the study file plans, by the first run of each
    condition; empty where they do not, and without a study file that can be read."""
    changed, unplanned = _compared(store)
    found = changed + unplanned
    more = f"; and {counted(len(found) - NAMED, 'more condition')}" if len(found) > NAMED else ""
    return "; ".join(found[:NAMED]) + more


def refused(store: Store) -> bool:
    """Whether a sweep would refuse the study file: stored runs of its plan were made with other settings."""
    return bool(_compared(store)[0])


def _compared(store: Store) -> tuple[list[str], list[str]]:
    """The conditions that were run with other settings, and those that are no longer planned."""
    changed: list[str] = []
    unplanned: list[str] = []
    try:
        study = schema.load(store.study_file)
    except UsageError:
        return changed, unplanned
    folders = (path.relative_to(store.runs).as_posix() for path in sorted(store.runs.glob("*/*/*")))
    specs = [record.spec for set_id in folders for record in store.records(set_id, 1)]
    repetitions = {spec.repetition for spec in specs}
    planned = {spec.run_id: spec for number in repetitions for spec in block(study, number)}
    for spec in specs:
        now = planned.get(spec.run_id)
        if now is None:
            unplanned.append(f"{spec.set_id} is not planned")
        elif spec.comparable != now.comparable:
            changed.append(f"{spec.set_id} was run with {differences(spec, now)}")
    return changed, unplanned
