"""Durable writes: a file or a folder is in its place whole, or not at all, whenever the process is killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from analysis.results.temporary import temporary
from guest.machine.folders import remove_folder, unfit_for_hooks
from orchestrator.errors import GuestError, StoreError, UsageError, storage_error

LOCK_POLL_S = 0.2


def write_durably(path: Path, data: str | bytes, mode: int = 0o666) -> None:
    """Writes a whole file or none: beside it, synced, then renamed. It is created with `mode`, not changed to
    it: nobody else may open it in between."""
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)  # of one that was killed, maybe with another mode
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)  # point: file written
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)  # point: file renamed
    except OSError:
        part.unlink(missing_ok=True)
        raise


def require_writable(path: Path) -> None:
    """Raises StoreError where no file can be made beside `path`: before an hour of a program's runs. A file
    is made, because permissions do not say what root may do, or what a mount refuses."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None


def write_private(path: Path, data: bytes) -> None:
    """Such a file, for its owner alone. The same bytes are not written again."""
    if not path.exists() or path.read_bytes() != data:
        write_durably(path, data, 0o600)
    restrict(path)


def expand(path: str | Path) -> Path:
    """With the home that `~` or `~user` stands for. Raises UsageError where none is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: no home is known for {str(path).partition('/')[0]}") from None


def restrict(path: Path) -> None:
    """To its owner, as ssh demands of a private key; git and cp let others read it."""
    seen = path.stat()
    if seen.st_mode & 0o077 and seen.st_uid == os.geteuid():
        path.chmod(0o600)


def publish_folder(folder: Path, target: Path, names: Iterable[str]) -> bool:
    """Syncs the named files of a folder and renames it. False when `target` exists; `folder` then stays."""
    for name in names:
        sync(folder / name)  # point: staged file synced
    sync(folder)  # point: staged folder synced
    target.parent.mkdir(parents=True, exist_ok=True)  # point: condition folder made
    renamed = rename_folder(folder, target)  # point: published
    sync(target.parent)  # point: publication synced
    return renamed


def rename_folder(folder: Path, target: Path) -> bool:
    """False when `target` exists; `folder` then stays."""
    try:
        folder.rename(target)  # point: folder renamed
    except FileNotFoundError:
        # A client of NFS that gets no answer asks again, and hears that there is nothing to rename any more.
        if folder.exists() or not target.exists():
            raise
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def temporary_place() -> str:
    """Where temporary folders of programs are made. Raises UsageError where PYTHONPATH cannot name it."""
    place = tempfile.gettempdir()
    if unfit := unfit_for_hooks(place, "set TMPDIR to another folder"):
        raise UsageError(unfit)
    return place


@contextlib.contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[Path]:
    """A new folder in `place`, or where temporary files are, that is removed in the end. Those of killed
    processes, of the same prefix, are removed first."""
    with temporary(Path(place or tempfile.gettempdir()) / "work", prefix) as work:
        try:
            yield work.parent
        finally:
            remove_folder(work.parent)  # read-only folders, too


def make_private(folder: Path) -> None:
    """Makes a folder for this user alone, in a place that others may write to. Raises GuestError where there
    is one that is not ours, or a link."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_own(folder):
        raise GuestError(f"{folder}: is not this user's folder; remove it, or name another place in TMPDIR")


def is_own(folder: Path) -> bool:
    """Whether there is such a folder, not a link, and this user's."""
    try:
        seen = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()


def list_names(folder: Path) -> list[str]:
    """What a folder lists; nothing when there is none."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def require_readable(folder: Path, depth: int) -> None:
    """Raises StoreError for a folder, or one up to so many levels below it, that cannot be listed: a pattern
    (`Path.glob`) takes it for an empty one."""
    try:
        with os.scandir(folder) as entries:
            below = [Path(entry.path) for entry in entries if entry.is_dir()] if depth else []
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error.filename or folder, error, "read") from error
    for each in below:
        require_readable(each, depth - 1)


def open_lock(path: Path) -> int:
    """A descriptor of a file to lock, for its owner alone: who may read a file may lock it, for ever."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Waits for its turn; calls `waiting` now and then meanwhile, which may raise. The operating system ends
    the turn of one that dies."""
    with os.fdopen(open_lock(path)) as lock:
        while waiting is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_POLL_S)
                waiting()
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns an OSError of the block into a StoreError that names `path`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error
