"""Runs somebody's program with its random numbers recorded, or given back.

The library (`guest/replay/preload.c`) is preloaded where there can be one; the hooks in Python are found by
PYTHONPATH. Both work in a folder that is gone afterwards; what is kept is the recording."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.replay import recording, streams
from guest.replay.library import LibraryUnavailableError, library
from guest.replay.recording import FORMAT, VERSION, Header, Level, Recording
from orchestrator.errors import PrerequisiteError, ProtocolError, StoreError, UsageError
from orchestrator.store import now

HOOKS = Path(recording.__file__).parent / "hooks"
POLL_S = 0.2
STOP_S = 5.0
FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "jax"})
PYTHON_ONLY = (
    "only what Python draws was recorded: random bytes that C and C++ code draws by itself, and Python's own "
    "before it starts, were not"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A program that ended. `modules` and `limits` are what its Python processes said at their end;
    `hooked` is false where none said anything."""

    status: int
    modules: dict[str, str]
    limits: tuple[str, ...]
    notes: tuple[str, ...]
    hooked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replay in which all was asked for as recorded. `idle` are recorded processes that did not run."""

    ended: Ended
    draws: int
    idle: tuple[str, ...]


class ReplayError(ProtocolError):
    """The program does not ask for the random numbers that were recorded."""


def choose_level(asked: str) -> tuple[Level, str]:
    """The level, and why there is no library where it is "python". Raises PrerequisiteError when the library
    was asked for and cannot be had."""
    if asked == "python":
        return "python", ""
    try:
        library()
    except LibraryUnavailableError as error:
        if asked == "library":
            raise PrerequisiteError(f"--level library: {error}") from None
        return "python", str(error)
    return "library", ""


def record(command: Sequence[str], output: Path, level: Level) -> tuple[Recording, Ended]:
    """Runs the program and writes the recording, also when the program failed. Raises UsageError when the
    program cannot be started or drew nothing, StoreError or OSError when its draws cannot be kept."""
    hash_seed = str(secrets.randbelow(2**32)) if level == "python" else ""
    with _folder() as folder:
        streams.prepare(folder)
        ended = _run(command, folder, "record", level, hash_seed)
        _check_kept(folder)
        if (folder / "error").exists():
            raise StoreError((folder / "error").read_text(errors="replace").partition("\n")[0])
        draws = streams.collect(folder)
    if not draws:
        raise UsageError(
            f"{command[0]}: drew no random numbers that can be seen; a program that is linked statically, or "
            "Python started with -I, -E or -S at level python, cannot be recorded"
        )
    header = Header(
        format=FORMAT,
        version=VERSION,
        level=level,
        command=tuple(command),
        created_at=now(),
        machine=f"{platform.system()} {platform.machine()}",
        status=ended.status,
        python_hash_seed=hash_seed,
        modules=ended.modules,
        limits=ended.limits,
    )
    made = Recording(header=header, draws=draws)
    recording.write(output, made)
    return made, ended


def replay(recorded: Recording, command: Sequence[str]) -> Replayed:
    """Runs the program with the recorded numbers. Raises ReplayError, which names the call site, when it asks
    for others, more or fewer; PrerequisiteError when the library that the recording needs is not there."""
    level = recorded.header.level
    if level == "library":
        try:
            library()
        except LibraryUnavailableError as error:
            raise PrerequisiteError(f"the recording was made with the library, and here {error}") from None
    with _folder() as folder:
        streams.prepare(folder, recorded.draws)
        ended = _run(command, folder, "replay", level, recorded.header.python_hash_seed)
        _check_kept(folder)
        report = folder / "error"
        if report.exists():
            raise _replay_error(report.read_text(errors="replace"))
        unread = streams.left_over(folder)
        idle = tuple(streams.never_ran(folder))
    if unread and ended.status == recorded.header.status:
        name, draws = next(iter(unread.items()))
        left = sum(map(len, unread.values()))
        raise ReplayError(
            f"the program asked for less than was recorded: {left} {'draw is' if left == 1 else 'draws are'} "
            f"left; the first in {name}: {draws[0].kind} of {len(draws[0].data)} bytes at {draws[0].site}"
        )
    return Replayed(ended=ended, draws=len(recorded.draws), idle=idle)


def _check_kept(folder: Path) -> None:
    """Raises StoreError when a process of the program could not write what it drew."""
    if not (folder / "whole").exists():
        raise StoreError(
            f"{folder}: what the program draws cannot be kept there, its disk is full or limited; make room, "
            "or name another folder with TMPDIR"
        )


def _replay_error(report: str) -> ReplayError:
    """The report's first line, with the user's line of Python where there is one."""
    message, _, stack = report.partition("\n")
    frames = re.findall(r'^  File "(.+)", line (\d+)', stack, re.MULTILINE)
    libraries = ("site-packages", "/lib/python", str(HOOKS), "<")
    own = [f for f in frames if not any(each in f[0] for each in libraries)]
    where = f"; in Python at {own[0][0]}, line {own[0][1]}" if own else ""
    return ReplayError(message + where, evidence=stack)


# ---- the program -----------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-replay-") as folder:
        yield Path(folder)


def _run(command: Sequence[str], folder: Path, mode: str, level: Level, hash_seed: str) -> Ended:
    found = shutil.which(command[0])
    if found is None:
        raise UsageError(f"{command[0]}: there is no such program")
    env = _environment(folder, mode, level, hash_seed)
    try:
        process = subprocess.Popen([found, *command[1:]], env=env)
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from None
    try:
        while True:
            try:
                status = process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                if (folder / "error").exists():  # one of its processes ended; the others would wait for it
                    status = _end(process)
                    break
    except BaseException:
        _end(process)
        raise
    return _ended(folder, status)


def _end(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _environment(folder: Path, mode: str, level: Level, hash_seed: str) -> dict[str, str]:
    env: Mapping[str, str] = os.environ
    added = {
        "VBSTUDY_REPLAY_MODE": mode,
        "VBSTUDY_REPLAY_FOLDER": str(folder),
        "VBSTUDY_REPLAY_LEVEL": level,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOKS), env.get("PYTHONPATH")))),
    }
    if level == "library":
        added["LD_PRELOAD"] = " ".join(filter(None, (str(library()), env.get("LD_PRELOAD"))))
    elif "PYTHONHASHSEED" not in env:
        added["PYTHONHASHSEED"] = hash_seed
    return {**env, **added}


def _ended(folder: Path, status: int) -> Ended:
    told: list[dict[str, Any]] = [json.loads(path.read_text()) for path in (folder / "python").iterdir()]
    notes = folder / "notes"
    return Ended(
        status=status if status >= 0 else 128 - status,  # as a shell says of a signal
        modules={name: version for each in told for name, version in each["modules"].items()},
        limits=tuple(sorted({limit for each in told for limit in each["limits"]})),
        notes=tuple(notes.read_text().splitlines()) if notes.exists() else (),
        hooked=bool(told),
    )


def remarks(ended: Ended, level: Level, why: str) -> list[str]:
    """What the user must know of what was recorded or replayed, a sentence each."""
    found = [f"{PYTHON_ONLY}{f' ({why})' if why else ''}"] if level == "python" else []
    if not ended.hooked:
        found.append(
            "no process of the program ran the hooks in Python to its end: seeds made of clocks were not seen"
        )
    elif not FRAMEWORKS & set(ended.modules):
        found.append(f"the program imported none of {', '.join(sorted(FRAMEWORKS))}")
    return [*found, *ended.limits, *ended.notes]


def as_json(header: Header, draws: int, size_bytes: int, said: Sequence[str]) -> dict[str, Any]:
    return {**dataclasses.asdict(header), "draws": draws, "size_bytes": size_bytes, "remarks": list(said)}
