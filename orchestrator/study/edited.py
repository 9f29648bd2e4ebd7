"""Whether the study file is still the one by which its runs were made."""

from __future__ import annotations

import dataclasses

from orchestrator.errors import UsageError
from orchestrator.store.integrity import differences
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.study.plan import block

NAMED = 2  # conditions


def edited(store: Store) -> str:
    """In what the stored runs differ from those that the study file plans, by the first run of each
    condition; empty where they do not, and without a study file that can be read."""
    try:
        study = schema.load(store.study_file) if store.study_file.is_file() else None
    except UsageError:
        return ""
    folders = (path.relative_to(store.runs).as_posix() for path in sorted(store.runs.glob("*/*/*")))
    specs = [record.spec for set_id in folders for record in store.records(set_id, 1)]
    if study is None or not specs:
        return ""
    repetitions = {spec.repetition for spec in specs}
    planned = {spec.run_id: spec for number in repetitions for spec in block(study, number)}
    found = []
    for spec in specs:
        now = planned.get(spec.run_id)
        if now is None:
            found.append(f"{spec.set_id} is not planned")
        elif dataclasses.replace(spec, schema_version=now.schema_version) != now:
            found.append(f"{spec.set_id} was run with {differences(spec, now)}")
    more = f"; and {len(found) - NAMED} more conditions" if len(found) > NAMED else ""
    return "; ".join(found[:NAMED]) + more
