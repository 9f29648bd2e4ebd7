"""Compiles the operations in C++ at their first use, keeps it in the user's cache, and loads it.

The library is a plain one, without Python in it: it calls torch's C++ interface, and is called through
ctypes. It names no OpenMP library, so that it uses the one that torch has loaded."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import torch

from guest import caches
from guest.exact.limits import LIMITS

SOURCES = ("kernels.cpp", "plans.h")
TIMEOUT_S = 600


class CompilerError(RuntimeError):
    """There is no compiler, or it failed. The text says which, and how it was called."""


class Compiled:
    """Exact mode's operations in C++. `begin` puts them in place of torch's, `end` takes them away."""

    name = "compiled"

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for function in ("exact_begin", "exact_replace", "exact_end"):
            getattr(self._library, function).restype = ctypes.c_char_p

    def begin(self, ways: Mapping[str, str]) -> None:
        numbers = (ctypes.c_int64 * len(LIMITS))(*LIMITS.values())
        self._call("exact_begin", numbers)
        try:
            for operation, way in ways.items():
                name, _, overload = operation.partition(".")
                self._call("exact_replace", name.encode(), overload.encode(), way.encode())
        except RuntimeError:
            self.end()
            raise

    def end(self) -> None:
        self._call("exact_end")

    def _call(self, function: str, *arguments: object) -> None:
        problem = getattr(self._library, function)(*arguments)
        if problem is not None:
            raise RuntimeError(f"{function}: {problem.decode()}")


def load() -> Compiled:
    """From the cache, or compiled now: fifteen seconds or so. Raises CompilerError."""
    folder = resources.files("guest.exact")
    sources = {name: folder.joinpath(name).read_bytes() for name in SOURCES}
    flags = _flags()
    facts = (torch.__version__, platform.machine(), *flags)
    key = hashlib.sha256(b"\0".join([*sources.values(), *map(str.encode, facts)])).hexdigest()[:16]
    library = caches.folder() / "exact" / f"exact-{key}.so"
    if not library.exists():
        _compile(sources, flags, library)
    try:
        return Compiled(library)
    except OSError as error:
        raise CompilerError(
            f"{library} cannot be loaded: {error}; remove it, and it will be made anew"
        ) from error


def _flags() -> list[str]:
    root = Path(torch.__file__).parent / "include"
    return [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-fopenmp",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{root}",
        f"-I{root / 'torch' / 'csrc' / 'api' / 'include'}",
    ]


def _compile(sources: Mapping[str, bytes], flags: list[str], library: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise CompilerError("there is no C++ compiler: install g++, or name one in CXX")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as name:
        folder = Path(name)
        for file, text in sources.items():
            (folder / file).write_bytes(text)
        _run([*compiler.split(), *flags, "-c", str(folder / "kernels.cpp"), "-o", str(folder / "kernels.o")])
        # Linked without -fopenmp: that would name the compiler's OpenMP library, a second one in the process.
        libraries = Path(torch.__file__).parent / "lib"
        link = ["-shared", str(folder / "kernels.o"), f"-L{libraries}", "-ltorch_cpu", "-lc10"]
        _run([*compiler.split(), *link, "-o", str(folder / "exact.so")])
        (folder / "exact.so").replace(library)  # in one step: others may be at it too


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        raise CompilerError(f"{command[0]} failed with {done.returncode}: {first}")
