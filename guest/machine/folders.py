"""Folders that programs wrote into, and how they are removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path


def unfit_for_hooks(folder: object, todo: str = "use another folder") -> str:
    """Why programs would not run start-up hooks that are in this folder, and what to do; "" where they do."""
    if os.pathsep not in str(folder):
        return ""
    why = "a path with a colon cannot stand in PYTHONPATH, so start-up hooks would not run"
    return f"{folder}: {why}: {todo}"


def unfit_for_messages(folder: object, todo: str = "use another folder") -> str:
    """Why paths in this folder cannot be sent to an agent, and what to do; "" where they can."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        why = "a path that is not UTF-8 cannot stand in messages, so the agent would not find the project"
        return f"{folder}: {why}: {todo}"
    return ""


def remove_folder(folder: Path) -> None:
    """With what a program left in it, read-only folders too, as far as this user may. Follows no link."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.is_dir() and not folder.is_symlink():
            make_writable(folder)
            shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", folder], check=False)  # noqa: S607  (which has no limit of levels)


def make_writable(folder: Path) -> None:
    """Its folders: those of a checkout that is read-only, or that a program made so, can neither be written
    to nor be removed."""
    with contextlib.suppress(OSError):
        folder.chmod(folder.stat().st_mode | stat.S_IRWXU)
    for parent, folders, _ in os.walk(folder):
        for path in (Path(parent) / name for name in folders):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | stat.S_IRWXU)
