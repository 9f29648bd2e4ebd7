"""Operations of the registry in PyTorch. A module that is a `guest.probe.tasks.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from guest.probe.registry import Operation
from guest.probe.tasks import cotangent
from guest.records.run import Framework
from guest.trace.torch_log import bits_of


def tensors(arrays: Mapping[str, np.ndarray], dtype: str) -> dict[str, Any]:
    kind = getattr(torch, dtype)
    made = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {k: t.to(kind).requires_grad_() if t.is_floating_point() else t for k, t in made.items()}


def forward(operation: Operation, inputs: Mapping[str, Any]) -> list[Any]:
    with torch.no_grad():
        return _outputs(operation, inputs)


def backward(operation: Operation, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    outputs = [t for t in _outputs(operation, inputs) if t.requires_grad]
    sought = [t for t in inputs.values() if t.requires_grad]
    given = [torch.from_numpy(cotangent(tuple(t.shape))).to(t.dtype) for t in outputs]

    def compute() -> list[Any]:
        gradients = torch.autograd.grad(outputs, sought, given, allow_unused=True)
        return [g for g in gradients if g is not None]

    return compute


def bits(tensor: Any) -> tuple[np.ndarray, str]:
    return bits_of(tensor), str(tensor.dtype).removeprefix("torch.")


def _outputs(operation: Operation, inputs: Mapping[str, Any]) -> list[Any]:
    result = operation.compute(Framework.TORCH, torch, inputs)
    return [result] if isinstance(result, Tensor) else [t for t in result if isinstance(t, Tensor)]
