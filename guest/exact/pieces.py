"""What `kernels.cpp` does, in Python, to the same bits: for where there is no compiler.

An operation costs some tens of microseconds more than in C++."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from guest.exact import lstm
from guest.exact.limits import LIMITS
from guest.exact.plans import PLANNERS, Grid, Plan, grid
from guest.exact.threads import is_alone, one_thread, spread, tree_sum

Kernel = Callable[[Any, Sequence[Any]], Any]


class Python:
    """Exact mode's operations in Python. `begin` puts them in place of torch's, `end` takes them away."""

    name = "python"

    def __init__(self) -> None:
        self._library: Any = None

    def begin(self, ways: Mapping[str, str]) -> None:
        self._library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for operation, way in ways.items():
            if way == "small":  # a call in Python would take longer
                continue
            if way == "lstm":
                lstm.replace(self._library)
                continue
            replaced = _Replaced(operation, way)
            self._library.impl(operation, replaced, "CPU", with_keyset=True, allow_override=True)

    def end(self) -> None:
        self._library._destroy()
        self._library = None


class _Replaced:
    """One operation. Python kernels get no arguments that have their default value: `_complete` adds them."""

    def __init__(self, operation: str, way: str) -> None:
        name, _, overload = operation.partition(".")
        self._way = way
        self._native = torch.library.get_kernel(f"aten::{operation}", "CPU")
        self._schema = getattr(getattr(torch.ops.aten, name), overload or "default")._schema
        self._by_name = [argument.name for argument in self._schema.arguments if argument.kwarg_only]
        self._tensors = [i for i, a in enumerate(self._schema.arguments) if str(a.type) == "Tensor"]
        self._out: Any = torch.library.get_kernel(f"aten::{name}.out", "CPU") if way == "gemm" else None
        self.__name__ = f"exact_{name}"

    def __call__(self, keys: Any, *given: Any, **named: Any) -> Any:
        arguments = self._complete(given, named)
        if is_alone():
            return self._call(keys, arguments)
        match self._way:
            case "gemm":
                return self._gemm(keys, arguments)
            case "sum_out":
                out = arguments.pop()
                total = torch.ops.aten.sum.dim_IntList(*arguments[:3], dtype=arguments[3])
                return out.resize_(total.shape).copy_(total)
            case "layer_norm_backward" if arguments[-1][0]:
                rows = self._call(keys, [*arguments[:-1], [True, False, False]])
                sums = self(keys, *arguments[:-1], [False, *arguments[-1][1:]])
                return rows[0], *sums[1:]
            case "one thread":
                pass
            case _:
                plan = PLANNERS[self._way](arguments)
                if plan is not None and plan.pieces != 1:
                    whole = plan.pieces == 0
                    return self._call(keys, arguments) if whole else self._in_pieces(keys, arguments, plan)
        with one_thread():
            return self._call(keys, arguments)

    def _complete(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        rest = self._schema.arguments[len(given) :]
        whole = [*given, *(named.get(a.name, a.default_value) for a in rest)]
        for i in self._tensors:  # numbers that stand for tensors arrive as numbers
            if isinstance(whole[i], (bool, int, float, complex)):
                whole[i] = _as_tensor(whole[i], whole)
        return whole

    def _call(self, keys: Any, arguments: Sequence[Any]) -> Any:
        first = len(arguments) - len(self._by_name)
        named = dict(zip(self._by_name, arguments[first:], strict=True))
        return self._native.call_boxed(keys, *arguments[:first], **named)

    def _in_pieces(self, keys: Any, whole: list[Any], plan: Plan) -> Any:
        step = plan.step()
        begins = range(0, plan.size, step)

        def piece(begin: int) -> tuple[Tensor | None, ...]:
            own, length = list(whole), min(step, plan.size - begin)
            for argument, dim in plan.cuts:
                own[argument] = (_flat(own[argument]) if plan.flat else own[argument]).narrow(
                    dim, begin, length
                )
            if plan.count_argument is not None:
                own[plan.count_argument] = length
            done = self._call(keys, own)
            return done if isinstance(done, tuple) else (done,)

        parts = spread([functools.partial(piece, begin) for begin in begins])
        if plan.in_place:
            return whole[0]
        joined: list[Tensor | None] = []
        for dim, outputs in zip(plan.join, zip(*parts, strict=True), strict=True):
            if outputs[0] is None:
                joined.append(None)
            elif dim is None:
                joined.append(tree_sum(list(outputs)))
            else:
                together = _like(outputs[0], dim, plan.size)
                for begin, part in zip(begins, outputs, strict=True):
                    together.narrow(dim, begin, part.shape[dim]).copy_(part)
                if plan.flat:
                    model = whole[plan.cuts[0][0]]
                    together = together.as_strided(model.shape, model.stride())
                joined.append(together)
        return tuple(joined) if len(self._schema.returns) > 1 else joined[0]

    def _gemm(self, keys: Any, arguments: list[Any]) -> Any:
        added = len(arguments) > 2
        a, b = arguments[int(added)], arguments[int(added) + 1]
        cut = Grid()
        if _product(a, b, arguments[0] if added else None):
            cut = grid(a, b, added=added)
        if cut == Grid():
            with one_thread():
                return self._call(keys, arguments)
        if cut.depth > 1:
            along = Plan(
                pieces=cut.depth,
                size=a.shape[1],
                align=LIMITS["block"],
                cuts=((0, 1), (1, 0)),
                join=(None,),
            )
            return self._in_pieces(keys, arguments, along)
        batched = a.dim() == 3
        c = a.new_empty((*a.shape[:-1], b.shape[-1]))
        bias = arguments[0].expand(c.shape) if added else None
        steps = [
            Plan(pieces=count, size=c.shape[dim], align=1 if batched and dim == 0 else LIMITS["block"]).step()
            for dim, count in enumerate((cut.first, cut.second))
        ]
        scale = dict(zip(("beta", "alpha"), arguments[3:], strict=False))

        def block(at: tuple[int, ...]) -> None:
            long = [min(step, c.shape[dim] - at[dim]) for dim, step in enumerate(steps)]

            def both(t: Tensor) -> Tensor:
                return t.narrow(0, at[0], long[0]).narrow(1, at[1], long[1])

            factors = (
                (both(a), b.narrow(0, at[0], long[0]))
                if batched
                else (a.narrow(0, at[0], long[0]), b.narrow(1, at[1], long[1]))
            )
            summand = () if bias is None else (both(bias),)
            self._out.call_boxed(keys, *summand, *factors, **scale, out=both(c))

        corners = itertools.product(*(range(0, c.shape[dim], step) for dim, step in enumerate(steps)))
        spread([functools.partial(block, at) for at in corners])
        return c


def _as_tensor(number: complex, beside: Sequence[Any]) -> Tensor:
    """Of the type that torch gives a number beside tensors: theirs, where that can hold it."""
    types = [t.dtype for t in beside if isinstance(t, Tensor)]
    own = torch.tensor(number).dtype
    dtype = torch.result_type(torch.empty(1, dtype=types[0]), number) if types else own
    return torch.tensor(number, dtype=dtype)


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> bool:
    """Whether it is an ordinary product; everything else, mistakes too, is left to torch."""
    return (
        a.dim() in (2, 3)
        and b.dim() == a.dim()
        and a.shape[-1] == b.shape[-2]
        and (a.dim() == 2 or a.shape[0] == b.shape[0])
        and a.dtype == b.dtype
        and a.numel() > 0
        and b.numel() > 0
        and (bias is None or (bias.dim() <= a.dim() and bias.dtype == a.dtype))
    )


def _flat(t: Tensor) -> Tensor:
    return t.as_strided((t.numel(),), (1,))


def _like(model: Tensor, dim: int, size: int) -> Tensor:
    """A dense tensor whose dimensions lie in memory in the order of the model's, with another size of one."""
    sizes = [size if i == dim else old for i, old in enumerate(model.shape)]
    strides, stride, strides_of = [0] * len(sizes), 1, model.stride()
    for i in sorted(range(len(sizes)), key=lambda i: -strides_of[i])[::-1]:
        strides[i] = stride
        stride *= max(sizes[i], 1)
    return torch.empty_strided(sizes, strides, dtype=model.dtype)
