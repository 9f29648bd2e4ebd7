"""Where operations go that were looked at: what takes them, and the log of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from guest.records.trace import OpNote, Phase, TensorNote

Where = tuple[str, str, str]  # module, source, text
Arrays = Callable[[], Sequence[tuple[str, np.ndarray]]]  # types, and bits as unsigned integers
Receiver = Callable[[str, Phase, Where, Sequence[TensorNote], Sequence[TensorNote], Arrays], None]
"""Takes an operation that has been executed: its name, phase and place, inputs, outputs, and what gives its
outputs if they are wanted."""


class StepLog:
    """The operations of one step, in the order of execution, and the outputs that were to be kept: by
    `<index>/<output>`, floats as unsigned integers of their bits."""

    def __init__(self, keep: frozenset[int]) -> None:
        self.notes: list[OpNote] = []
        self.kept: dict[str, np.ndarray] = {}
        self._keep = keep

    def add(
        self,
        op: str,
        phase: Phase,
        where: Where,
        inputs: Sequence[TensorNote],
        outputs: Sequence[TensorNote],
        arrays: Arrays,
    ) -> None:
        index = len(self.notes)
        if index in self._keep:
            self.kept |= {f"{index}/{i}": bits.copy() for i, (_, bits) in enumerate(arrays())}
        module, source, text = where
        self.notes.append(
            OpNote(
                index=index,
                phase=phase,
                op=op,
                module=module,
                source=source,
                text=text,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
            )
        )
