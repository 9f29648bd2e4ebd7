"""Whether exact mode is on, and how it is switched on and off."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from vbstudy.exact.errors import ExactError
from vbstudy.exact.hook.vbstudy_imports import AfterImport
from vbstudy.exact.registry import ARITHMETIC_VERSION, AT_MACHINE, AT_THREADS, Level, below, own, ways

if TYPE_CHECKING:
    from vbstudy.exact.compiled import Compiled
    from vbstudy.exact.strict import Strict


OLDEST_TORCH = "2.9"  # the first that gives out its own kernels, which ours call


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Names of ATen's operations by level, in float32. `machine`: bits depend on nothing but the inputs, by
    version `arithmetic` of our own arithmetic, or as each element is rounded once; none at level threads.
    `threads`: they depend on no thread count, but on the CPU and torch's version. `unknown` were refused by
    this thread's strict mode since it was last on.

    Since exact mode was last switched on: `computed`, how many operations our own arithmetic has computed;
    `below`, how many of which name were below the level, or unknown; `compiled`, whether something was given
    to torch.compile, which runs it uncompiled; `instructions` of its kernels, "avx512", "avx2" or "neon"."""

    level: Level
    arithmetic: int
    instructions: str
    computed: int
    below: dict[str, int]
    compiled: bool
    machine: tuple[str, ...]
    threads: tuple[str, ...]
    unknown: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """What a run's record has of it."""
        of_run = {"level": self.level, "arithmetic": self.arithmetic, "instructions": self.instructions}
        return of_run | {"below": sorted(self.below)}


@dataclass(slots=True)
class _State:
    library: Compiled | None = None
    last: Compiled | None = None  # is or was on
    level: Level = "machine"
    enabled: bool = False  # by `enable`, until `disable`
    blocks: int = 0  # of `mode`, in all threads: they may end in any order
    torch_compile: Any = None
    compiled: bool = False  # by `torch.compile`, without strict mode
    torch_flush: Any = None  # `torch.set_flush_denormal`
    stance: Any = None  # what `torch.compiler.set_stance` returned: it knows the stance before


class _Thread(threading.local):
    """Strict mode of one thread."""

    enabled = False
    blocks = 0
    strict: Strict | None = None
    unknown: tuple[str, ...] = ()

    def settle(self) -> None:
        """Switches strict mode on or off, as is asked for."""
        if self.strict is None and (self.enabled or self.blocks):
            from vbstudy.exact.strict import Strict

            if _state.library is not None:  # as in every thread that asks
                self.strict = Strict(_state.library, _state.level).__enter__()
        elif self.strict is not None and not (self.enabled or self.blocks):
            self.unknown = tuple(self.strict.unknown)
            self.strict.__exit__(None, None, None)
            self.strict = None


_lock = threading.RLock()
_state = _State()
_thread = _Thread()


def enable(strict: bool = False, level: Level = "machine") -> None:
    """From now on, in all threads; `strict` in this one. When it is on already, only `strict` changes.

    level: "machine" for bits that depend on nothing but the inputs, in float32 (other types are at level
    threads); "threads" for torch's own kernels on one thread each, whose bits depend on the CPU and on
    torch's version.
    Raises ExactError where torch is too old, the operations cannot be compiled, or the other level is on."""
    with _lock:
        _begin(level)
        _state.enabled = True
    _thread.enabled = strict
    _thread.settle()


def disable() -> None:
    """Restores torch's own operations. Does nothing when exact mode is off. Raises ExactError while a block
    of `mode` runs: it would go on with other bits."""
    with _lock:
        if _state.blocks:
            raise ExactError("exact mode cannot be disabled within a block of exact.mode(): leave that first")
        _state.enabled = False
        _thread.enabled = False
        _thread.settle()
        _end()


@contextlib.contextmanager
def mode(strict: bool = False, level: Level = "machine") -> Iterator[None]:
    """`enable` for a block of code. Exact mode stays on until all blocks have ended, in whatever order
    threads and generators leave them. Raises ExactError where another thread leaves a strict block than
    entered it."""
    with _lock:
        _begin(level)
        _state.blocks += 1
    thread = threading.get_ident()
    _thread.blocks += strict
    try:
        _thread.settle()
        yield
    finally:
        with _lock:
            _state.blocks -= 1
            _end()
        if strict:
            if threading.get_ident() != thread:
                raise ExactError("a strict block of exact.mode() must be left by the thread that entered it")
            _thread.blocks -= 1
            _thread.settle()


