"""Work that holds Python's lock, spread over the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

Common = TypeVar("Common")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

_common: Any = None


def in_processes(
    function: Callable[[Common, Piece], Result], pieces: Sequence[Piece], common: Common, *, worth_it: bool
) -> list[Result]:
    """`function(common, piece)` of each piece, in order. `common` may be large: the
    processes are forked and share its memory, only pieces and results travel. One process where it is not
    worth it or there is one core."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2 or not worth_it:
        return [function(common, piece) for piece in pieces]
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(min(cores, len(pieces)), fork, initializer=_begin, initargs=(common,))
    try:
        with warnings.catch_warnings():
            # Python warns of forks beside threads. None of ours runs here; OpenBLAS starts its own again.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            futures = [pool.submit(_one, function, piece) for piece in pieces]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(common: Any) -> None:
    global _common
    _common = common
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent reports an interruption


def _one(function: Callable[[Any, Piece], Result], piece: Piece) -> Result:
    return function(_common, piece)
