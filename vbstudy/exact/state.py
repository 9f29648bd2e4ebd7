"""Whether exact mode is on, and how it is switched on and off."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vbstudy.exact.errors import ExactError
from vbstudy.exact.registry import COMPOSED, INVARIANT, ways

if TYPE_CHECKING:
    from vbstudy.exact.compiled import Compiled
    from vbstudy.exact.strict import Strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Names of ATen's operations. `replaced` are cut into pieces; `one_thread` are computed by one;
    `invariant` stay as torch has them; `unknown` were refused by strict mode since it was last on."""

    replaced: tuple[str, ...]
    one_thread: tuple[str, ...]
    invariant: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(slots=True)
class _State:
    library: Compiled | None = None
    strict: Strict | None = None
    unknown: tuple[str, ...] = ()
    torch_compile: Any = None
    stance: Any = None  # what `torch.compiler.set_stance` returned: it knows the stance before


_state = _State()


def enable(strict: bool = False) -> None:
    """From now on, in all threads; `strict` in this one. When it is on already, only `strict` changes.
    Raises ExactError where torch is too old, or the operations cannot be compiled."""
    if _state.library is None:
        _check_torch()
        from vbstudy.exact.compiled import load

        library = load()
        library.begin(ways(_registered()))
        _state.library = library
        _refuse_compilation()
    if strict and _state.strict is None:
        from vbstudy.exact.strict import Strict

        _state.strict = Strict().__enter__()
    elif not strict:
        _end_strict()


def disable() -> None:
    """Restores torch's own operations. Does nothing when exact mode is off."""
    if _state.library is None:
        return
    _end_strict()
    _allow_compilation()
    _state.library.end()
    _state.library = None


@contextlib.contextmanager
def mode(strict: bool = False) -> Iterator[None]:
    """`enable` for a block of code; the state before it is restored."""
    was_active, was_strict = active(), _state.strict is not None
    enable(strict or was_strict)
    try:
        yield
    finally:
        if was_active:
            enable(was_strict)
        else:
            disable()


def active() -> bool:
    """Whether exact mode is on."""
    return _state.library is not None


def coverage() -> Coverage:
    """What exact mode replaces, leaves and has refused. Imports torch."""
    chosen = ways(_registered())
    return Coverage(
        replaced=tuple(sorted({name for name, way in chosen.items() if way not in ("one thread", "small")})),
        one_thread=tuple(sorted({name for name, way in chosen.items() if way == "one thread"})),
        invariant=tuple(sorted(INVARIANT | COMPOSED)),
        unknown=tuple(_state.strict.unknown) if _state.strict else _state.unknown,
    )


def _end_strict() -> None:
    if _state.strict is not None:
        _state.unknown = tuple(_state.strict.unknown)
        _state.strict.__exit__(None, None, None)
        _state.strict = None


@functools.cache
def _registered() -> tuple[str, ...]:
    """All operations with a kernel of their own for CPUs; asked once, before ours are among them."""
    import torch

    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CPU"))


def _check_torch() -> None:
    try:
        import torch
    except ImportError as error:
        raise ExactError(
            f"exact mode is for torch, which cannot be imported ({error}): install it"
        ) from error
    if not hasattr(torch.library, "get_kernel"):
        raise ExactError(
            f"exact mode needs torch 2.9 or newer, and this is {torch.__version__}: upgrade torch"
        )
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        raise ExactError(
            "exact mode needs a torch that computes with OpenMP threads: install torch from PyPI"
        )


def _refuse_compilation() -> None:
    """What torch.compile makes does sums of its own in threads of its own, past the dispatcher. What was
    compiled before runs uncompiled."""
    import torch

    def refuse(*_: Any, **__: Any) -> Any:
        raise ExactError(
            "torch.compile generates code that exact mode cannot reach: do not compile, "
            "or call exact.disable() first"
        )

    _state.torch_compile = torch.compile
    torch.compile = refuse
    if "torch._dynamo" in sys.modules:  # else nothing can have been compiled
        _state.stance = torch.compiler.set_stance("force_eager")


def _allow_compilation() -> None:
    import torch

    torch.compile = _state.torch_compile
    if _state.stance is not None:
        _state.stance.__exit__(None, None, None)  # to what it was before exact mode
        _state.stance = None
