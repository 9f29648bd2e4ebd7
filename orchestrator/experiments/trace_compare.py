"""Compares what two processes logged of the same training: steps, and the operations of one step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from guest.records.trace import STATES, OpNote, Outcome, StepNote, TensorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifference:
    """Where two logs part. `origins` are pairs of positions of operations whose inputs are equal and whose
    outputs are not. `at` is the first position of different operations (Outcome.SEQUENCE), else None."""

    outcome: Outcome
    origins: tuple[int, ...] = ()
    at: int | None = None


def first_difference(a: Sequence[StepNote], b: Sequence[StepNote]) -> tuple[int, str] | None:
    """The first step that differs, and in what: `gradients and weights`."""
    for one, other in zip(a, b, strict=True):
        differing = [name for name in STATES if getattr(one, name) != getattr(other, name)]
        if differing:
            return one.step, " and ".join(differing)
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
        if hashes(one.inputs) == hashes(other.inputs) and hashes(one.outputs) != hashes(other.outputs):
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


def hashes(tensors: Sequence[TensorNote]) -> list[str]:
    """What decides whether they are equal."""
    return [tensor.hash for tensor in tensors]
