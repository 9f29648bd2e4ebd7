"""Strict mode: an operation that exact mode does not know, or not at the level asked for, is an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from vbstudy.exact.errors import ExactError
from vbstudy.exact.registry import Level, level

if TYPE_CHECKING:
    from vbstudy.exact.compiled import Compiled

_NAMESPACES = ("aten", "prim", "profiler")  # the last two compute nothing
_BETWEEN_PROCESSES = "c10d"
_OF_THREADS = "is at level threads: its bits depend on the CPU and on torch's version"
_HERE, _TORCH = str(Path(__file__).parent), str(Path(torch.__file__).parent)
_PYTHON = str(Path(os.__file__).parent)


class Strict(TorchDispatchMode):
    """Sees every operation of this thread, backward too, and lets pass those that exact mode covers: of ATen,
    in the registry at the level asked for, on dense CPU tensors, and not left to torch by our own arithmetic.
    `unknown` collects the names of the others."""

    supports_higher_order_operators = True  # they come here too, as `torch.cond`

    def __init__(self, library: Compiled, asked: Level) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._library, self._asked = library, asked
        self.unknown: list[str] = []
        self._modules = _Modules()

    def __enter__(self) -> Strict:
        self._modules.begin()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._modules.end()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator):
            self._refuse(str(func), "runs operations that strict mode does not see", "covers them")
        name = func._schema.name
        namespace, _, operation = name.partition("::")
        at = level(operation) if namespace == "aten" else "machine"
        # In inference mode torch's composed operations come here whole, in forward derivatives its `prims`.
        if at is None or namespace == "prims":
            parts = func.decompose if at is None else func.impl_aten
            super().__enter__()  # type: ignore[no-untyped-call]
            try:
                result = parts(*args, **(kwargs or {}))
            finally:
                super().__exit__(None, None, None)  # type: ignore[no-untyped-call]
            if result is not NotImplemented:
                return result
        known = _adds_in_order() if namespace == _BETWEEN_PROCESSES else namespace in _NAMESPACES
        if not known or at is None:
            unknown = "is not known to exact mode, and might depend on the thread count"
            self._refuse(name, unknown, "computes it by one thread")
        if self._asked == "machine" and at == "threads" and _floats((args, kwargs)):
            self._refuse(name, _OF_THREADS)
        for value in torch.utils._pytree.tree_iter((args, kwargs or {})):
            if isinstance(value, torch.Tensor) and not _covered(value):
                self._refuse(
                    name,
                    f"got a tensor of {value.layout} on {value.device}, not a dense one on the CPU",
                    "leaves it to torch",
                )
        left = self._library.left_to_torch()
        result = func(*args, **(kwargs or {}))
        if self._asked == "machine" and at == "threads" and _floats(result) and name != "aten::arange":
            self._refuse(name, _OF_THREADS)  # of whole numbers
        if self._asked == "machine" and self._library.left_to_torch() != left:
            self._refuse(name, f"with these arguments {_OF_THREADS}")
        return result

    def _refuse(self, name: str, why: str, otherwise: str = "computes it at level threads") -> None:
        """`otherwise` is what exact mode does without strict."""
        if name not in self.unknown:
            self.unknown.append(name)
        module = self._modules.innermost()
        where = f" in module {module}" if module else ""
        raise ExactError(
            f"{name}{where}{_line()} {why}; use another operation, or exact mode without strict, "
            f"which {otherwise}"
        )


class _Modules:
    """The modules whose `forward` runs, outermost first. torch's own tracker follows the backward pass too,
    by hooks with which `torch.autograd.grad` by a module's input fails."""

    def __init__(self) -> None:
        self._running: list[Module] = []
        self._hooks: list[Any] = []

    def begin(self) -> None:
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def innermost(self) -> str:
        """As `Network.layers.0`; nothing where none runs."""
        if not self._running:
            return ""
        outer, inner = self._running[0], self._running[-1]
        for path, module in outer.named_modules(prefix=type(outer).__name__):
            if module is inner:
                return str(path)
        return type(inner).__name__

    def _enter(self, module: Module, _: Any) -> None:
        self._running.append(module)

    def _leave(self, module: Module, *_: Any) -> None:
        if self._running and self._running[-1] is module:  # not one that ran before strict mode was on
            self._running.pop()


def _floats(arguments: Any) -> bool:
    """Whether numbers with fractions are among them."""
    for value in torch.utils._pytree.tree_iter(arguments):
        if isinstance(value, torch.Tensor):
            if value.numel() and not value.dtype.is_floating_point and not value.dtype.is_complex:
                continue
            if value.numel():
                return True
        elif isinstance(value, (float, complex)):
            return True
    return False


def _adds_in_order() -> bool:
    """Whether processes exchange tensors by gloo alone, which adds in an order that their number and the
    tensors' sizes give."""
    groups = torch.distributed.distributed_c10d._world.pg_map
    return all(torch.distributed.get_backend(group) == "gloo" for group in groups)


def _covered(t: torch.Tensor) -> bool:
    return t.device.type in ("cpu", "meta") and t.layout is torch.strided and not t.is_quantized


def _line() -> str:
    """The innermost line of code that is neither torch's nor ours, nor of the standard library."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        python = file.startswith(_PYTHON) and "site-packages" not in file
        if not (python or file.startswith((_HERE, _TORCH, "<")) or file.endswith("typing_extensions.py")):
            return f" at {file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
