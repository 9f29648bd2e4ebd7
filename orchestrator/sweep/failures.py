"""The attempts that failed, by the evidence that they left."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.load.failures import evidence
from guest.records.printable import printable
from orchestrator.store.store import Store
from orchestrator.study.plan import conditions, planned
from orchestrator.study.schema import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt; the text is the guest's, made printable. `evidence` is a path in the study."""

    run_id: str
    at: str
    why: str
    evidence: str


def failures(store: Store) -> Iterator[Failure]:
    """The newest first."""
    found = (_failure(store, path) for path in store.attempts())
    return (each for each in found if each is not None)


def failing(store: Store, run_ids: Collection[str] | None = None) -> str:
    """The last error of these runs, or of any, and what to do; "" where none has failed."""
    last = next((each for each in failures(store) if run_ids is None or each.run_id in run_ids), None)
    if last is None:
        return ""
    return f"{last.run_id} failed with {last.why} (evidence: {last.evidence}); mend the cause first"


def missing(study: Study, store: Store, runs: int | None = None) -> set[str]:
    """The ids of the planned runs that are not done; of `runs` of each condition instead, where given."""
    return {
        f"{spec.set_id}/{repetition:04d}"
        for spec in conditions(study)
        for repetition in {*range(1, planned(study, spec.variant, runs) + 1)} - store.repetitions(spec.set_id)
    }


def _failure(store: Store, folder: Path) -> Failure | None:
    if not (data := evidence(folder)):
        return None  # it is being written, or was too large to be shown
    first, *more = f"{data.get('kind')}: {data.get('message')}".splitlines()  # more is what a program printed
    return Failure(
        run_id=printable(str(data.get("run_id")), limit=200),
        at=printable(str(data.get("at")), limit=40),
        why=printable(" ".join([first, *more[-1:]]), limit=300),
        evidence=folder.relative_to(store.directory).as_posix(),
    )
