"""Folders in which something is written before it is moved into its place. Who writes holds a lock on the
folder, which the system drops when its holder dies: what nobody holds is removed by the next who comes by."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

PREFIX = ".vbstudy-"  # what the folders' names begin with


@contextlib.contextmanager
def temporary(target: Path, prefix: str = PREFIX) -> Iterator[Path]:
    """A path in a new folder beside `target` that is removed in the end, with what was not moved. Raises an
    OSError that names `target` where no folder can be."""
    parent = target.absolute().parent
    with contextlib.ExitStack() as held:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            clear(parent, prefix)
            folder = _new_folder(parent, held, prefix)
        except OSError as error:
            is_file = isinstance(error, FileExistsError)  # the parent
            code = errno.ENOTDIR if is_file else error.errno or 0
            raise OSError(code, os.strerror(code), str(target)) from None
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
