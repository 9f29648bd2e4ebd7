"""Cores of this machine that one process holds and no other may have: a lock a core, which the kernel
takes back however its holder ends.

This text alone is run on machines behind SSH (`orchestrator.cores.remote`), so it imports nothing of ours."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

FOLDER = "VBSTUDY_CORE_LOCKS"
"""The environment variable that names another folder for the locks: processes lease apart from each other
only where they agree on it."""


def default_folder() -> Path:
    """The same for all users of a machine."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    run = Path("/run/lock")
    return (run if os.access(run, os.W_OK) else Path(tempfile.gettempdir())) / "vbstudy-cores"


class Locks(Protocol):
    """Of one machine's cores, for one holder."""

    def take(self, cores: Collection[int]) -> set[int]: ...
    def release(self, cores: Collection[int]) -> None: ...
    def holders(self, cores: Collection[int]) -> dict[int, int]: ...


class CoreLocks:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()
        self._held: dict[int, int] = {}  # descriptors by core

    def take(self, cores: Collection[int]) -> set[int]:
        """Locks all of them and returns nothing, or none of them and returns those that others have."""
        others = {core for core in cores if not self._lock(core)}
        if others:
            self.release(set(cores) - others)
        return others

    def release(self, cores: Collection[int]) -> None:
        for core in cores:
            descriptor = self._held.pop(core, None)
            if descriptor is not None:
                os.close(descriptor)

    def holders(self, cores: Collection[int]) -> dict[int, int]:
        """The processes that hold them now, by core, where the kernel lists them; without those held here."""
        inodes = {}
        for core in set(cores) - self._held.keys():
            with contextlib.suppress(OSError):
                inodes[str((self._folder / f"core-{core}").stat().st_ino)] = core
        found = {}
        with contextlib.suppress(OSError):
            for line in Path("/proc/locks").read_text().splitlines():
                # 1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF
                fields = line.split()
                inode = fields[5].rpartition(":")[2] if len(fields) > 5 else ""
                if fields[1] == "FLOCK" and inode in inodes:
                    found[inodes[inode]] = int(fields[4])
        return found

    def _lock(self, core: int) -> bool:
        descriptor = self._open(core)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._held[core] = descriptor
        return True

    def _open(self, core: int) -> int:
        """For reading: that is enough to lock, and permitted where another user made the file."""
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir()
            self._folder.chmod(0o1777)
        path = self._folder / f"core-{core}"
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def serve(silent_s: float) -> None:
    """Does what lines of JSON on stdin ask for and answers each on stdout, until stdin ends, or says nothing
    for `silent_s`: whoever asked is gone then, and so are the locks."""
    locks, pending = CoreLocks(), b""
    while select.select([0], [], [], silent_s)[0]:
        piece = os.read(0, 1 << 16)
        if not piece:
            return
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            sys.stdout.write(json.dumps(_answer(locks, json.loads(line))) + "\n")
            sys.stdout.flush()


def _answer(locks: CoreLocks, request: dict[str, Any]) -> dict[str, Any]:
    cores, folder = request.get("cores", []), Path(request.get("folder", "/"))
    match request["do"]:
        case "take":
            return {"others": sorted(locks.take(cores))}
        case "release":
            locks.release(cores)
        case "holders":
            return {"holders": {str(core): process for core, process in locks.holders(cores).items()}}
        case "read":
            paths = [path for pattern in request["patterns"] for path in folder.glob(pattern)]
            return {"files": {str(path.relative_to(folder)): path.read_text() for path in paths}}
    return {}
