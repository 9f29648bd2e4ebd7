"""Looks at TensorFlow and Keras at work: every operation of a step, through op callbacks.

The program runs its step as one graph, whose operations Grappler and oneDNN fuse. The step that is looked at
runs eagerly, one operation after the other, from the state that the graph left; whether it comes to the
graph's bits is for the orchestrator to compare."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute  # name scopes and callbacks; no public way leads there
from tensorflow.python.framework import op_callbacks

from guest.records.trace import Phase, TensorNote
from guest.trace import hash as trace_hash
from guest.trace.hash import hash_bytes
from guest.trace.identity import ByIdentity
from guest.trace.log import Receiver, StepLog, Where
from guest.trace.source import line_outside

if TYPE_CHECKING:
    from types import FrameType

    from guest.workloads import Backend
    from guest.workloads.keras_backend import KerasBackend

AS_WRITTEN = False

_READS = "ReadVariableOp"
_OVERWRITES = "AssignVariableOp"
_CHANGES = (
    "AssignAddVariable", "AssignSubVariable", "ResourceApply", "ResourceSparseApply", "ResourceScatter",
    "ResourceStridedSliceAssign",
)  # fmt: skip
# Computes nothing, or makes constants.
_IDLE = frozenset({_READS, "Identity", "NoOp", "Const", "Shape", "VarHandleOp", "Reshape", "StopGradient"})
_APPLIES = frozenset({"apply", "apply_gradients"})  # of an optimizer: what makes a step
_OPTIMIZERS = ("optimizers/base_optimizer.py", "optimizers/optimizer.py", "optimizer_v2/optimizer_v2.py")
_FEW = 8  # elements: others have as few with the same bytes by chance
_HASHES = 100_000  # of forward operations, whose layers are remembered
Noted = tuple[Any, TensorNote]  # a tensor and its note


def gradients(backend: Backend) -> dict[str, np.ndarray]:  # noqa: ARG001
    """See `guest.trace.tasks.Eye`. The graph hands none out; where there is momentum, the optimizer's state
    holds them."""
    return {}


def optimizer_state(backend: Backend) -> dict[str, np.ndarray]:
    """See `guest.trace.tasks.Eye`."""
    variables = cast("KerasBackend", backend).optimizer.variables
    return {f"{i}/{v.path}": v.numpy() for i, v in enumerate(variables)}


@contextmanager
def watch(backend: Backend, keep: frozenset[int]) -> Iterator[StepLog]:
    """See `guest.trace.tasks.Eye`."""
    keras = cast("KerasBackend", backend)
    step = StepLog(keep)
    log = OperationLog([*keras.model.variables, *keras.optimizer.variables], step.add)
    eager = tf.config.functions_run_eagerly()
    look(log)
    try:
        yield step
    finally:
        op_callbacks.remove_op_callback(log.called)
        tf.config.run_functions_eagerly(eager)


def look(log: OperationLog) -> None:
    """From now on in this thread; functions run eagerly. As op_callbacks.add_op_callback, which would also
    initialise TensorFlow: a program could no longer set its threads and devices."""
    tf.config.run_functions_eagerly(True)
    context.context().add_op_callback(log.called)
    execute.execute = execute.execute_with_callbacks


class OperationLog:
    """Gives operations to a receiver. `variables` are Keras's, which have names."""

    def __init__(self, variables: Sequence[Any], to: Receiver) -> None:
        self._to = to
        self._names: ByIdentity[str] = ByIdentity()  # of variables, by their handles
        self._content: ByIdentity[TensorNote] = ByIdentity()  # likewise
        self._known: ByIdentity[TensorNote] = ByIdentity()
        self._lines: dict[str, tuple[str, str]] = {}  # by scope
        self._layers: dict[str, dict[str, str]] = {}  # by what a forward operation saw, by its name
        self._shaped: dict[tuple[str, tuple[int, ...]], set[str]] = {}  # by forward operation, what it gave
        self._reading = False
        self._optimizer: Any = None  # the one that made the last step
        for variable in variables:
            handle = variable.value.handle
            self._names.put(handle, variable.path)
            self._content.put(handle, self._note(variable.value, variable.path))

    def called(
        self,
        op_type: str | bytes,
        inputs: Any,
        attributes: Any,
        outputs: Any,
        op_name: str | None = None,  # noqa: ARG002
        graph: Any = None,
    ) -> None:
        """TensorFlow's callback: an operation was executed (or, with a graph, only made)."""
        if graph is not None or self._reading:
            return
        op_type = op_type.decode() if isinstance(op_type, bytes) else op_type
        if op_type == _READS:
            note = self._note(outputs[0], self._named(inputs[0]))
            self._known.put(outputs[0], note)
            self._content.put(inputs[0], note)
            return
        if op_type in _IDLE:
            return
        notes = [self._noted(t) for t in inputs if _has_bytes(t)]
        after = [(t, self._noted(t)) for t in outputs if _has_bytes(t)]
        if op_type == _OVERWRITES or op_type.startswith(_CHANGES):
            for handle in (t for t in inputs if t.dtype == tf.resource):
                before = self._content.get(handle)
                if before is not None and op_type != _OVERWRITES:
                    notes.insert(0, before)
                value = self._read(handle, attributes)
                note = self._note(value, self._named(handle))
                self._content.put(handle, note)
                after.append((value, note))
        if not after:
            return
        phase, module, source, text = self._where()
        if phase is Phase.FORWARD and module:
            for note in filter(_distinct, (*notes, *(note for _, note in after))):
                self._layers.setdefault(note.hash, {})[op_type] = module
            for note in (note for _, note in after):
                self._shaped.setdefault((op_type, note.shape), set()).add(module)
            if len(self._layers) > _HASHES:
                self._forget_layers()
        if phase is Phase.BACKWARD and not module:
            module = self._layer(op_type, notes)
            source, text = self._lines.get(module, (source, text)) if module else (source, text)
        self._log(op_type, phase, (module, source, text), notes, after)

    def _log(
        self, op: str, phase: Phase, where: Where, notes: Sequence[TensorNote], after: Sequence[Noted]
    ) -> None:
        outputs = [note for _, note in after]
        self._to(op, phase, where, notes, outputs, lambda: typed_bits([t for t, _ in after]))

    def _named(self, handle: Any) -> str:
        return self._names.get(handle) or ""

    def _read(self, handle: Any, attributes: Any) -> Any:
        named = dict(zip(attributes[::2], attributes[1::2], strict=True))
        self._reading = True
        try:
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=named.get("dtype") or named["T"])
        finally:
            self._reading = False

    def _noted(self, tensor: Any) -> TensorNote:
        note = self._known.get(tensor)
        if note is None:
            note = self._note(tensor)
            self._known.put(tensor, note)
        return note

    def _note(self, tensor: Any, name: str = "") -> TensorNote:
        return TensorNote(
            shape=tuple(tensor.shape),
            dtype=tensor.dtype.name,
            hash=f"{hash_bytes(bits_of(tensor)):016x}",
            name=name,
        )

    def _layer(self, op_type: str, notes: Sequence[TensorNote]) -> str:
        """The layer of a gradient whose tape has no name: `ReluGrad` is of the `Relu` that saw the same, and
        `BiasAddGrad`, which saw nothing of it, of the only one that gave this shape."""
        for note in filter(_distinct, notes):
            for forward, layer in self._layers.get(note.hash, {}).items():
                if op_type.startswith(forward):
                    return layer
        for (forward, shape), layers in self._shaped.items():
            if (
                op_type == f"{forward}Grad"
                and len(layers) == 1
                and any(note.shape == shape for note in notes)
            ):
                return next(iter(layers))
        return ""

    def step_over(self) -> None:
        """The step of an optimizer, if one was at work, has ended."""
        self._optimizer = None

    def _forget_layers(self) -> None:
        self._layers.clear()
        self._shaped.clear()

    def _line(self, frame: FrameType | None) -> tuple[str, str]:
        return line_outside(frame, ("tensorflow", "keras"))

    def _where(self) -> tuple[Phase, str, str, str]:
        frame: FrameType | None = sys._getframe(2)
        source, text = self._line(frame)
        while frame is not None:
            name = frame.f_code.co_filename
            if frame.f_code.co_name == "_gradient_function" and name.endswith("eager/backprop.py"):
                scope = str(frame.f_locals.get("forward_pass_name_scope") or "").strip("/")
                line = self._lines.get(scope) if scope else None
                return Phase.BACKWARD, scope, *(line or (source, text))
            if frame.f_code.co_name in _APPLIES and name.endswith(_OPTIMIZERS):
                optimizer = _outermost(frame)
                if optimizer is not self._optimizer:
                    self.step_over()
                    self._optimizer = optimizer
                return Phase.OPTIMIZER, "", source, text
            frame = frame.f_back
        scope = (context.context().scope_name or "").strip("/")
        self._lines[scope] = source, text  # of the last pass: the first one may only have built the layer
        return Phase.FORWARD, scope, source, text


def _outermost(frame: FrameType | None) -> Any:
    """The optimizer at work: one may call another."""
    optimizer = None
    while frame is not None:
        if frame.f_code.co_name in _APPLIES and frame.f_code.co_filename.endswith(_OPTIMIZERS):
            optimizer = frame.f_locals.get("self")
        frame = frame.f_back
    return optimizer


def _distinct(note: TensorNote) -> bool:
    """Whether two of these with equal bytes are the same result: not scalars, axes, or what is empty."""
    return "float" in note.dtype and math.prod(note.shape) > _FEW


def _has_bytes(tensor: Any) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant, tf.string)


def bits_of(tensor: Any) -> np.ndarray:
    """The elements as unsigned integers of their size, one-dimensional."""
    return trace_hash.bits_of(tensor.numpy())


def typed_bits(tensors: Sequence[Any]) -> list[tuple[str, np.ndarray]]:
    """Types and bits of tensors and of variables, TensorFlow's and Keras's."""
    return [(getattr(t.dtype, "name", t.dtype), bits_of(t)) for t in tensors]
