"""Files that others may have put there, read within limits: only plain files, and no more bytes than they may
have. A pipe in the place of a file is not waited for, and /dev/zero not read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class OddFileError(OSError):
    """No plain file, or too large a one; `strerror` says which."""


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """All bytes of a plain file, of which links may be followed. Raises OddFileError, and OSError as open
    does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OddFileError(errno.EINVAL, "is not a plain file", str(path))
        data = file.read(min(found.st_size, most_bytes) + 1)  # memory is taken for what is asked for
    if len(data) > most_bytes:
        raise OddFileError(errno.EFBIG, f"is larger than {most_bytes} bytes", str(path))
    return data
