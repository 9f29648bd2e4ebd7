"""File systems of a test's own."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, kib: int) -> Iterator[None]:
    """A small file system in memory."""
    folder.mkdir(parents=True)
    options = f"size={kib}k"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting a file system needs root, with the permission to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
