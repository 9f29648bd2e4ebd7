"""Strict mode: an operation that nobody has looked at is an error, before it is computed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from guest.exact.errors import ExactError
from guest.exact.registry import known

_NAMESPACES = ("aten", "prim", "profiler")  # the last two compute nothing
_HERE, _TORCH = str(Path(__file__).parent), str(Path(torch.__file__).parent)


class Strict(TorchDispatchMode):
    """Sees every operation of this thread, backward too, and lets pass those that exact mode covers: of ATen,
    in the registry, on dense CPU tensors. `unknown` collects the names of the others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unknown: list[str] = []
        self._modules = ModuleTracker()

    def __enter__(self) -> Strict:
        self._modules.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._modules.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        namespace, _, operation = name.partition("::")
        if namespace not in _NAMESPACES or (namespace == "aten" and not known(operation)):
            self._refuse(name, "is not known to exact mode, and might depend on the thread count")
        for value in torch.utils._pytree.tree_iter((args, kwargs or {})):
            if isinstance(value, torch.Tensor) and not _covered(value):
                self._refuse(
                    name, f"got a tensor of {value.layout} on {value.device}, not a dense one on the CPU"
                )
        return func(*args, **(kwargs or {}))

    def _refuse(self, name: str, why: str) -> None:
        if name not in self.unknown:
            self.unknown.append(name)
        modules = sorted(self._modules.parents - {"Global"}, key=len)
        where = f" in module {modules[-1]}" if modules else ""
        raise ExactError(
            f"{name}{where}{_line()} {why}; use another operation, or exact mode without strict, "
            "where operations that nobody has looked at are computed by one thread"
        )


def _covered(t: torch.Tensor) -> bool:
    return t.device.type in ("cpu", "meta") and t.layout is torch.strided and not t.is_quantized


def _line() -> str:
    """The innermost line of code that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HERE, _TORCH, "<")) and "contextlib" not in file:
            return f" at {file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
