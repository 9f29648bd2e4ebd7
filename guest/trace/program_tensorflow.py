"""Inside a user's program: every operation of TensorFlow's, in order, to the tracer. Functions run eagerly:
within a graph, operations are fused and cannot be looked at."""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from guest.records.trace import Phase, TensorNote
from guest.trace.log import Where
from guest.trace.tensorflow_log import Noted, OperationLog, look, typed_bits
from guest.trace.wire import Wire


def start(wire: Wire) -> None:
    """Logs what this thread does from now on."""
    log = ProgramLog(wire)
    look(log)
    atexit.register(log.step_over)


class ProgramLog(OperationLog):
    """The log of a program whose variables are not known before they compute. An optimizer's step is over
    with the next operation that is none of the optimizer's."""

    def __init__(self, wire: Wire) -> None:
        super().__init__([], functools.partial(wire.operation, "tensorflow"))
        self._wire = wire

    def called(self, *args: Any, **kwargs: Any) -> None:
        if self._wire.on:
            super().called(*args, **kwargs)

    def _line(self, frame: FrameType | None) -> tuple[str, str]:
        return self._wire.line(frame, ("tensorflow", "keras"))

    def _log(
        self, op: str, phase: Phase, where: Where, notes: Sequence[TensorNote], after: Sequence[Noted]
    ) -> None:
        if phase is not Phase.OPTIMIZER:
            self.step_over()
        super()._log(op, phase, where, notes, after)

    def _named(self, handle: Any) -> str:
        name = self._names.get(handle)
        if name is None:
            frame: FrameType | None = sys._getframe(2)
            while frame is not None:
                variable = frame.f_locals.get("self")
                if getattr(variable, "_handle", None) is handle:
                    name = variable.name.partition(":")[0]  # type: ignore[union-attr]
                    break
                frame = frame.f_back
            self._names.put(handle, name or "")
        return name or ""

    def step_over(self) -> None:
        optimizer = self._optimizer
        super().step_over()
        if optimizer is not None:
            self._forget_layers()
            self._reading = True
            try:
                variables = getattr(optimizer, "_trainable_variables", ())
                self._wire.step(lambda: typed_bits(variables))
            finally:
                self._reading = False
