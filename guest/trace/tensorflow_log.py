"""Looks at TensorFlow and Keras at work: every operation of a step, through op callbacks.

The program runs its step as one graph, whose operations Grappler and oneDNN fuse. The step that is looked at
runs eagerly, one operation after the other, from the state that the graph left; whether it comes to the
graph's bits is for the orchestrator to compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the name scope in force; no public way leads to it
from tensorflow.python.framework import op_callbacks

from guest.records.trace import OpNote, Phase, TensorNote
from guest.trace.hash import hash_bytes
from guest.trace.source import line_outside

if TYPE_CHECKING:
    from types import FrameType

    from guest.workloads import Backend
    from guest.workloads.keras_backend import KerasBackend

AS_WRITTEN = False

_READS = "ReadVariableOp"
_ASSIGNS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
# Computes nothing, or makes constants.
_IDLE = frozenset({_READS, "Identity", "NoOp", "Const", "Shape", "VarHandleOp", "Reshape", "StopGradient"})
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def gradients(backend: Backend) -> dict[str, np.ndarray]:  # noqa: ARG001
    """See `guest.trace.tasks.Eye`. The graph hands none out; where there is momentum, the optimizer's state
    holds them."""
    return {}


def optimizer_state(backend: Backend) -> dict[str, np.ndarray]:
    """See `guest.trace.tasks.Eye`."""
    variables = cast("KerasBackend", backend).optimizer.variables
    return {f"{i}/{v.path}": v.numpy() for i, v in enumerate(variables)}


@contextmanager
def watch(backend: Backend, keep: frozenset[int]) -> Iterator[OperationLog]:
    """See `guest.trace.tasks.Eye`."""
    keras = cast("KerasBackend", backend)
    log = OperationLog([*keras.model.variables, *keras.optimizer.variables], keep)
    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    op_callbacks.add_op_callback(log.called)
    try:
        yield log
    finally:
        op_callbacks.remove_op_callback(log.called)
        tf.config.run_functions_eagerly(eager)


class OperationLog:
    """Implements `guest.trace.tasks.Log`. `variables` are Keras's."""

    def __init__(self, variables: Sequence[Any], keep: frozenset[int]) -> None:
        self.notes: list[OpNote] = []
        self.kept: dict[str, np.ndarray] = {}
        self._keep = keep
        self._variables = {id(v.value.handle): v for v in variables}
        self._content = {handle: self._note(v.value) for handle, v in self._variables.items()}
        self._alive: dict[int, tuple[Any, TensorNote]] = {}  # tensors seen: no identity is used twice
        self._lines: dict[str, tuple[str, str]] = {}
        self._layers: dict[tuple[str, str], str] = {}  # by forward operation and hash of what it saw
        self._reading = False

    def called(
        self,
        op_type: str | bytes,
        inputs: Any,
        attributes: Any,  # noqa: ARG002
        outputs: Any,
        op_name: str | None = None,  # noqa: ARG002
        graph: Any = None,
    ) -> None:
        """TensorFlow's callback: an operation was executed (or, with a graph, only made)."""
        if graph is not None or self._reading:
            return
        op_type = op_type.decode() if isinstance(op_type, bytes) else op_type
        if op_type == _READS:
            variable = self._variables.get(id(inputs[0]))
            if variable is not None:
                note = self._note(outputs[0], variable.path)
                self._alive[id(outputs[0])] = (outputs[0], note)
            return
        if op_type in _IDLE:
            return
        index = len(self.notes)
        given = [t for t in inputs if id(t) not in self._variables]
        notes = [self._known(t) for t in given if _has_bytes(t)]
        after = [(t, self._known(t)) for t in outputs if _has_bytes(t)]
        if op_type in _ASSIGNS and (variable := self._variables.get(id(inputs[0]))) is not None:
            if op_type != "AssignVariableOp":
                notes.insert(0, self._content[id(inputs[0])])
            value = self._read(variable)
            self._content[id(inputs[0])] = note = self._note(value, variable.path)
            after.append((value, note))
        if not after:
            return
        if index in self._keep:
            self.kept |= {f"{index}/{i}": bits_of(t).copy() for i, (t, _) in enumerate(after)}
        phase, module, source, text = self._where()
        if phase is Phase.FORWARD and module:
            for note in (*notes, *(note for _, note in after)):
                self._layers.setdefault((op_type, note.hash), module)
        if phase is Phase.BACKWARD and not module:
            module = self._layer(op_type, notes)
            source, text = self._lines.get(module, (source, text))
        self.notes.append(
            OpNote(
                index=index,
                phase=phase,
                op=op_type,
                module=module,
                source=source,
                text=text,
                inputs=tuple(notes),
                outputs=tuple(note for _, note in after),
            )
        )

    def _read(self, variable: Any) -> Any:
        self._reading = True
        try:
            return variable.value.read_value()
        finally:
            self._reading = False

    def _known(self, tensor: Any) -> TensorNote:
        if id(tensor) not in self._alive:
            self._alive[id(tensor)] = (tensor, self._note(tensor))
        return self._alive[id(tensor)][1]

    def _note(self, tensor: Any, name: str = "") -> TensorNote:
        return TensorNote(
            shape=tuple(tensor.shape),
            dtype=tensor.dtype.name,
            hash=f"{hash_bytes(bits_of(tensor)):016x}",
            name=name,
        )

    def _layer(self, op_type: str, notes: Sequence[TensorNote]) -> str:
        """The layer of a gradient whose tape has no name: `ReluGrad` is of the `Relu` that saw the same."""
        return next(
            (
                layer
                for (forward, hashed), layer in self._layers.items()
                if op_type.startswith(forward) and any(note.hash == hashed for note in notes)
            ),
            "",
        )

    def _where(self) -> tuple[Phase, str, str, str]:
        frame: FrameType | None = sys._getframe(2)
        source, text = line_outside(frame, ("tensorflow", "keras"))
        while frame is not None:
            name = frame.f_code.co_filename
            if frame.f_code.co_name == "_gradient_function" and name.endswith("eager/backprop.py"):
                scope = str(frame.f_locals.get("forward_pass_name_scope") or "").strip("/")
                return Phase.BACKWARD, scope, *self._lines.get(scope, (source, text))
            if "/keras/src/optimizers/" in name:
                return Phase.OPTIMIZER, "", source, text
            frame = frame.f_back
        scope = (context.context().scope_name or "").strip("/")
        self._lines.setdefault(scope, (source, text))
        return Phase.FORWARD, scope, source, text


def _has_bytes(tensor: Any) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant, tf.string)


def bits_of(tensor: Any) -> np.ndarray:
    """The elements as unsigned integers of their size, one-dimensional."""
    array = np.ascontiguousarray(tensor.numpy()).reshape(-1)
    return array.view(np.uint8).view(_BITS[array.dtype.itemsize])
