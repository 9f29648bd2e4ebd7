"""Exact mode: torch on CPUs computes the same bits on any number of threads, at about its usual speed.

    from guest import exact

    exact.enable()                  # the whole process, until exact.disable()
    with exact.mode(): ...          # or only here
    with exact.mode(strict=True): ...   # an operation that exact mode does not know is an error

Operations whose bits depend on the thread count are replaced, at the dispatcher, for the CPU: they are cut
in pieces by their shapes and layouts alone, each piece is computed by torch's own kernel on one thread, and
sums are put together in a fixed order. Operations that are known to depend on no thread count stay as they
are, and all others are computed by one thread. No model changes, and other devices are not touched.
`operations.toml` has the lists.

Runs are comparable when exact mode is on in all of them, with the same version of torch and the same
instruction set: bits differ from those without it, and random numbers need seeds as ever.

torch is imported when exact mode is first enabled, so that this package costs a guest nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from guest.exact import state
from guest.exact.errors import ExactError
from guest.exact.pools import enable_tensorflow
from guest.exact.state import Coverage

__all__ = ["Coverage", "ExactError", "active", "coverage", "disable", "enable", "enable_tensorflow", "mode"]


def enable(strict: bool = False, *, compiled: bool | None = None) -> None:
    """From now on, in all threads; `strict` in this one. When it is on already, only `strict` changes.
    `compiled`: whether the operations are those in C++ (True), in Python (False: slower, the same bits),
    or in C++ where there is a compiler (None). Raises ExactError."""
    state.enable(strict, compiled)


def disable() -> None:
    """Gives torch its own operations back. Does nothing when exact mode is off."""
    state.disable()


@contextlib.contextmanager
def mode(strict: bool = False, *, compiled: bool | None = None) -> Iterator[None]:
    """`enable` for a block of code; what was before is restored."""
    was_active, was_strict = state.active(), state.strict()
    state.enable(strict or was_strict, compiled)
    try:
        yield
    finally:
        if was_active:
            state.enable(was_strict, compiled)
        else:
            state.disable()


def active() -> bool:
    """Whether exact mode is on."""
    return state.active()


def coverage() -> Coverage:
    """What exact mode replaces, leaves and refuses, and how it computes. Imports torch."""
    return state.coverage()
