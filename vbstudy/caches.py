"""The cache for what is slow to build, shared by all studies of a user, and the user's state."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

PREFIX = "building-"  # of folders in which something is made


class CacheError(Exception):
    """The cache cannot be written; the text states what to do."""


def home() -> Path:
    """The user's home folder; where none is known (in containers of a user without a name), a private one in
    the temporary folder. Raises CacheError where another user took that."""
    try:
        return Path.home()
    except RuntimeError:
        path = Path(tempfile.gettempdir()) / f"vbstudy-home-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    seen = path.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise CacheError(
            f"no home folder is known, and {path} is no folder, or belongs to or is accessible to another "
            "user; set HOME"
        )
    return path


def base() -> Path:
    """The cache of all programs of the user (XDG Base Directory Specification)."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else home() / ".cache"


def folder() -> Path:
    """`vbstudy` in the user's cache. It need not exist."""
    return base() / "vbstudy"


def state() -> Path:
    """`vbstudy` in the user's state: what was done (XDG Base Directory Specification). It need not exist."""
    named = os.environ.get("XDG_STATE_HOME")
    return (Path(named) if named else home() / ".local" / "state") / "vbstudy"


def folder_beside(target: Path) -> tempfile.TemporaryDirectory[str]:
    """An empty folder where a file of the cache will be: what is made in it takes its place in one step.
    Raises CacheError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=PREFIX, dir=target.parent)
    except OSError as error:
        raise CacheError(
            f"{target.parent}: what is compiled cannot be kept there: {error.strerror}; let XDG_CACHE_HOME "
            "name a folder that can be written"
        ) from error
