"""The cache for what is slow to build, shared by all studies of a user."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """`vbstudy` in the user's cache (XDG Base Directory Specification). It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vbstudy"


def why_not(path: Path, error: OSError) -> str:
    """What to do where the cache cannot be written."""
    return (
        f"{path}: what is compiled cannot be kept there: {error.strerror}; let XDG_CACHE_HOME name a folder "
        "that can be written"
    )
