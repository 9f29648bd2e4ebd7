"""The cache for what is slow to build, shared by all studies of a user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def folder() -> Path:
    """`vbstudy` in the user's cache (XDG Base Directory Specification). It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vbstudy"


class CacheError(Exception):
    """The cache cannot be written; the text states what to do."""


def folder_beside(target: Path) -> tempfile.TemporaryDirectory[str]:
    """An empty folder where a file of the cache will be: what is made in it takes its place in one step.
    Raises CacheError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=target.parent)
    except OSError as error:
        raise CacheError(
            f"{target.parent}: what is compiled cannot be kept there: {error.strerror}; let XDG_CACHE_HOME "
            "name a folder that can be written"
        ) from error
