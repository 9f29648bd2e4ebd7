"""Operations of the registry in PyTorch. A module that is a `guest.probe.tasks.Engine`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from guest.probe.registry import Operation
from guest.records.run import Framework
from guest.trace.torch_log import bits_of


def tensors(arrays: Sequence[np.ndarray], dtype: str) -> list[Any]:
    kind = getattr(torch, dtype)
    made = [torch.from_numpy(a) for a in arrays]
    return [t.to(kind).requires_grad_() if t.is_floating_point() else t for t in made]


def forward(operation: Operation, inputs: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        return _outputs(operation, inputs)


def backward(operation: Operation, inputs: Sequence[Any]) -> Callable[[], list[Any]]:
    outputs = [t for t in _outputs(operation, inputs) if t.requires_grad]
    sought = [t for t in inputs if t.requires_grad]
    given = [_cotangent(t) for t in outputs]

    def compute() -> list[Any]:
        gradients = torch.autograd.grad(outputs, sought, given, allow_unused=True)
        return [g for g in gradients if g is not None]

    return compute


def bits(tensor: Any) -> tuple[np.ndarray, str]:
    return bits_of(tensor), str(tensor.dtype).removeprefix("torch.")


def _outputs(operation: Operation, inputs: Sequence[Any]) -> list[Any]:
    call = operation.call(Framework.TORCH)
    assert call is not None  # noqa: S101  (asked before)
    result = call(torch, *inputs)
    return [result] if isinstance(result, Tensor) else [t for t in result if isinstance(t, Tensor)]


def _cotangent(output: Tensor) -> Tensor:
    """What flows back into an output: drawn, equal in all processes."""
    seed = zlib.crc32(str(tuple(output.shape)).encode())
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal(tuple(output.shape))
    return torch.from_numpy(np.asarray(drawn)).to(output.dtype)
