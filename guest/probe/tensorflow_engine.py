"""Operations of the registry in TensorFlow, run eagerly. A module that is a `guest.probe.tasks.Engine`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from guest.probe.registry import Operation
from guest.records.run import Framework
from guest.trace.tensorflow_log import bits_of


def tensors(arrays: Sequence[np.ndarray], dtype: str) -> list[Any]:
    return [tf.cast(a, dtype) if a.dtype.kind == "f" else tf.constant(a) for a in arrays]


def forward(operation: Operation, inputs: Sequence[Any]) -> list[Any]:
    outputs = _outputs(operation, inputs)
    for output in outputs:
        output.numpy()  # computed now, not when it is looked at
    return outputs


def backward(operation: Operation, inputs: Sequence[Any]) -> Callable[[], list[Any]]:
    sought = [t for t in inputs if t.dtype.is_floating]
    with tf.GradientTape() as tape:
        for tensor in sought:
            tape.watch(tensor)
        outputs = [t for t in _outputs(operation, inputs) if t.dtype.is_floating]
    given = [_cotangent(t) for t in outputs]

    def compute() -> list[Any]:
        gradients = tape.gradient(outputs, sought, given, tf.UnconnectedGradients.NONE)
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        for gradient in dense:
            gradient.numpy()
        return dense

    return compute


def bits(tensor: Any) -> tuple[np.ndarray, str]:
    return bits_of(tensor), tensor.dtype.name


def _outputs(operation: Operation, inputs: Sequence[Any]) -> list[Any]:
    call = operation.call(Framework.TENSORFLOW)
    assert call is not None  # noqa: S101  (asked before)
    result = call(tf, *inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _cotangent(output: Any) -> Any:
    """What flows back into an output: drawn, equal in all processes."""
    shape = tuple(output.shape)
    drawn = np.random.Generator(np.random.PCG64(zlib.crc32(str(shape).encode()))).standard_normal(shape)
    return tf.cast(np.asarray(drawn), output.dtype)