def _begin(level: Level) -> None:
    if level not in get_args(Level):
        raise ExactError(f"level {level!r}: it is one of {', '.join(map(repr, get_args(Level)))}")
    if _state.library is not None:
        if level != _state.level:
            raise ExactError(f"exact mode is on at level {_state.level}: leave it first to change to {level}")
        return
    _check_torch()
    from vbstudy.exact import first_call, selftest
    from vbstudy.exact.compiled import load

    library = load()
    first_call.settle()
    library.begin(ways(_registered()), own(_registered()) if level == "machine" else {})
    _state.library = _state.last = library
    _state.level = level
    if level == "machine":
        try:
            selftest.once(library)
        except BaseException:
            library.end()
            _state.library = None
            raise
    _stop_compilation()
    _keep_subnormals()


def _end() -> None:
    if _state.library is None or _state.enabled or _state.blocks:
        return
    import torch

    _allow_compilation()
    torch.set_flush_denormal = _state.torch_flush
    _state.library.end()
    _state.library = None
    _state.level = "machine"


def active() -> bool:
    """Whether exact mode is on."""
    return _state.library is not None


def coverage() -> Coverage:
    """What exact mode computes at which level (that is on; machine, when it is off), and has refused."""
    counts = _state.last.counts() if _state.last else {}
    return Coverage(
        level=_state.level,
        arithmetic=ARITHMETIC_VERSION,
        instructions=_state.last.kernels if _state.last else "",
        computed=sum(own for own, _ in counts.values()),
        below=below(counts, _state.level),
        compiled=_state.compiled,
        machine=tuple(sorted(AT_MACHINE)) if _state.level == "machine" else (),
        threads=tuple(sorted(AT_THREADS if _state.level == "machine" else AT_THREADS | AT_MACHINE)),
        unknown=tuple(_thread.strict.unknown) if _thread.strict else _thread.unknown,
    )


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
    try:
        import numpy  # noqa: F401  (for the self-test)
    except ImportError as error:
        raise ExactError(
            f"exact mode needs numpy, which cannot be imported ({error}): install it beside torch"
        ) from error
    if not hasattr(torch.library, "get_kernel"):
        raise ExactError(
            f"exact mode needs torch {OLDEST_TORCH} or newer, and this is {torch.__version__}: upgrade torch"
        )
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        raise ExactError(
            "exact mode needs a torch that computes with OpenMP threads: install torch from PyPI"
        )


def _stop_compilation() -> None:
    """What torch.compile makes does sums of its own in threads of its own, past the dispatcher: all runs
    uncompiled. Strict mode refuses calls of it, except torch's own."""
    import torch

    compile_, own = torch.compile, str(Path(torch.__file__).parent)

    @functools.wraps(compile_)
    def uncompiled(*args: Any, **kwargs: Any) -> Any:
        if _thread.strict is None:
            _state.compiled = True
        elif not sys._getframe(1).f_code.co_filename.startswith(own):
            raise ExactError(
                "torch.compile generates code that exact mode cannot reach: do not compile, "
                "or use exact mode without strict, which runs it uncompiled"
            )
        return compile_(*args, **kwargs)

    _state.torch_compile, _state.compiled = compile_, False
    torch.compile = uncompiled
    if "torch._dynamo" in sys.modules:
        _state.stance = torch.compiler.set_stance("force_eager")
    else:
        sys.meta_path.insert(0, _later)


def _keep_subnormals() -> None:
    """The arithmetic does, on every thread. False is torch's answer where a CPU cannot flush them to zero."""
    import torch

    _state.torch_flush = torch.set_flush_denormal
    torch.set_flush_denormal = lambda arg: False  # noqa: ARG005


def _stop_later(_name: str, _module: ModuleType) -> None:
    import torch

    with _lock:
        if _state.library is not None and _state.stance is None:
            _state.stance = torch.compiler.set_stance("force_eager")


_later = AfterImport(("torch._dynamo",), _stop_later)  # whose import takes seconds that few programs need


def _allow_compilation() -> None:
    import torch

    torch.compile = _state.torch_compile
    if _state.stance is not None:
        _state.stance.__exit__(None, None, None)  # to what it was before exact mode
        _state.stance = None
    if _later in sys.meta_path:
        sys.meta_path.remove(_later)
