"""Inside a user's program: every primitive of JAX's, in order, to the tracer. Functions run without jit: what
XLA compiles as a whole, and fuses, cannot be looked at."""

from __future__ import annotations

import atexit
import sys
import threading
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax._src import core  # where primitives are evaluated; no public way leads to it

from guest.records.trace import Phase, TensorNote
from guest.trace.hash import bits_of, hash_bytes
from guest.trace.identity import ByIdentity
from guest.trace.log import Where
from guest.trace.wire import Wire

# These compute nothing: copies, shapes, types.
_IDLE = frozenset({"reshape", "squeeze", "broadcast_in_dim", "copy", "copy_p", "stop_gradient", "device_put"})

_APPLIES = "apply_updates"  # of optax, which also has losses
_STEPS = frozenset({"update_fn", _APPLIES})


def start(wire: Wire) -> None:
    """Logs what this thread computes from now on."""
    thread = threading.get_ident()
    jax.config.update("jax_disable_jit", True)
    log = ProgramLog(wire)
    evaluate = core.EvalTrace.process_primitive

    def logged(self: Any, primitive: Any, args: Any, params: Any, /) -> Any:
        result = evaluate(self, primitive, args, params)
        if wire.on and primitive.name not in _IDLE and threading.get_ident() == thread:
            log.evaluated(primitive, args, result)
        return result

    core.EvalTrace.process_primitive = logged
    atexit.register(log.step_over)


class ProgramLog:
    """An optimizer's step is over with the next primitive behind those that apply it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._known: ByIdentity[TensorNote] = ByIdentity()
        self._stepping = False
        self._inside = False

    def evaluated(self, primitive: Any, args: Any, result: Any) -> None:
        """A primitive was, with these arguments."""
        if self._inside:  # reading a result
            return
        self._inside = True
        try:
            phase, where, applies = self._where()
            if not applies:
                self.step_over()
            self._stepping = applies
            outputs = [x for x in (result if primitive.multiple_results else [result]) if _has_bytes(x)]
            inputs = [self._note(x) for x in args if _has_bytes(x)]
            notes = [self._note(x) for x in outputs]
            self._wire.operation(
                "jax", primitive.name, phase, where, inputs, notes, lambda: list(map(_bits, outputs))
            )
        finally:
            self._inside = False

    def step_over(self) -> None:
        if self._stepping:
            self._stepping = False
            self._wire.step(list)

    def _note(self, array: Any) -> TensorNote:
        note = self._known.get(array) if isinstance(array, jax.Array) else None
        if note is None:
            dtype, bits = _bits(array)
            note = TensorNote(shape=np.shape(array), dtype=dtype, hash=f"{hash_bytes(bits):016x}")
            if isinstance(array, jax.Array):
                self._known.put(array, note)
        return note

    def _where(self) -> tuple[Phase, Where, bool]:
        """Also whether an optimizer's step is being applied. Gradients are computed by what transposes a
        program."""
        frame: FrameType | None = sys._getframe(2)
        where = ("", *self._wire.line(frame, ("jax", "optax", "flax")))
        while frame is not None:
            name, function = frame.f_code.co_filename, frame.f_code.co_name
            if function in _STEPS and "/optax/" in name:
                return Phase.OPTIMIZER, where, function == _APPLIES
            if function.startswith("backward_pass"):
                return Phase.BACKWARD, where, False
            frame = frame.f_back
        return Phase.FORWARD, where, False


def _has_bytes(array: Any) -> bool:
    """Not keys of random generators, which have a type of their own, and whose bits are drawn from."""
    return not (isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended))


def _bits(array: Any) -> tuple[str, np.ndarray]:
    """Type and bits."""
    values = np.asarray(array)
    return values.dtype.name, bits_of(values)
