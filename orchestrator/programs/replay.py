"""Runs a user's program with its random numbers recorded or replayed: the commands record and replay."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.projects.command import adopt_orphans, descendants, end_descendants
from guest.records.codec import RecordError
from guest.replay import program, recording, streams
from guest.replay.library import LibraryUnavailableError
from guest.replay.recording import Level, Recording
from orchestrator.errors import PrerequisiteError, ProtocolError, StoreError, UsageError
from orchestrator.files import temporary_folder, temporary_place
from orchestrator.programs.watcher import watched

POLL_S = 0.2
STOP_S = 5.0
FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "jax"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A program that ended, with which status (128 + n for signal n, as in a shell), and its summary."""

    status: int
    summary: program.Summary


class ReplayError(ProtocolError):
    """The program does not ask for the random numbers that were recorded."""


def choose_level(asked: str) -> tuple[Level, str]:
    """The level, and why there is no library where it is "python". Raises PrerequisiteError when the library
    was asked for and cannot be had."""
    if asked == "python":
        return "python", ""
    level, why = program.best_level(None)
    if why and asked == "library":
        raise PrerequisiteError(f"--level library: {why}")
    return level, why


def record(command: Sequence[str], output: Path, level: Level) -> tuple[Recording, Ended]:
    """Runs the program and writes the recording, also when the program failed. Raises UsageError when the
    program cannot be started or drew nothing, StoreError or OSError when its draws cannot be kept."""
    hash_seed = str(secrets.randbelow(2**32)) if level == "python" else ""
    with _folder() as folder:
        added = program.prepare(folder, "record", level, hash_seed, os.environ)
        ended = _run(command, folder, added)
        trouble = program.trouble(folder)
        if trouble is not None:
            raise StoreError(trouble.text)
        draws = streams.collect(folder)
    if not draws:
        raise UsageError(
            f"{command[0]}: drew no visible random numbers; a program that is linked statically, or "
            "Python started with -I, -E or -S at level python, cannot be recorded"
        )
    header = program.header(level, command, ended.status, hash_seed, ended.summary)
    made = Recording(header=header, draws=draws)
    try:
        recording.write(output, made)
    except RecordError as error:
        raise StoreError(str(error)) from None
    return made, ended


def replay(recorded: Recording, command: Sequence[str]) -> tuple[Ended, list[str]]:
    """Runs the program with the recorded numbers; notes also which recorded processes did not run. Raises
    ReplayError, which names the call site, when it asks for others, more or fewer; PrerequisiteError when the
    library that the recording needs is not there."""
    header = recorded.header
    with _folder() as folder:
        try:
            added = program.prepare(
                folder, "replay", header.level, header.python_hash_seed, os.environ, recorded.draws
            )
        except LibraryUnavailableError as error:
            raise PrerequisiteError(f"the recording was made with the library, and here {error}") from None
        ended = _run(command, folder, added)
        trouble = program.trouble(folder)
        if trouble is not None:
            raise ReplayError(trouble.text, evidence=trouble.stack)
        less = program.too_little(folder)
        idle = program.idle(folder)
    if less and ended.status == header.status:
        raise ReplayError(less)
    return ended, idle


@contextmanager
def _folder() -> Iterator[Path]:
    with temporary_folder("vbstudy-replay-", temporary_place()) as folder:
        try:
            yield folder
        except OSError as error:
            error.filename = error.filename or str(folder)  # a failed write does not name its file
            raise


def _run(command: Sequence[str], folder: Path, added: Mapping[str, str]) -> Ended:
    found = shutil.which(command[0])
    if found is None:
        raise UsageError(f"{command[0]}: no such program")
    adopt_orphans()
    with watched() as mark:
        others = set(descendants(os.getpid()))
        try:
            process = subprocess.Popen([found, *command[1:]], env=os.environ | added | mark)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from None
        status = _wait(process, others, folder)
    _wait_for_helpers()
    if not program.kept(folder):
        why = program.why_not_kept(folder)
        todo = f"make room in {folder.parent}, or name another folder with TMPDIR"
        if why.endswith(os.strerror(errno.EMFILE)):
            todo = "raise `ulimit -n`"
        raise StoreError(f"{why}; {todo}")
    return Ended(status=status if status >= 0 else 128 - status, summary=program.read_summary(folder))


def _wait(process: subprocess.Popen[bytes], others: set[int], folder: Path) -> int:
    """The program's status. It is ended when one of its processes is in trouble, or this is interrupted."""
    try:
        while True:
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if program.in_trouble(folder):
                    return _end(process, others)
    except BaseException:
        _end(process, others)
        raise


def _wait_for_helpers() -> None:
    """A helper may still be drawing when the program has ended, such as multiprocessing's tracker of
    resources, which ends by itself. One that stays is not waited for."""
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(0.02)


def _end(process: subprocess.Popen[bytes], others: set[int]) -> int:
    """Ends the program, and what it started: all below this process but `others`."""
    for end in (process.terminate, process.kill):
        try:
            process.wait(STOP_S)
            break
        except subprocess.TimeoutExpired:
            end()
    status = process.wait()
    end_descendants(others)
    return status


def remarks(ended: Ended, level: Level, why: str) -> list[str]:
    """Notes on what was recorded or replayed, a sentence each."""
    found = program.remarks(ended.summary, level, why)
    if ended.summary.hooked and not FRAMEWORKS & set(ended.summary.modules):
        found.append(f"the program imported none of {', '.join(sorted(FRAMEWORKS))}")
    return [*found, *ended.summary.notes]


def as_json(kept: Recording, notes: list[str]) -> dict[str, Any]:
    more = {"draws": len(kept.draws), "size_bytes": kept.size_bytes, "remarks": notes}
    return dataclasses.asdict(kept.header) | more
