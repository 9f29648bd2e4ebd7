"""What a trace asks, finds and stores (`trace/<id>/trace.json`): the vocabulary that `guest.trace.tasks`, the
orchestrator and the analysis share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from guest.records.codec import RecordError, unseal
from guest.records.run import Artifact, RunRequest, RunSpec, ThreadSpec, WorkloadSpec

TRACE_VERSION = 3
OPERATIONS = "operations.jsonl"
TENSORS = "tensors.safetensors"
TRACE = "trace.json"
NOT_COMPARED = "not compared"  # in place of a tensor's hash: whether two are equal is not known
STATES = ("weights", "gradients", "optimizer", "loss")
"""What of a step is compared: fields of StepNote."""


class Task(StrEnum):
    """What a process is asked to look at, always in a training from the start."""

    STEPS = "steps"  # hashes of weights, gradients and the optimizer's state after each step
    OPERATIONS = "operations"  # every operation of one step, with hashes of what went in and came out
    TENSORS = "tensors"  # what some of these operations gave, in full
    WEIGHTS = "weights"  # the weights after some steps, in full


class Phase(StrEnum):
    """The part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """`steps` are counted from 1: the first and last to hash, the one whose operations are wanted, or those
    after which weights are. `operations` are indices in the log of that step."""

    run: RunRequest
    task: Task
    steps: tuple[int, ...]
    operations: tuple[int, ...] = ()

    @property
    def spec(self) -> RunSpec:
        return self.run.spec

    @property
    def data_folders(self) -> tuple[str, ...]:
        return self.run.data_folders

    @property
    def heartbeat_s(self) -> float:
        return self.run.heartbeat_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    """Hashes after one step (`guest.trace.hash`). `gradients` is "" where the framework keeps none;
    `weights_sha256` is the run record's step hash, at steps 1, 2, 4, ... only."""

    step: int
    loss: str  # hexadecimal
    weights: str
    gradients: str
    optimizer: str
    weights_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorNote:
    """One input or output. `name` is that of a parameter, a buffer or a parameter's gradient; `layout` how it
    lies in memory where that is not in the order of its dimensions: other layouts, other code."""

    shape: tuple[int, ...]
    dtype: str
    hash: str
    name: str = ""
    layout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNote:
    """One operation of a step: `op` as the framework calls it, `module` the path of the layer (of the layer
    whose gradient it computes, in the backward part), `source` the line of the program, `text` what is
    written there. Inputs are hashed before the operation, outputs (and what it changed in place) after."""

    index: int
    phase: Phase
    op: str
    module: str
    source: str
    text: str
    inputs: tuple[TensorNote, ...]
    outputs: tuple[TensorNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnswer:
    """What the agent says when a task is done. `training_steps` is how many the training has,
    `weights_bytes` the size of one model. `as_written` is
    False where the operations were run one by one and the program runs them as one graph."""

    steps: tuple[StepNote, ...]
    training_steps: int
    weights_bytes: int
    artifacts: dict[str, Artifact]
    environment: dict[str, Any]
    as_written: bool = True


class Outcome(StrEnum):
    """What a trace found."""

    EQUAL = "equal"  # to the last bit in all steps that were compared
    OPERATION = "operation"  # an operation with equal inputs gave unequal outputs
    SEQUENCE = "sequence"  # the two ran other operations, with equal inputs up to there
    UNLOCATED = "unlocated"  # the state differs, no operation was seen to make it so
    UNREPEATABLE = "unrepeatable"  # one of the two does not repeat itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An operation whose inputs are equal and whose outputs are not. `differing` of `elements` differ, in the
    output that does so most; `max_ulp` is the largest distance in units of the last place (None: no floats).
    `setting` governs it, by the registry of operations; "" when that does not know it."""

    index: int
    phase: Phase
    op: str
    module: str
    source: str
    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    differing: int
    elements: int
    max_ulp: int | None
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How far one weight lies apart in the two processes after a step. `relative_l2` is |a-b| / |a|."""

    step: int
    layer: str
    elements: int
    differing: int
    max_ulp: int | None
    l2: float
    relative_l2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two processes."""

    guest: str
    threads: ThreadSpec
    run_id: str  # the stored run that was done again; "" without one
    environment: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`trace.json`. `steps` were compared; `step` is the first that differs, None when none does.
    `origins` are in the order of execution, the first is what started it."""

    trace_id: str
    created_at: str
    workload: WorkloadSpec
    variant: str
    sides: tuple[Side, ...]
    outcome: Outcome
    steps: int
    step: int | None
    differs: str  # in what the step differs: `weights, gradients and optimizer state`
    operations: int  # in the log of that step
    origins: tuple[Origin, ...]
    unknown: tuple[str, ...]  # operations of the step that the registry does not know
    growth: tuple[Growth, ...]
    notes: tuple[str, ...]
    tree_sha256: str = ""  # of a project's files; since version 3
    version: int = TRACE_VERSION


def _upgrade(data: dict[str, Any], version: int) -> None:
    data["version"] = TRACE_VERSION
    for origin in data["origins"] if version < 2 else ():
        origin["setting"] = origin.pop("knob")


def decode(text: str | bytes) -> Trace:
    """Raises RecordError for damage, and for the file of a newer vbstudy."""
    trace = unseal(Trace, text, "trace", known=TRACE_VERSION, version="version", upgrade=_upgrade)
    if len(trace.sides) != 2:
        raise RecordError(f"trace: has {len(trace.sides)} sides, not 2")
    if trace.origins and trace.step is None:
        raise RecordError("trace: has operations that differ, and no step that does")
    return trace
