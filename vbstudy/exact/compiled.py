"""Exact mode's operations in C++: compiled at their first use, kept in the user's cache, and loaded.

The library is a plain one, without Python in it: it calls torch's C++ interface, and is called through
ctypes. It names no OpenMP library, so that it uses the one that torch has loaded.

The same sources, version of torch, platform and flags give the same file name, wherever torch is installed:
a machine without a compiler takes the library of another, copied into its cache."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import torch

from vbstudy import caches
from vbstudy.exact.errors import ExactError

FOLDER = resources.files("vbstudy.exact")
SOURCES = ("kernels.cpp", "plans.h", "machine.h", "functions_glue.h", "arithmetic/table.h")
ARITHMETIC = tuple(sorted(f"arithmetic/{file.name}" for file in FOLDER.joinpath("arithmetic").iterdir()))
COMMON_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden")
FLAGS = (*COMMON_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
ARITHMETIC_FLAGS = (*COMMON_FLAGS, "-ffp-contract=off", "-Wno-psabi", "-shared")
INSTRUCTIONS = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"),
    "avx2": ("-mavx2", "-mfma"),
    "neon": (),
}


class Compiled:
    """The library. `begin` puts its operations in place of torch's, `end` restores torch's."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self.arithmetic_file = ""  # at level machine
        self.kernels = ""  # the set of instructions of these
        for function in ("exact_begin", "exact_replace", "exact_end", "exact_instructions", "exact_counts"):
            getattr(self._library, function).restype = ctypes.c_char_p
        self._library.exact_left_to_torch.restype = ctypes.c_int64

    def begin(self, ways: Mapping[str, str], own: Mapping[str, str]) -> None:
        """`ways` at level threads, and those of level machine, by operation."""
        if own:
            self.kernels = self.instructions()
            self.arithmetic_file = str(arithmetic(self.kernels))
        self._call("exact_begin", self.arithmetic_file.encode() if own else None)
        try:
            for operation in {**ways, **own}:
                name, _, overload = operation.partition(".")
                how = (ways.get(operation, ""), own.get(operation, ""))
                self._call("exact_replace", name.encode(), overload.encode(), *map(str.encode, how))
        except RuntimeError:
            self.end()
            raise

    def end(self) -> None:
        self._call("exact_end")

    def left_to_torch(self) -> int:
        """How many of this thread's operations have one of our own that did not take the arguments."""
        return int(self._library.exact_left_to_torch())

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each operation was computed by our own arithmetic, and otherwise (on numbers with
        fractions, not within another operation), since exact mode was last switched on."""
        lines = (line.split() for line in self._library.exact_counts().decode().splitlines())
        return {name: (int(own), int(otherwise)) for name, own, otherwise in lines}

    def instructions(self) -> str:
        """The kernels that this machine runs: its best, or what VBSTUDY_EXACT_ISA names. Raises
        ExactError."""
        best: str = self._library.exact_instructions().decode()
        if best == "none":
            raise ExactError(
                "level machine needs a CPU with AVX2 and FMA, or ARMv8; use level threads: "
                'exact.enable(level="threads")'
            )
        chosen = os.environ.get("VBSTUDY_EXACT_ISA", best)
        if chosen != best and (best, chosen) != ("avx512", "avx2"):
            also = " and avx2" if best == "avx512" else ""
            raise ExactError(f"VBSTUDY_EXACT_ISA={chosen}: this CPU runs {best}{also}")
        return chosen

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
            with _alone(path):
                _compile(path)
            return Compiled(path)
        except (ExactError, OSError) as again:
            raise ExactError(f"{path} cannot be loaded ({error}) or compiled again: {again}") from error


def library() -> Path:
    """The compiled library in the user's cache, compiled now where it is missing. Raises ExactError."""
    path = _cached("exact", SOURCES, (torch.__version__, platform.machine(), *FLAGS))
    if not path.exists():
        with _alone(path):
            if not path.exists():
                _compile(path)
    return path


def libraries() -> list[Path]:
    """All that a machine of this platform without a compiler may need. Raises ExactError."""
    sets = ("neon",) if platform.machine() == "aarch64" else ("avx2", "avx512")
    return [library(), *(arithmetic(instructions) for instructions in sets)]


def arithmetic(instructions: str) -> Path:
    """The arithmetic's library for a set of instructions, likewise. It knows nothing of torch."""
    flags = (*ARITHMETIC_FLAGS, *INSTRUCTIONS[instructions])
    path = _cached(f"arithmetic-{instructions}", ARITHMETIC, flags)
    if not _loads(path):
        with _alone(path):
            if not _loads(path):
                _compile_arithmetic(path, flags)
    return path


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:  # missing, damaged, or from a machine with newer system libraries
        return False
    return True


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process compiles for all that need a library at the same time, as those of `torchrun` do. It clears
    away what others left that were killed."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a folder that cannot be written, or without locks
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((target.parent / "lock").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in target.parent.glob(f"{caches.PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        yield


def _cached(stem: str, sources: tuple[str, ...], facts: tuple[str, ...]) -> Path:
    key = hashlib.sha256(b"\0".join([*_texts(sources).values(), *map(str.encode, facts)])).hexdigest()[:16]
    return caches.folder() / "exact" / f"{stem}-{key}.so"


def _texts(sources: tuple[str, ...]) -> dict[str, bytes]:
    return {name: FOLDER.joinpath(name).read_bytes() for name in sources}


@contextlib.contextmanager
def _folder_of(sources: tuple[str, ...], target: Path) -> Iterator[Path]:
    """The sources in a folder beside the target: what is compiled there takes its place in one step, as other
    processes may compile it at the same time. Raises ExactError where none can be made."""
    try:
        made = caches.folder_beside(target)
    except caches.CacheError as error:
        raise ExactError(str(error)) from error
    with made as name:
        folder = Path(name)
        for file, text in _texts(sources).items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(text)
        yield folder


def _compiler(target: Path) -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise ExactError(
            "exact mode compiles its operations once, and there is no C++ compiler: install one "
            f"(`apt install g++`), name one in CXX, or copy {target.name} from a machine with the same torch "
            f"(~/.cache/vbstudy/exact) into {target.parent}"
        )
    return compiler.split()


def _compile(target: Path) -> None:
    compiler = _compiler(target)
    torch_folder = Path(torch.__file__).parent
    headers = torch_folder / "include"
    include = [f"-I{headers}", f"-I{headers / 'torch' / 'csrc' / 'api' / 'include'}"]
    with _folder_of(SOURCES, target) as folder:
        built = folder / "exact.so"
        link = ["-shared", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10"]
        _run([*compiler, *FLAGS, *include, str(folder / "kernels.cpp"), *link, "-o", str(built)])
        built.replace(target)


def _compile_arithmetic(target: Path, flags: tuple[str, ...]) -> None:
    with _folder_of(ARITHMETIC, target) as folder:
        built = folder / "built.so"
        _run([*_compiler(target), *flags, str(folder / "arithmetic" / "kernels.cpp"), "-o", str(built)])
        built.replace(target)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ExactError(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        raise ExactError(f"{command[0]} failed with {done.returncode}: {first}")
