"""The random numbers of projects that draw them by themselves: which run records them, and which runs are
given them. Runs with fixed seeds all draw the same; where seeds are free, each repetition has numbers of its
own, which are the same on all thread counts.

Every run holds the recording that it was made with, so that the numbers are lost only with the last of
them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from guest.records.codec import RecordError
from guest.records.run import RECORDING, RunSpec, Variant
from guest.replay import recording
from orchestrator.errors import ProtocolError
from orchestrator.store.integrity import DamagedRunError, check_artifact, read_record
from orchestrator.store.store import Store

Numbers = tuple[str, int]
"""(workload, repetition); 0: those of all repetitions."""


def numbers(spec: RunSpec) -> Numbers:
    """Runs with equal ones draw the same random numbers."""
    return spec.workload.name, 0 if spec.variant.seeds_fixed else spec.repetition


def find(store: Store, spec: RunSpec) -> Path | None:
    """The recording for a run, of the first finished run that has it whole; None where there is none yet, or
    the run needs none."""
    for path in _candidates(store, spec) if spec.workload.replays else ():
        with contextlib.suppress(DamagedRunError):
            expected = read_record(path.parent).result.artifacts.get(RECORDING)
            if expected is not None:
                check_artifact(path, expected)
                return path
    return None


def _candidates(store: Store, spec: RunSpec) -> Iterator[Path]:
    _, repetition = numbers(spec)
    for variant in Variant:
        if variant.seeds_fixed == spec.variant.seeds_fixed:
            folder = store.runs / spec.workload.name / variant
            yield from folder.glob(f"*/{f'{repetition:04d}' if repetition else '*'}/{RECORDING}")


def check(path: Path) -> None:
    """Raises ProtocolError for a file that a guest calls a recording and that is none."""
    try:
        recording.read(path)
    except RecordError as error:
        raise ProtocolError(f"the guest's recording cannot be read: {error}") from None
