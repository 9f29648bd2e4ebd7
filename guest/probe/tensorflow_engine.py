"""Operations of the registry in TensorFlow, run eagerly. A module that is a `guest.probe.tasks.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from guest.probe.registry import Operation
from guest.probe.tasks import cotangent
from guest.records.run import Framework
from guest.trace.tensorflow_log import bits_of


def tensors(arrays: Mapping[str, np.ndarray], dtype: str) -> dict[str, Any]:
    return {k: tf.cast(a, dtype) if a.dtype.kind == "f" else tf.constant(a) for k, a in arrays.items()}


def forward(operation: Operation, inputs: Mapping[str, Any]) -> list[Any]:
    outputs = _outputs(operation, inputs)
    for output in outputs:
        output.numpy()  # computed now, not when it is looked at
    return outputs


def backward(operation: Operation, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    sought = [t for t in inputs.values() if t.dtype.is_floating]
    with tf.GradientTape() as tape:
        for tensor in sought:
            tape.watch(tensor)
        outputs = [t for t in _outputs(operation, inputs) if t.dtype.is_floating]
    given = [tf.cast(cotangent(tuple(t.shape)), t.dtype) for t in outputs]

    def compute() -> list[Any]:
        gradients = tape.gradient(outputs, sought, given, tf.UnconnectedGradients.NONE)
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        for gradient in dense:
            gradient.numpy()
        return dense

    return compute


def bits(tensor: Any) -> tuple[np.ndarray, str]:
    return bits_of(tensor), tensor.dtype.name


def _outputs(operation: Operation, inputs: Mapping[str, Any]) -> list[Any]:
    result = operation.compute(Framework.TENSORFLOW, tf, inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]
