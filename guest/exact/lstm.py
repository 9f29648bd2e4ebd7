"""What `kernels.cpp` does of LSTM layers, in Python: groups of a batch's samples, each by oneDNN's layer.

They are cut above autograd, because a layer that was computed in pieces must be differentiated in pieces:
each has a workspace, in a layout that only oneDNN knows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from guest.exact.plans import pieces_of_lstm
from guest.exact.threads import is_alone, one_thread, spread, tree_sum

OPERATION = "mkldnn_rnn_layer"
_TENSORS = 7  # input, four weights, hidden state, cell state
_INPUT, _STATE = 1, -2  # the dimensions of samples
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)


def replace(library: Any) -> None:
    """Puts it in place of torch's layer, for as long as `library` is there."""
    for key in ("AutogradCPU", "CPU"):
        library.impl(OPERATION, _Replaced(key), key, with_keyset=True, allow_override=True)


class _Replaced:
    """The layer above autograd and below it. Below, its workspace may be asked for, but not in inference."""

    __name__ = "exact_lstm"

    def __init__(self, key: str) -> None:
        self._native = torch.library.get_kernel(f"aten::{OPERATION}", key)
        self._above = key != "CPU"

    def __call__(self, keys: Any, *arguments: Any) -> Any:
        native = functools.partial(self._native.call_boxed, keys)
        if is_alone():
            return native(*arguments)
        transformed = torch._C._are_functorch_transforms_active()  # which know nothing of _Layer
        cut = not transformed if self._above else torch.is_inference_mode_enabled()
        pieces = pieces_of_lstm(arguments) if cut else 1
        if pieces > 1:
            tensors, settings = arguments[:_TENSORS], arguments[_TENSORS:]
            if self._above and torch.is_grad_enabled():
                outputs = _Layer.apply(native, pieces, settings, *tensors)  # type: ignore[no-untyped-call]
            else:
                outputs, _ = _forward(pieces, tensors, settings)
            return (*outputs, torch.empty(0, dtype=torch.uint8))
        with contextlib.nullcontext() if self._above else one_thread():
            return native(*arguments)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, native: Any, pieces: int, settings: Sequence[Any], *tensors: Tensor) -> Any:
        outputs, workspaces = _forward(pieces, tensors, settings, to_be_differentiated=True)
        ctx.native, ctx.pieces, ctx.settings = native, pieces, settings
        ctx.save_for_backward(*tensors, *outputs, *workspaces)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        tensors = ctx.saved_tensors[:_TENSORS]
        if torch.is_grad_enabled():  # to be differentiated again, which torch does of a whole layer
            return (None, None, None, *_differentiable(ctx.native, tensors, ctx.settings, gradients))
        outputs, workspaces = ctx.saved_tensors[_TENSORS : _TENSORS + 3], ctx.saved_tensors[_TENSORS + 3 :]
        found = _backward(ctx.pieces, tensors, ctx.settings, outputs, workspaces, gradients)
        return (None, None, None, *found)


def _forward(
    pieces: int, tensors: Sequence[Tensor], settings: Sequence[Any], to_be_differentiated: bool = False
) -> tuple[tuple[Tensor, Tensor, Tensor], list[Tensor]]:
    """Output, hidden state and cell state of all samples, and what the backward pass needs of each piece."""
    source, weights, states = tensors[0], tensors[1:5], tensors[5:]

    def piece(i: int) -> Any:
        own = (_part(source, _INPUT, i, pieces), *weights, *(_part(s, _STATE, i, pieces) for s in states))
        with torch.set_grad_enabled(to_be_differentiated):  # else there are no workspaces
            return torch.ops.aten.mkldnn_rnn_layer.default.redispatch(_CPU, *own, *settings)

    outputs, hidden, cells, workspaces = zip(*_spread(piece, pieces), strict=True)
    with _below():
        joined = torch.cat(outputs, _INPUT), torch.cat(hidden, _STATE), torch.cat(cells, _STATE)
    return joined, list(workspaces)


def _backward(
    pieces: int,
    tensors: Sequence[Tensor],
    settings: Sequence[Any],
    outputs: Sequence[Tensor],
    workspaces: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """By input, weights and states."""
    source, weights, states = tensors[0], tensors[1:5], tensors[5:]
    reverse, batch_sizes, mode, size, layers, biases, bidirectional, batch_first, train = settings
    rest = reverse, mode, size, layers, biases, train, bidirectional, batch_sizes, batch_first
    dims = (_INPUT, _STATE, _STATE)

    def piece(i: int) -> Any:
        return torch.ops.aten.mkldnn_rnn_layer_backward.default.redispatch(
            _CPU,
            _part(source, _INPUT, i, pieces),
            *weights,
            *(_part(state, _STATE, i, pieces) for state in states),
            *(_part(t, dim, i, pieces) for t, dim in zip(outputs, dims, strict=True)),
            *(t if t is None else _part(t, dim, i, pieces) for t, dim in zip(gradients, dims, strict=True)),
            *rest,
            workspaces[i],
        )

    of_source, *of_weights, of_hidden, of_cells = zip(*_spread(piece, pieces), strict=True)
    with _below():
        return (
            torch.cat(of_source, _INPUT),
            *(tree_sum(list(parts)) for parts in of_weights),
            torch.cat(of_hidden, _STATE),
            torch.cat(of_cells, _STATE),
        )


def _differentiable(
    native: Any, tensors: Sequence[Tensor], settings: Sequence[Any], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad]
    given = [i for i, gradient in enumerate(gradients) if gradient is not None]
    with one_thread():
        outputs = native(*tensors, *settings)
        found = torch.autograd.grad(
            [outputs[i] for i in given],
            [tensors[i] for i in wanted],
            [gradients[i] for i in given],
            create_graph=True,
            allow_unused=True,
        )
    by_place = dict(zip(wanted, found, strict=True))
    return [by_place.get(i) for i in range(_TENSORS)]


def _part(t: Tensor, dim: int, i: int, pieces: int) -> Tensor:
    """Contiguous: oneDNN's layer takes that for granted."""
    length = t.shape[dim] // pieces
    return t.narrow(dim, i * length, length).contiguous()


def _spread(piece: Any, pieces: int) -> list[Any]:
    with _below():  # the threads take it over
        return spread([functools.partial(piece, i) for i in range(pieces)])


@contextlib.contextmanager
def _below() -> Iterator[None]:
    """Below autograd, and below the modes of Python's, which other threads do not have."""
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(_MODES):
        yield
