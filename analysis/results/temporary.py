"""Folders in which something is written before it is moved into its place. Who writes holds a lock on the
folder, which the system drops when its holder dies: what nobody holds is removed by the next who comes by."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

PREFIX = ".vbstudy-"  # what the folders' names begin with


@contextlib.contextmanager
def temporary(target: Path, prefix: str = PREFIX) -> Iterator[Path]:
    """A path in a new folder beside `target` that is removed in the end, with what was not moved."""
    parent = target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    clear(parent, prefix)
    with contextlib.ExitStack() as held:
        folder = _new_folder(parent, held, prefix)
        try:
            yield folder / target.name
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _new_folder(parent: Path, held: contextlib.ExitStack, prefix: str) -> Path:
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            held.enter_context(_locked(folder))
            if folder.exists():  # nobody came by before the lock
                return folder


def clear(parent: Path, prefix: str = PREFIX) -> None:
    """Removes the folders in `parent` whose writers were killed."""
    with contextlib.suppress(OSError):
        for left in list(parent.glob(f"{prefix}{16 * '[0-9a-f]'}*")):
            with contextlib.suppress(OSError, RecursionError), _locked(left, fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(descriptor)
