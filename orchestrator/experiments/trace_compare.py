"""Compares what two processes logged of the same training: steps, and the operations of one step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.diagnosis.traces import apart
from guest.records.printable import series
from guest.records.trace import NOT_COMPARED, STATES, OpNote, Origin, Outcome, StepNote, TensorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifference:
    """Where two logs part. `origins` are pairs of positions of operations whose inputs are equal and whose
    outputs are not. `at` is the first position of different operations (Outcome.SEQUENCE), else None."""

    outcome: Outcome
    origins: tuple[int, ...] = ()
    at: int | None = None


def first_difference(a: Sequence[StepNote], b: Sequence[StepNote]) -> tuple[int, str] | None:
    """The first step that differs, and in what: `weights, gradients and optimizer state`."""
    for one, other in zip(a, b, strict=True):
        differing = [name for name in STATES if getattr(one, name) != getattr(other, name)]
        if differing:
            return one.step, series(
                ["optimizer state" if name == "optimizer" else name for name in differing]
            )
    return None


def compare(a: Sequence[OpNote], b: Sequence[OpNote]) -> LogDifference:
    """The rule: what started it is the first operation whose inputs match and whose outputs do not. Later
    ones of that kind part by themselves as well, and are named beside it."""
    origins = []
    at = None
    for i, (one, other) in enumerate(zip(a, b, strict=False)):
        if kind(one) != kind(other):
            at = i
            break
        if equal_inputs(one, other) and hashes(one.outputs) != hashes(other.outputs):
            origins.append(i)
    else:
        if len(a) != len(b):
            at = min(len(a), len(b))
    if origins:
        return LogDifference(outcome=Outcome.OPERATION, origins=tuple(origins), at=at)
    if at is not None:
        return LogDifference(outcome=Outcome.SEQUENCE, at=at)
    return LogDifference(outcome=Outcome.UNLOCATED)


def kind(note: OpNote) -> tuple[object, ...]:
    """Notes of two processes stand for the same operation if their kinds are equal."""
    shapes = tuple((t.shape, t.dtype, t.layout) for t in (*note.inputs, *note.outputs))
    return note.op, note.phase, len(note.inputs), shapes


def equal_inputs(one: OpNote, other: OpNote) -> bool:
    """Whether they are known to be equal."""
    inputs = hashes(one.inputs)
    return inputs == hashes(other.inputs) and NOT_COMPARED not in inputs


def hashes(tensors: Sequence[TensorNote]) -> list[str]:
    """What decides whether they are equal."""
    return [tensor.hash for tensor in tensors]


def origin_of(note: OpNote, outputs: Iterable[tuple[np.ndarray, np.ndarray, str]], setting: str) -> Origin:
    """An operation that diverges by itself, with the numbers of the output that differs most; `outputs` are
    bits, bits and type of each."""
    compared = [(*apart(a, b, dtype)[:2], a.size) for a, b, dtype in outputs]
    differing, ulp, elements = max(compared, key=lambda each: each[0], default=(0, None, 0))
    return Origin(
        index=note.index,
        phase=note.phase,
        op=note.op,
        module=note.module,
        source=note.source,
        text=note.text,
        inputs=tuple(map(shown, note.inputs)),
        outputs=tuple(map(shown, note.outputs)),
        differing=differing,
        elements=elements,
        max_ulp=ulp,
        setting=setting,
    )


def dtype_of(note: OpNote) -> str:
    """That in which it computes: of its first input that has one, else of its output."""
    return next((t.dtype for t in (*note.inputs, *note.outputs) if "float" in t.dtype), "")


def shown(tensor: TensorNote) -> str:
    """`conv1.weight float32[6, 1, 5, 5]`, with ` channels_last` behind it where it lies so."""
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)} {tensor.layout}".strip()
