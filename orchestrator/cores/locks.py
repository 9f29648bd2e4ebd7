"""Cores of this machine that one process holds and no other may have: a lock a core, which the kernel
takes back however its holder ends. A second lock a core is held by who waits for it, and passed through by
who takes it: else a process that needs several cores would wait for as long as others take them in turn.

This text alone is run on machines behind SSH (`orchestrator.cores.remote`), so it imports nothing of ours."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import stat
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

FOLDER = "VBSTUDY_CORE_LOCKS"
"""The environment variable that names another folder for the locks: processes lease apart from each other
only where they agree on it."""


class LockFolderError(Exception):
    """No lock can be taken there; the text says why, and what to do."""


def default_folder() -> Path:
    """The same for all users of a machine, root too: the system's folder for locks where everyone may
    write to it."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    for shared in (Path("/run/lock"), Path("/tmp")):  # noqa: S108  (what it holds is checked when it is opened)
        with contextlib.suppress(OSError):
            if shared.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH | stat.S_ISVTX:
                return shared / "vbstudy-cores"
    return Path(tempfile.gettempdir()) / "vbstudy-cores"


def flocked(folder: Path, names: Collection[str]) -> dict[str, int]:
    """The processes that hold locks on files of a folder, by name, where the kernel lists them."""
    found = {}
    with contextlib.suppress(OSError):
        device, files = _device(folder), {}
        for name in names:
            with contextlib.suppress(OSError):
                files[f"{device}:{(folder / name).lstat().st_ino}"] = name
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF
            fields = line.split()
            if fields[1] == "FLOCK" and len(fields) > 5 and fields[5] in files:
                found[files[fields[5]]] = int(fields[4])
    return found


def _device(folder: Path) -> str:
    """As the kernel lists locks: `stat` shows other devices on btrfs and on the layers of containers. Inodes
    alone are not unique: each tmpfs begins with the same."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        information = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split()
    finally:
        os.close(descriptor)
    mount = information[information.index("mnt_id:") + 1]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime
        fields = line.split()
        if fields[0] == mount:
            major, minor = map(int, fields[2].split(":"))
            return f"{major:02x}:{minor:02x}"
    return ""


class Locks(Protocol):
    """Of one machine's cores, for one holder."""

    def take(self, cores: Collection[int]) -> set[int]: ...
    def release(self, cores: Collection[int]) -> None: ...
    def holders(self, cores: Collection[int]) -> dict[int, int]: ...


class CoreLocks:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()
        self._held: dict[int, int] = {}  # descriptors by core
        self._next: dict[int, int] = {}  # of the cores that are waited for

    def take(self, cores: Collection[int]) -> set[int]:
        """Locks all of them and returns nothing, or none of them and returns those that others have, or wait
        for. Nobody else gets the ones that were only held, until a `take` succeeds: that of no cores gives
        them up. Raises LockFolderError."""
        try:
            others = self._lock_all("next", set(cores) - self._next.keys(), self._next)
            others = others or self._lock_all("core", set(cores), self._held)
        except LockFolderError:
            _close(self._next, list(self._next))
            raise
        if not others:
            _close(self._next, list(self._next))
        return others

    def release(self, cores: Collection[int]) -> None:
        _close(self._held, cores)

    def holders(self, cores: Collection[int]) -> dict[int, int]:
        """The processes that hold them now, by core, where the kernel lists them; without those held here."""
        names = {f"core-{core}": core for core in set(cores) - self._held.keys()}
        return {names[name]: process for name, process in flocked(self._folder, names).items()}

    def _lock_all(self, kind: str, cores: set[int], held: dict[int, int]) -> set[int]:
        """As `take`, with the locks of one kind: all or none, so that two never wait for each other."""
        try:
            others = {core for core in cores if not self._lock(kind, core, held)}
        except LockFolderError:
            _close(held, cores)
            raise
        if others:
            _close(held, cores - others)
        return others

    def _lock(self, kind: str, core: int, held: dict[int, int]) -> bool:
        descriptor = self._open(f"{kind}-{core}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        held[core] = descriptor
        with contextlib.suppress(OSError):  # of another user; old files are cleared away
            os.utime(descriptor)
        return True

    def _open(self, name: str) -> int:
        """For reading: that is enough to lock, and permitted where another user made the file. The folder is
        shared with other users, so that nothing in it is followed or waited for."""
        try:
            folder = self._open_folder()
            try:
                with contextlib.suppress(FileExistsError):
                    made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=folder)
                    os.fchmod(made, 0o644)  # whatever the umask: other users lock it too
                    os.close(made)
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(name, flags, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._error(error.filename or self._folder, error.strerror or str(error)) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._error(name, "not a plain file")
        return descriptor

    def _open_folder(self) -> int:
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir()
            self._folder.chmod(0o1777)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        found = os.fstat(folder)
        if found.st_uid not in (0, os.geteuid()) and not found.st_mode & stat.S_ISVTX:
            os.close(folder)
            raise self._error(self._folder, f"user {found.st_uid} can replace what others put into it")
        return folder

    def _error(self, path: object, why: str) -> LockFolderError:
        return LockFolderError(
            f"cores cannot be leased: {self._folder / str(path)}: {why}; remove it, or name another folder "
            f"by {FOLDER} (the same for all who use this machine)"
        )


def _close(held: dict[int, int], cores: Collection[int]) -> None:
    for core in cores:
        descriptor = held.pop(core, None)
        if descriptor is not None:
            os.close(descriptor)


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
            try:
                return {"others": sorted(locks.take(cores))}
            except LockFolderError as error:
                return {"error": str(error)}
        case "release":
            locks.release(cores)
        case "holders":
            return {"holders": {str(core): process for core, process in locks.holders(cores).items()}}
        case "read":
            paths = [path for pattern in request["patterns"] for path in folder.glob(pattern)]
            return {"files": {str(path.relative_to(folder)): path.read_text() for path in paths}}
    return {}
