"""The preloaded library: compiled from the source next to this file at its first use, and kept in a cache
under the hash of that source."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

from vbstudy import caches

SOURCE, HEADER = "preload.c", "preload.h"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-ftls-model=initial-exec")
LIBRARIES = ("-ldl", "-pthread")


class LibraryUnavailableError(Exception):
    """The library cannot be made here; the text states why and what to do."""


def library(cache: Path | None = None) -> Path:
    """The compiled library; `cache` is the user's where none is named. Raises LibraryUnavailableError."""
    if sys.platform != "linux":
        raise LibraryUnavailableError(f"the library is for Linux, and this is {sys.platform}")
    compiler = os.environ.get("CC") or "cc"
    found = shutil.which(compiler)
    # This file may lie in a zip archive, from which no compiler reads.
    sources = {name: (resources.files("guest.replay") / name).read_bytes() for name in (SOURCE, HEADER)}
    content = b"".join(sources.values()) + " ".join(FLAGS).encode()
    name = f"replay-{hashlib.sha256(content).hexdigest()[:16]}.so"
    target = (cache or caches.folder()) / name
    if set(" :") & set(str(target)):
        raise LibraryUnavailableError(f"{target.parent}: a path with a space or a colon cannot be preloaded")
    if target.is_file():
        return target
    if found is None:
        raise LibraryUnavailableError(
            f"there is no C compiler {compiler!r}; on Debian: apt install gcc libc6-dev"
        )
    try:
        with caches.folder_beside(target) as folder:
            part = Path(folder) / name
            for file, data in sources.items():
                (Path(folder) / file).write_bytes(data)
            done = subprocess.run(
                [found, *FLAGS, "-o", str(part), str(Path(folder) / SOURCE), *LIBRARIES],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            if done.returncode != 0:
                first = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
                raise LibraryUnavailableError(f"{compiler} cannot compile {SOURCE}: {first}")
            part.rename(target)
    except caches.CacheError as error:
        raise LibraryUnavailableError(str(error)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryUnavailableError(f"{SOURCE} cannot be compiled: {error}") from None
    return target
