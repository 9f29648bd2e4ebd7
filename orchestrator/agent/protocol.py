"""What the agent says, read by the host. A guest may say anything: what is not the protocol ends in
ProtocolError, and nothing that passes here makes the store, the terminal or the analysis fail later."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from guest.machine.seeds import SEED_BITS
from guest.records.codec import RecordError, fields_of, from_json
from guest.records.plain_json import PlainJsonError, parse
from guest.records.printable import printable
from guest.records.run import Message, RunResult, RunSpec, Seeds
from guest.records.valid import wrong_result
from orchestrator.errors import ProtocolError

KINDS = ("hello", "epoch", "heartbeat", "done", "error")
SHOWN = 120  # characters of what is no message
MAX_EPOCH = 10**9  # that is shown


def parse_message(line: bytes) -> Message:
    """One line of the agent. Raises ProtocolError for anything that is not a message."""
    shown = printable(line[:SHOWN].decode(errors="replace").rstrip())
    try:
        data = parse(line)
    except PlainJsonError as error:
        raise ProtocolError(f"the agent sent something that cannot be read: {shown!r} ({error})") from None
    if (
        not isinstance(data, dict)
        or set(data) != {"kind", "run_id", "body"}
        or not isinstance(data["run_id"], str)
        or not isinstance(data["body"], dict)
        or data["kind"] not in KINDS
    ):
        raise ProtocolError(f"the agent sent something that is not a message: {shown!r}")
    return Message(**data)


def read_result(body: dict[str, Any], spec: RunSpec) -> RunResult:
    """The result in the body of a `done`. Raises ProtocolError that names what is wrong with it."""
    try:
        result = from_json(RunResult, body.get("result"), "done.result")
    except RecordError as error:
        raise ProtocolError(f"{spec.run_id}: the agent's result is malformed: {error}") from None
    wrong = next(_wrong(result, spec), None)
    if wrong:
        raise ProtocolError(f"{spec.run_id}: the agent's result is malformed: done.result.{wrong}")
    return result


def _wrong(result: RunResult, spec: RunSpec) -> Iterator[str]:
    """What no run of this spec can have had, a phrase each."""
    for field in fields_of(Seeds):
        asked, used = getattr(spec.seeds, field.name), getattr(result.seeds_used, field.name)
        if spec.workload.replays:
            if used is not None:
                yield f"seeds_used.{field.name}: {used} where none was to be set"
        elif used is None or (asked is not None and used != asked) or not 0 <= used < 2**SEED_BITS:
            yield f"seeds_used.{field.name}: {used} is not what was asked for"
    if spec.workload.replays and (result.project is None or result.project.random.how == "seeded"):
        yield "project.random: says nothing of a recording"
    yield from wrong_result(result, spec.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What an `epoch` message tells those who watch: numbers, and only those that are."""

    epoch: int
    train_loss: float  # NaN where none was reported
    scores: dict[str, float]  # the last model's test metrics


def read_epoch(body: dict[str, Any]) -> Epoch:
    """Never fails, for what `parse_message` gave: the message is for show."""
    numbers = {
        name: float(value)
        for name, value in body.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    epoch = numbers.get("epoch", 0.0)
    return Epoch(
        epoch=int(min(max(epoch, 0), MAX_EPOCH)) if math.isfinite(epoch) else 0,
        train_loss=numbers.get("train_loss", math.nan),
        scores={
            name.removeprefix("test_"): value
            for name, value in numbers.items()
            if name.startswith("test_") and name != "test_loss"
        },
    )
