"""How each operation is cut: the planners of `kernels.cpp`, for `pieces.py`. Shapes decide, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from guest.exact.limits import LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`size` of `cuts` (argument, dimension) is divided into at most `pieces`, multiples of `align` but for
    the last. Each output is put together along its dimension in `join`, or added where that is None. `flat`:
    all tensors are taken as one-dimensional. `count_argument`: the integer that tells the size. Without
    pieces, the operation is left as it is."""

    pieces: int = 1
    size: int = 0
    align: int = 1
    cuts: tuple[tuple[int, int], ...] = ()
    join: tuple[int | None, ...] = ()
    count_argument: int | None = None
    flat: bool = False
    in_place: bool = False

    def step(self) -> int:
        even = -(-self.size // self.pieces)
        return -(-even // self.align) * self.align


Planner = Callable[[Sequence[Any]], Plan | None]


def pieces_of(work: float, limit: int, root: int, most: int) -> int:
    """A power of two, at most `most`: 2 from 2**root times the limit on, 4 from 4**root times, and so on."""
    pieces = 1
    while 2 * pieces <= min(most, LIMITS["most_pieces"]) and work >= float(limit * (2 * pieces) ** root):
        pieces *= 2
    return pieces


_LSTM = 2  # at::native's number for it
_SUMMED = 4  # elements that are only added take a fraction of the time
_NORMALISED = 4  # those of a layer norm's weight and bias take a multiple of it


def _by_elements(elements: int, plan: Plan) -> Plan:
    return replace(plan, pieces=pieces_of(float(elements), LIMITS["element_work"], 2, plan.size))


def _pieces_of_convolution(flops: float, elements: float, most: int) -> int:
    return pieces_of(flops + 64 * elements, LIMITS["convolution_work"], 2, most)


def _convolution(a: Sequence[Any]) -> Plan | None:
    source, weight, bias, stride, transposed, groups = a[0], a[1], a[2], a[3], a[6], a[8]
    if source.dim() < 3 or not source.numel():
        return None
    places = 1.0
    for i in range(2, source.dim()):
        places *= source.shape[i] / (1 if transposed else stride[0 if len(stride) == 1 else i - 2])
    batch, block = source.shape[0], LIMITS["block"]
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    flops, elements = 2.0 * weight.numel() * places * batch, places * batch * outputs
    if batch == 1 and not transposed and groups == 1:
        cuts = ((1, 0),) if bias is None else ((1, 0), (2, 0))
        return Plan(
            pieces=_pieces_of_convolution(flops, elements, outputs // block),
            size=outputs,
            align=block,
            cuts=cuts,
            join=(1,),
        )
    return Plan(pieces=_pieces_of_convolution(flops, elements, batch), size=batch, cuts=((0, 0),), join=(0,))


def _convolution_backward(a: Sequence[Any]) -> Plan | None:
    gradient, source, weight, transposed = a[0], a[1], a[2], a[7]
    if source.dim() < 3 or not source.numel():
        return None
    places = 1.0
    for size in (source if transposed else gradient).shape[2:]:
        places *= size
    batch = source.shape[0]
    pieces = _pieces_of_convolution(2.0 * weight.numel() * places * batch, float(gradient.numel()), batch)
    return Plan(pieces=pieces, size=batch, cuts=((0, 0), (1, 0)), join=(0, None, None))


def _pieces_of_product(a: Tensor, b: Tensor) -> int:
    outputs = float(a.numel() // a.shape[-1]) * b.shape[-1]
    return pieces_of((2.0 * a.shape[-1] + 64) * outputs, LIMITS["gemm_work"], 3, LIMITS["most_pieces"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a product is cut: parts of the output's first two dimensions, or, where the output is whole, of the
    sum that each of its elements is."""

    first: int = 1
    second: int = 1
    depth: int = 1


def grid(a: Tensor, b: Tensor, *, added: bool) -> Grid:
    """Where partial sums are no larger than the factors, and `b` can be cut in whole rows, the sum is cut: in
    the weight gradients of linear layers, for one. Otherwise the output is, in whole rows unless it is four
    times as wide as high."""
    m, n, k, block, pieces = a.shape[-2], b.shape[-1], a.shape[-1], LIMITS["block"], _pieces_of_product(a, b)
    if a.dim() == 3:
        first = min(a.shape[0], pieces)
        return Grid(first=first, second=max(1, min(pieces // first, m // block)))
    # Partial sums of half precision would be rounded.
    precise = a.dtype in (torch.float32, torch.float64)
    if not added and precise and b.stride(1) == 1 and pieces * m * n <= k * (m + n):
        return Grid(depth=pieces)
    first = second = 1
    while first * second < pieces:
        high, wide = m // first, n // second
        if max(high, wide) < 2 * block:
            break
        rows = wide < 2 * block or (high >= 2 * block and 4 * high > wide)
        first, second = (first * 2, second) if rows else (first, second * 2)
    return Grid(first=first, second=second)


def pieces_of_lstm(a: Sequence[Any]) -> int:
    """In how many groups of equally many samples an LSTM layer's batch is cut."""
    source, inward, across, batch_sizes, mode = a[0], a[1], a[2], a[8], a[9]
    if source.dim() != 3 or batch_sizes or mode != _LSTM:
        return 1
    steps, batch, _ = source.shape
    flops = 2.0 * steps * batch * (inward.numel() + across.numel())
    pieces = pieces_of(flops, LIMITS["lstm_work"], 3, batch // LIMITS["block"])
    while batch % pieces:
        pieces //= 2
    return pieces


def _largest(t: Tensor, but: int) -> int | None:
    dims = [i for i in range(t.dim()) if i != but]
    return max(dims, key=lambda i: t.shape[i], default=None)


def _contiguous(a: Sequence[Any], images: int = 1) -> Plan | None:
    """Batch normalisation of contiguous images is computed channel by channel, each by one thread."""
    return Plan(pieces=0) if all(_per_channel(t) for t in a[:images]) else None


def _contiguous_backward(a: Sequence[Any]) -> Plan | None:
    return _contiguous(a, 2)


def _per_channel(t: Tensor) -> bool:
    return (
        t.dim() > 2
        and t.is_contiguous()
        and not (t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last))
    )


def _layer_norm_backward(a: Sequence[Any]) -> Plan | None:
    source = a[1]
    rows = source.dim() - len(a[2])
    if rows < 1:
        return None
    dim = max(range(rows), key=lambda i: source.shape[i])
    cuts = tuple((argument, dim) for argument in (0, 1, 3, 4))
    plan = Plan(size=source.shape[dim], cuts=cuts, join=(dim, None, None))
    return _by_elements(source.numel() * _NORMALISED, plan)


def _group_norm_backward(a: Sequence[Any]) -> Plan | None:
    cuts = ((0, 0), (1, 0), (2, 0), (3, 0))
    plan = Plan(size=a[1].shape[0], cuts=cuts, join=(0, None, None), count_argument=5)
    return _by_elements(a[1].numel(), plan)


def _softmax_along(t: Tensor, along: int, tensors: int) -> Plan | None:
    dim = _largest(t, along + t.dim() if along < 0 else along)
    if dim is None:
        return None
    cuts = tuple((argument, dim) for argument in range(tensors))
    return _by_elements(t.numel(), Plan(size=t.shape[dim], cuts=cuts, join=(dim,)))


def _softmax(a: Sequence[Any]) -> Plan | None:
    if a[1] in (-1, a[0].dim() - 1):
        small = a[0].numel() < LIMITS["element_work"] // 4  # to wake threads would take longer
        return None if small else Plan(pieces=0)  # each row by one thread
    return _softmax_along(a[0], a[1], 1)


def _softmax_backward(a: Sequence[Any]) -> Plan | None:
    return _softmax_along(a[0], a[2], 2)


def _dot(a: Sequence[Any]) -> Plan | None:
    if a[0].dim() != 1 or a[1].shape != a[0].shape:
        return None
    plan = Plan(size=a[0].shape[0], align=LIMITS["block"], cuts=((0, 0), (1, 0)), join=(None,))
    return _by_elements(a[0].numel() // _SUMMED, plan)


def _addmv(a: Sequence[Any]) -> Plan | None:
    added, matrix = a[0], a[1]
    if matrix.dim() != 2:
        return None
    rows = matrix.shape[0]
    cuts = ((1, 0), (0, 0)) if added.dim() == 1 and added.shape[0] == rows else ((1, 0),)
    return _by_elements(
        matrix.numel() // _SUMMED, Plan(size=rows, align=LIMITS["block"], cuts=cuts, join=(0,))
    )


def _mv(a: Sequence[Any]) -> Plan | None:
    if a[0].dim() != 2:
        return None
    plan = Plan(size=a[0].shape[0], align=LIMITS["block"], cuts=((0, 0),), join=(0,))
    return _by_elements(a[0].numel() // _SUMMED, plan)


def _sum_all(a: Sequence[Any]) -> Plan | None:
    dim = _largest(a[0], -1)
    if dim is None:
        return None
    return _by_elements(a[0].numel() // _SUMMED, Plan(size=a[0].shape[dim], cuts=((0, dim),), join=(None,)))


def _sum_dims(a: Sequence[Any]) -> Plan | None:
    t, dims, keep = a[0], a[1], a[2]
    if not t.dim() or any(not -t.dim() <= dim < t.dim() for dim in dims or ()):
        return None
    summed = {dim % t.dim() for dim in dims} if dims else set(range(t.dim()))
    kept = max((i for i in range(t.dim()) if i not in summed), key=lambda i: t.shape[i], default=None)
    gone = max(summed, key=lambda i: (t.shape[i], -i))
    if kept is not None and t.shape[kept] >= LIMITS["block"]:
        at = kept if keep else kept - sum(i < kept for i in summed)
        plan = Plan(size=t.shape[kept], align=LIMITS["block"], cuts=((0, kept),), join=(at,))
    else:
        plan = Plan(size=t.shape[gone], cuts=((0, gone),), join=(None,))
    return _by_elements(t.numel() // _SUMMED, plan)


def _attention_of(a: Sequence[Any], first: int, mask: int, outputs: int) -> Plan | None:
    query, key = a[first], a[first + 1]
    if query.dim() != 4:
        return None
    dim = 0 if query.shape[0] >= query.shape[1] else 1
    size, cuts = query.shape[dim], []
    for i, t in enumerate(a):
        if not isinstance(t, Tensor):
            continue
        if i != mask and (t.dim() < 3 or t.shape[dim] != size):  # fewer heads in keys than in queries
            return None
        if i != mask or (t.dim() == 4 and t.shape[dim] == size and size > 1):
            cuts.append((i, dim))
    plan = Plan(size=size, cuts=tuple(cuts), join=(dim,) * outputs)
    return _by_elements(query.numel() * key.shape[2] // max(query.shape[3], 1), plan)


def _attention(a: Sequence[Any]) -> Plan | None:
    return _attention_of(a, 0, 5, 2)


def _attention_backward(a: Sequence[Any]) -> Plan | None:
    return _attention_of(a, 1, 8, 3)


def _elementwise_of(a: Sequence[Any], in_place: bool) -> Plan | None:
    tensors = [(i, t) for i, t in enumerate(a) if isinstance(t, Tensor)]
    if not tensors:
        return None
    model = tensors[0][1]
    for _, t in tensors:
        if (
            not t.is_floating_point()
            or (t.dtype, t.shape, t.stride()) != (model.dtype, model.shape, model.stride())
            or not _dense(t)
        ):
            return None
    plan = Plan(
        size=model.numel(),
        align=LIMITS["block"],
        cuts=tuple((i, 0) for i, _ in tensors),
        join=() if in_place else (0,),
        flat=True,
        in_place=in_place,
    )
    return _by_elements(plan.size, plan)


def _dense(t: Tensor) -> bool:
    """Whether its elements fill a stretch of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(t.stride(), t.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


def _elementwise(a: Sequence[Any]) -> Plan | None:
    return _elementwise_of(a, False)


def _elementwise_in_place(a: Sequence[Any]) -> Plan | None:
    return _elementwise_of(a, True)


PLANNERS: dict[str, Planner] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "contiguous": _contiguous,
    "contiguous_backward": _contiguous_backward,
    "layer_norm_backward": _layer_norm_backward,
    "group_norm_backward": _group_norm_backward,
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "dot": _dot,
    "mv": _mv,
    "addmv": _addmv,
    "sum_all": _sum_all,
    "sum_dims": _sum_dims,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "elementwise": _elementwise,
    "elementwise_in_place": _elementwise_in_place,
}
