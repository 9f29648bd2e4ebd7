"""Files and texts that others may have made, read within limits: only plain files, and no more bytes, items
and levels than the table says. A pipe in the place of a file is not waited for, and /dev/zero not read. What
keeps to the table takes its reader less than 512 MiB of memory."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What may be read: bytes; items of all lists and objects, or cells of a table; levels."""

    bytes: int
    items: int = 0
    depth: int = 32


MESSAGE = Limit(bytes=4 * MIB, items=100_000)  # a line of a guest, an answer of a machine
STUDY_FILE = Limit(bytes=MIB)
INVENTORY = Limit(bytes=16 * MIB, items=100_000)
RECORD = Limit(bytes=16 * MIB, items=200_000)  # what is sealed: a run, a trace, a hardening, robustness
EVIDENCE = Limit(bytes=MIB, items=100_000)  # of a failed attempt
HISTORY = Limit(bytes=32 * MIB, items=1_000_000)
PREDICTIONS = Limit(bytes=256 * MIB)
ARTIFACT = Limit(bytes=8 << 30)  # any other file of a run: copied and hashed, never held as a whole
RECORDING = Limit(bytes=128 * MIB, items=500_000)
IMPORTED = Limit(bytes=64 * MIB, items=3_000_000)  # results of other programs, and what is kept of them
ARRAY = Limit(bytes=128 * MIB)  # of another program
ARCHIVE = Limit(bytes=100 << 30, items=100_000)  # files, as they are unpacked
MANIFEST = Limit(bytes=32 * MIB, items=1_000_000)
CONSOLE = Limit(bytes=16 * MIB)  # of a virtual machine
ZIP_METHODS = (ZIP_STORED, ZIP_DEFLATED)  # the others are decompressed without bounds
PLAN = Limit(bytes=0, items=200_000)  # runs of a study


class OddFileError(OSError):
    """No plain file, or too large a one; `strerror` says which."""


@contextmanager
def opened_bounded(path: Path, limit: Limit) -> Iterator[BufferedReader]:
    """A plain file, of which links may be followed. Raises OddFileError, and OSError as open does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(found.st_mode):
            raise OddFileError(errno.EINVAL, "is not a plain file", str(path))
        if found.st_size > limit.bytes:
            raise OddFileError(errno.EFBIG, f"is larger than {limit.bytes} bytes", str(path))
        yield file


def read_bounded(path: Path, limit: Limit) -> bytes:
    """All bytes of a plain file. Raises as `opened_bounded`."""
    with opened_bounded(path, limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # what grows meanwhile is not read
