"""What no run can have had, though it is written as a record is. The agent's result is checked by this before
it is stored, and each record when it is read: what passes, every command can read."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from datetime import datetime

from guest.records.codec import fields_of
from guest.records.printable import is_name
from guest.records.run import (
    ARTIFACTS,
    HISTORY,
    METRIC,
    PREDICTIONS,
    RECORDING,
    Hashes,
    RunRecord,
    RunResult,
    ThreadSpec,
    Timings,
    WorkloadSpec,
)

MAX_STEPS = 64  # hashes of weights: one for each power of two, and that is more than any training has steps
MAX_COUNT = 2**31
LONGEST_S = 1e9  # thirty years
SHORTEST_S = 1e-9
YEARS = range(1970, 2200)  # pandas counts nanoseconds in 64 bits
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")


def are_steps(names: Collection[str]) -> bool:
    """Whether these can be the names of step hashes."""
    return len(names) <= MAX_STEPS and all(re.fullmatch(r"[1-9][0-9]{0,17}", name) for name in names)


def is_count(number: int) -> bool:
    return 1 <= number < MAX_COUNT


def is_time(seconds: float) -> bool:
    """Whether ratios and sums of such numbers are finite."""
    return abs(seconds) <= LONGEST_S and (seconds == 0 or abs(seconds) >= SHORTEST_S)


def wrong_result(result: RunResult, workload: WorkloadSpec) -> Iterator[str]:
    """What no run of this workload can have given, a phrase each."""
    own = workload.project is not None  # has no selected model, and no hash of what it does not write
    steps = result.step_hashes
    if not are_steps(steps):
        yield "step_hashes: other names than numbers of steps"
    hashes = {f"hashes.{field.name}": getattr(result.hashes, field.name) for field in fields_of(Hashes)}
    hashes |= {f"step_hashes.{step}": sha256 for step, sha256 in steps.items()}
    for name, sha256 in hashes.items():
        if not (SHA256.fullmatch(sha256) or (own and sha256 == "")):
            yield f"{name}: is no SHA-256"
    if not own and not 1 <= result.selected_epoch <= workload.epochs:
        yield f"selected_epoch: {result.selected_epoch} is not between 1 and {workload.epochs}"
    for view in ("last",) if own else ("last", "selected"):
        for metric in workload.metric_names:
            if metric not in getattr(result, view):
                yield f"{view}: {metric} is missing"
    seconds = {f"timings.{field.name}": getattr(result.timings, field.name) for field in fields_of(Timings)}
    seconds["load_by_others"] = result.load_by_others or 0.0
    for name, value in seconds.items():
        if not is_time(value):
            yield f"{name}: {value} is no number of seconds"


def wrong_record(record: RunRecord) -> Iterator[str]:
    """What no vbstudy wrote, a phrase each."""
    spec, workload, artifacts = record.spec, record.spec.workload, record.result.artifacts
    yield from (f"result.{each}" for each in wrong_result(record.result, workload))
    names = {f"workload.{name}": getattr(workload, name) for name in ("name", "model", "dataset")}
    for name, text in (names | {"study_id": spec.study_id}).items():
        if not is_name(text):
            yield f"{name}: {text!r:.80} is no name"
    metrics = workload.metric_names
    odd = next((name for name in metrics if not re.fullmatch(METRIC, name)), None)
    if odd is not None or not metrics or len(set(metrics)) < len(metrics):
        yield f"workload.metrics: {'none' if not metrics else 'one twice' if odd is None else repr(odd)[:80]}"
    counts = {field.name: getattr(spec.threads, field.name) for field in fields_of(ThreadSpec)}
    for name, count in (counts | {"repetition": spec.repetition}).items():
        if not is_count(count):
            yield f"{name}: {count} is no count"
    unknown = sorted({*artifacts} - {*ARTIFACTS, RECORDING})
    if unknown:
        yield f"result.artifacts: {unknown[0]!r:.80} is no file of a run"
    for name in (HISTORY,) if workload.project else (HISTORY, PREDICTIONS):
        if name not in artifacts:
            yield f"result.artifacts: {name} is missing"
    if not all(is_name(kind) and is_count(n) for kind, n in record.failures.items()):
        yield "failures: has what is no kind of error with its count"
    for name in ("started_at", "finished_at"):
        text = getattr(record, name)
        try:
            known = TIME.fullmatch(text) and datetime.fromisoformat(text).year in YEARS
        except ValueError:
            known = False
        if not known:
            yield f"{name}: {text!r:.80} is no time"
    if not all(math.isfinite(value) for value in record.isolation.host.values()):
        yield "isolation.host: has what is no number"
