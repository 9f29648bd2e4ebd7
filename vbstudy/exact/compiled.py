"""Exact mode's operations in C++: compiled at their first use, kept in the user's cache, and loaded.

The library is a plain one, without Python in it: it calls torch's C++ interface, and is called through
ctypes. It names no OpenMP library, so that it uses the one that torch has loaded.

The same sources, version of torch, platform and flags give the same file name, wherever torch is installed:
a machine without a compiler takes the library of another, copied into its cache."""

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

from vbstudy import caches
from vbstudy.exact.errors import ExactError
from vbstudy.exact.limits import LIMITS

SOURCES = ("kernels.cpp", "plans.h")
FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fopenmp",
    "-fvisibility=hidden",
    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
)
TIMEOUT_S = 600


class Compiled:
    """The library. `begin` puts its operations in place of torch's, `end` restores torch's."""

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
    """From the cache, or compiled now, which takes some fifteen seconds. Raises ExactError."""
    path = library()
    try:
        return Compiled(path)
    except OSError as error:  # it may come from a machine with newer system libraries
        try:
            _compile(path)
            return Compiled(path)
        except (ExactError, OSError) as again:
            raise ExactError(f"{path} cannot be loaded ({error}) or compiled again: {again}") from error


def library() -> Path:
    """The compiled library in the user's cache, compiled now where it is missing. Raises ExactError."""
    facts = (torch.__version__, platform.machine(), *FLAGS)
    key = hashlib.sha256(b"\0".join([*_sources().values(), *map(str.encode, facts)])).hexdigest()[:16]
    path = caches.folder() / "exact" / f"exact-{key}.so"
    if not path.exists():
        _compile(path)
    return path


def _sources() -> dict[str, bytes]:
    folder = resources.files("vbstudy.exact")
    return {name: folder.joinpath(name).read_bytes() for name in SOURCES}


def _compile(target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise ExactError(
            "exact mode compiles its operations once, and there is no C++ compiler: install one "
            f"(`apt install g++`), name one in CXX, or copy {target.name} from a machine with the same torch "
            f"(~/.cache/vbstudy/exact) into {target.parent}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    torch_folder = Path(torch.__file__).parent
    headers = torch_folder / "include"
    include = [f"-I{headers}", f"-I{headers / 'torch' / 'csrc' / 'api' / 'include'}"]
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        for file, text in _sources().items():
            (folder / file).write_bytes(text)
        source, objects, library = (
            str(folder / f"{stem}") for stem in ("kernels.cpp", "kernels.o", "exact.so")
        )
        _run([*compiler.split(), *FLAGS, *include, "-c", source, "-o", objects])
        # Linked without -fopenmp: that would name the compiler's OpenMP library, a second one in the process.
        link = ["-shared", objects, f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10"]
        _run([*compiler.split(), *link, "-o", library])
        Path(library).replace(target)  # in one step: other processes may compile it at the same time


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExactError(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        raise ExactError(f"{command[0]} failed with {done.returncode}: {first}")
