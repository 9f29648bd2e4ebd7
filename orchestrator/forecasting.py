"""Reads what a forecast is made from: the study, the stored runs, the disk."""

from __future__ import annotations

import shutil

from guest.records import RECORD, RunSpec
from orchestrator.forecast import Detectable, Forecast, Needed, forecast, measured
from orchestrator.plan import plan
from orchestrator.scheduler import host_cores
from orchestrator.store import Store
from orchestrator.study import ModelSelection, Study

Planned = tuple[Detectable, Needed]
VIEWS = {
    ModelSelection.BOTH: ("last", "selected"),
    ModelSelection.LAST: ("last",),
    ModelSelection.SELECTED: ("selected",),
}


def to_do(study: Study, store: Store, repetitions: int | None) -> list[RunSpec]:
    """The planned runs that are not stored."""
    return [spec for spec in plan(study, repetitions) if not store.has(spec)]


def examine(
    study: Study,
    store: Store,
    repetitions: int | None,
    difference: float,
    sd: float | None,
    u: Planned,
    welch: Planned,
) -> Forecast:
    stored = [
        measured(record, (store.folder(record.spec) / RECORD).stat().st_size) for record in store.records()
    ]
    return forecast(
        plan(study, repetitions),
        stored,
        views=VIEWS[study.model_selection],
        cores=len(host_cores()),
        side_by_side=study.engine.side_by_side,
        free_bytes=shutil.disk_usage(store.directory).free,
        difference=difference,
        sd=sd,
        u=u,
        welch=welch,
    )
