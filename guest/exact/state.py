"""Whether exact mode is on, and how it is put in place and taken away."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guest.exact.errors import ExactError
from guest.exact.registry import COMPOSED, INVARIANT, ways

if TYPE_CHECKING:
    from guest.exact.compiled import Compiled
    from guest.exact.pieces import Python
    from guest.exact.strict import Strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Names of ATen's operations. `replaced` are cut in pieces; `one_thread` are computed by one; `invariant`
    stay as torch has them; `unknown` were refused by strict mode since it was last switched on. `engine` is
    `compiled` or `python`, None while exact mode is off; `why_python` says why it is not compiled."""

    replaced: tuple[str, ...]
    one_thread: tuple[str, ...]
    invariant: tuple[str, ...]
    unknown: tuple[str, ...]
    engine: str | None
    why_python: str | None


@dataclass(slots=True)
class _State:
    engine: Compiled | Python | None = None
    strict: Strict | None = None
    unknown: tuple[str, ...] = ()
    why_python: str | None = None
    torch_compile: Any = None


_state = _State()


def active() -> bool:
    return _state.engine is not None


def strict() -> bool:
    return _state.strict is not None


def enable(strict_: bool, compiled: bool | None) -> None:
    if _state.engine is None:
        _check_torch()
        engine = _engine(compiled)
        engine.begin(ways(_registered()))
        _state.engine = engine
        _refuse_compilation()
    elif compiled is not None and compiled != (_state.engine.name == "compiled"):
        raise ExactError(f"exact mode is on, {_state.engine.name}: call exact.disable() before the other way")
    if strict_ and _state.strict is None:
        from guest.exact.strict import Strict

        _state.strict = Strict().__enter__()
    elif not strict_:
        _end_strict()


def disable() -> None:
    if _state.engine is None:
        return
    import torch

    _end_strict()
    torch.compile = _state.torch_compile
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("default")
    _state.engine.end()
    _state.engine = None


def coverage() -> Coverage:
    chosen = ways(_registered())
    return Coverage(
        replaced=tuple(sorted({name for name, way in chosen.items() if way not in ("one thread", "small")})),
        one_thread=tuple(sorted({name for name, way in chosen.items() if way == "one thread"})),
        invariant=tuple(sorted(INVARIANT | COMPOSED)),
        unknown=tuple(_state.strict.unknown) if _state.strict else _state.unknown,
        engine=_state.engine.name if _state.engine else None,
        why_python=_state.why_python if _state.engine and _state.engine.name == "python" else None,
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


def _engine(compiled: bool | None) -> Compiled | Python:
    from guest.exact.compiled import CompilerError, load

    if compiled is not False:
        try:
            return load()
        except CompilerError as error:
            if compiled:
                raise ExactError(str(error)) from error
            _state.why_python = str(error)
    else:
        _state.why_python = "it was asked for"
    from guest.exact.pieces import Python

    return Python()


def _refuse_compilation() -> None:
    """What torch.compile makes does sums of its own in threads of its own, past the dispatcher. What was
    compiled before runs uncompiled."""
    import torch

    def refuse(*_: Any, **__: Any) -> Any:
        raise ExactError(
            "torch.compile makes code of its own, which exact mode cannot reach: do not compile, "
            "or call exact.disable() first"
        )

    _state.torch_compile = torch.compile
    torch.compile = refuse
    if "torch._dynamo" in sys.modules:  # else nothing can have been compiled
        torch.compiler.set_stance("force_eager")
