"""Pieces on threads of Python's own, each with one thread of OpenMP and of MKL, and sums of them."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class _Own(threading.local):
    alone = False  # inside a piece: operations called from there are not cut again


_own = _Own()
_torch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
_set_mkl = getattr(_torch, "MKL_Set_Num_Threads_Local", None)  # not in builds without MKL
_pools: dict[int, ThreadPoolExecutor] = {}


def is_alone() -> bool:
    """Whether this is within a piece."""
    return _own.alone


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """What is called within sees one thread; the caller's settings are put back."""
    was_alone, threads = _own.alone, torch.get_num_threads()
    _torch.omp_set_num_threads(1)
    mkl = _set_mkl(1) if _set_mkl else 0
    _own.alone = True
    try:
        yield
    finally:
        _own.alone = was_alone
        if _set_mkl:
            _set_mkl(mkl)
        _torch.omp_set_num_threads(threads)


def spread(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
    """Calls all, each on one thread, on as many threads as torch may use. Results are in order."""
    threads = min(len(pieces), torch.get_num_threads())
    if threads == 1:
        with one_thread():
            return [piece() for piece in pieces]
    pool = _pools.get(threads)
    if pool is None:
        pool = _pools[threads] = ThreadPoolExecutor(threads, "exact")
    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set()
    inference = torch.is_inference_mode_enabled()  # a thread's own, beside the keys

    def run(piece: Callable[[], Any]) -> Any:
        with (
            torch.inference_mode(inference),
            torch._C._ForceDispatchKeyGuard(include, exclude),
            one_thread(),
        ):
            return piece()

    return list(pool.map(run, pieces))


def tree_sum(parts: list[Tensor]) -> Tensor:
    """p0 + p1, p2 + p3, ..., then these again, until one is left."""
    width = 1
    while width < len(parts):
        for i in range(0, len(parts) - width, 2 * width):
            parts[i].add_(parts[i + width])
        width *= 2
    return parts[0]
