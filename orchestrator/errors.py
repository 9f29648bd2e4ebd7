"""What can go wrong, each kind with its exit code. A failed *run* is data and raises nothing;
what raises is a study that cannot go on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
EXIT_DONE = 0
EXIT_RUNS_FAILED = 1
EXIT_INTERRUPTED = 130


class VbstudyError(Exception):
    """Base of all errors shown to the user. `message` is one line that says what is wrong, where,
    and what to do; `evidence` is the tail of an output, or nothing."""

    exit_code = 2

    def __init__(self, message: str, *, evidence: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.evidence = evidence


class UsageError(VbstudyError):
    """The command line or the study file."""

    exit_code = 2


class UnmetError(VbstudyError):
    """Nothing is damaged, but what was asked for is not so: planned runs are missing, repeated ones differ, a
    program of the user's failed, no tier is proved, or `scan --check` found something."""

    exit_code = EXIT_RUNS_FAILED


class PrerequisiteError(VbstudyError):
    """Something must be installed or fetched first."""

    exit_code = 3


class GuestError(VbstudyError):
    """A provider or a guest failed."""

    exit_code = 4


class ProtocolError(VbstudyError):
    """The agent sent no message of the protocol, or nothing at all."""

    exit_code = 5


class StoreError(VbstudyError):
    """The store is damaged, cannot be written, or is newer than this program."""

    exit_code = 6


class DefectError(VbstudyError):
    """An exception that nothing expected."""

    exit_code = 7


STORAGE_ERRNOS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.EACCES,
        errno.EPERM,
        errno.ENOLCK,
    )
)
"""Errors of a disk or a file server, at any moment: no fault of this program, a guest or a run."""


def storage_error(path: object, error: OSError, cannot_be: str = "written") -> StoreError:
    """The error for storage that fails."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "the disk is full" if full else error.strerror
    todo = "free some space" if full else "fix that"
    return StoreError(
        f"{path}: cannot be {cannot_be}: {what}; finished runs are safe; {todo} and run the command again"
    )


def says_full(text: str) -> bool:
    """Whether a guest's error reports a full disk, in Python's words or in safetensors'."""
    return "No space left" in text


def for_each(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Works on all of them, whatever fails; then the first error is raised."""
    first: Exception | None = None
    for item in list(items):
        try:
            work(item)
        except Exception as error:  # noqa: BLE001  (raised below)
            first = first or error
    if first is not None:
        raise first
