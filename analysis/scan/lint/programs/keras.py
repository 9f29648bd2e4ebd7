"""From which generator Keras takes the seeds of weights, which differs between its versions."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.scan.lint.programs.differ import Pins, pin_of
from analysis.scan.lint.programs.kinds import events_of
from analysis.scan.lint.programs.program import Program, Step
from analysis.scan.lint.registry import version
from analysis.scan.lint.vocabulary import DEFERRED, KERAS_1, TENSORFLOW_1, makes_weights

FIRST_OF_TENSORFLOW = (2, 4)
"""Before it, Keras was a package of its own that asked NumPy."""
FIRST_OF_PYTHON = (2, 10)
ONLY_OF_OLD = (
    "keras.legacy",
    "keras.backend.tensorflow_backend",
    "keras.engine.topology",
    "keras.layers.normalization.BatchNormalization",
)
"""What only that package has."""


def source_of_seeds(program: Program, pinned: Pins) -> str:
    """The generator that decides the weights of Keras: that of NumPy for the old package, of TensorFlow for
    what came with it up to 2.9, of Python since. The newest version is meant unless the project says, or
    uses what only TensorFlow 1 has."""
    stated = version(pin_of(pinned, "keras", program.file.path))
    imports = [event.name for file in program.files for event in events_of(file) if event.kind == "import"]
    if KERAS_1 in program.flags() or any(name.startswith(ONLY_OF_OLD) for name in imports):
        return "numpy"
    is_old = TENSORFLOW_1 in program.flags()
    if stated is None and not is_old:
        return "python"
    if stated is not None and stated >= FIRST_OF_PYTHON:
        return "python"
    is_own_package = any(name.partition(".")[0] == "keras" for name in imports)
    return "numpy" if is_own_package and (stated is None or stated < FIRST_OF_TENSORFLOW) else "tensorflow"


def weights(program: Program) -> Iterator[Step]:
    """The steps that make weights of Keras."""
    for step in program.steps:
        kind, name, _, text = step.event
        is_of_keras = kind == "draw" and name == "tensorflow" and text.startswith("keras.")
        if is_of_keras and makes_weights(text) and not DEFERRED.search(text):
            yield step
