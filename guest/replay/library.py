"""The preloaded library: compiled from the source beside this file at its first use, and kept in the user's
cache under the hash of that source."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from guest import caches

SOURCE = Path(__file__).with_name("preload.c")
HEADER = SOURCE.with_suffix(".h")
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-ftls-model=initial-exec")
LIBRARIES = ("-ldl", "-pthread")


class LibraryUnavailableError(Exception):
    """There can be no library here; the text says why, and what would change that."""


def library(cache: Path | None = None) -> Path:
    """The compiled library. Raises LibraryUnavailableError."""
    if sys.platform != "linux":
        raise LibraryUnavailableError(f"the library is for Linux, and this is {sys.platform}")
    compiler = os.environ.get("CC") or "cc"
    found = shutil.which(compiler)
    source = SOURCE.read_bytes() + HEADER.read_bytes()
    name = f"replay-{hashlib.sha256(source + ' '.join(FLAGS).encode()).hexdigest()[:16]}.so"
    target = (cache or caches.folder()) / name
    if target.is_file():
        return target
    if found is None:
        raise LibraryUnavailableError(
            f"there is no C compiler {compiler!r}; on Debian: apt install gcc libc6-dev"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            part = Path(folder) / name
            done = subprocess.run(
                [found, *FLAGS, "-o", str(part), str(SOURCE), *LIBRARIES],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            if done.returncode != 0:
                first = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
                raise LibraryUnavailableError(f"{compiler} cannot compile {SOURCE.name}: {first}")
            part.rename(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryUnavailableError(f"{SOURCE.name} cannot be compiled: {error}") from None
    return target
