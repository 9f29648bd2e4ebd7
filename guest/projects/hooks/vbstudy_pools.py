"""Sets the threads of each thread pool that a process loads, by the package that it belongs to, and reports
the pools. For `vbstudy try --which`, which varies one pool at a time."""

from __future__ import annotations

import ctypes
import importlib.machinery
import threading
from collections.abc import Callable, Mapping
from typing import Any

import threadpoolctl  # a copy of it lies beside this file

_known: set[str] = set()
_looking = threading.local()


def owner(path: str, api: str) -> str:
    """`numpy (openblas)`: the package whose wheel has the library, or the file's name."""
    _, found, below = path.rpartition("/site-packages/")
    first = below.partition("/")[0].partition(".libs")[0] if found else path.rpartition("/")[2]
    return f"{first} ({api})"


def install(counts: Mapping[str, int], others: int, write: Callable[..., None]) -> None:
    """From now on every pool has its count of `counts`, or `others`, as soon as its library is loaded."""

    def look() -> None:
        if getattr(_looking, "on", False):  # threadpoolctl itself loads by ctypes
            return
        _looking.on = True
        try:
            for library in threadpoolctl.ThreadpoolController().lib_controllers:
                if library.filepath not in _known:
                    _known.add(library.filepath)
                    name = owner(library.filepath, library.internal_api)
                    library.set_num_threads(counts.get(name, others))
                    write("pool", name=name)
        finally:
            _looking.on = False

    def then(owner_: Any, name: str) -> None:
        original = getattr(owner_, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            look()
            return found

        setattr(owner_, name, wrapper)

    then(importlib.machinery.ExtensionFileLoader, "create_module")
    then(ctypes.CDLL, "__init__")
    look()
