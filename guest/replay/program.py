"""A program with its random numbers recorded or replayed: what it finds at its start, and what it leaves.

The library (`preload.c`) is preloaded where there can be one; the hooks in Python are found by PYTHONPATH.
Both work in a folder of their own; what is kept is the recording."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from guest.replay import streams
from guest.replay.library import LibraryUnavailableError, library
from guest.replay.recording import FORMAT, VERSION, Draw, Header, Level

PYTHON_ONLY = (
    "only what Python draws was recorded: random bytes that C and C++ code draws by itself, and Python's own "
    "before it starts, were not"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a program's Python processes report at their end: `modules` with their versions, `limits` of what
    was recorded; and what was noted meanwhile. `hooked` is false where none of them ended by itself."""

    modules: dict[str, str]
    limits: tuple[str, ...]
    notes: tuple[str, ...]
    hooked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a program was ended: it does not ask for what was recorded, or its draws cannot be kept. The text
    names the call site, and its user's line of Python where there is one; `stack` is all of it."""

    text: str
    stack: str


def best_level(cache: Path | None) -> tuple[Level, str]:
    """ "library" where it can be made here; else "python", and why."""
    try:
        library(cache)
    except LibraryUnavailableError as error:
        return "python", str(error)
    return "library", ""


def prepare(
    folder: Path,
    mode: Literal["record", "replay"],
    level: Level,
    hash_seed: str,
    env: Mapping[str, str],
    draws: Sequence[Draw] = (),
    cache: Path | None = None,
) -> dict[str, str]:
    """Makes the folder ready, and returns what must be added to `env`. `hash_seed` is Python's, set at
    level "python" unless `env` sets it. Raises LibraryUnavailableError at level "library"."""
    streams.prepare(folder, draws)
    copy_hooks("guest.replay", folder / "hooks")
    added = {
        "VBSTUDY_REPLAY_MODE": mode,
        "VBSTUDY_REPLAY_FOLDER": str(folder),
        "VBSTUDY_REPLAY_LEVEL": level,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "hooks"), env.get("PYTHONPATH")))),
    }
    if level == "library":
        added["LD_PRELOAD"] = " ".join(filter(None, (str(library(cache)), env.get("LD_PRELOAD"))))
    elif "PYTHONHASHSEED" not in env:
        added["PYTHONHASHSEED"] = hash_seed
    return added


def copy_hooks(package: str, folder: Path) -> None:
    """What Python processes run at their start when `folder` is on their path; the package may lie in a zip
    archive."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = resources.files("vbstudy.exact") / "hook" / "vbstudy_imports.py"
    for item in (*(resources.files(package) / "hooks").iterdir(), shared):
        if item.name.endswith(".py"):
            (folder / item.name).write_bytes(item.read_bytes())


def header(level: Level, command: Sequence[str], status: int, hash_seed: str, summary: Summary) -> Header:
    """Of a recording that was made here and now."""
    return Header(
        format=FORMAT,
        version=VERSION,
        level=level,
        command=tuple(command),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        machine=f"{platform.system()} {platform.machine()}",
        status=status,
        python_hash_seed=hash_seed,
        modules=summary.modules,
        limits=summary.limits,
    )


def kept(folder: Path) -> bool:
    """Whether all was written that its processes drew; they are ended when it cannot be."""
    return (folder / "whole").exists()


def why_not_kept(folder: Path) -> str:
    """In the system's words, unless they could not be written either."""
    report = folder / "error"
    first = report.read_text(errors="replace").partition("\n")[0] if report.exists() else ""
    why = first.partition(" cannot be written: ")[2] or "the disk is full, or limited"
    return f"what the program draws cannot be written: {why}"


def in_trouble(folder: Path) -> bool:
    """Whether one of its processes was ended; the others may wait for it forever."""
    return not kept(folder) or (folder / "error").exists()


def trouble(folder: Path, root: str = "") -> Trouble | None:
    """Files below `root`, the program's own folder, are named without it."""
    if not in_trouble(folder):
        return None
    if not kept(folder):
        return Trouble(text=why_not_kept(folder), stack="")
    message, _, stack = (folder / "error").read_text(errors="replace").partition("\n")
    frames = re.findall(r'^  File "(.+)", line (\d+)', stack, re.MULTILINE)
    libraries = ("site-packages", "/lib/python", str(folder / "hooks"), "<")
    own = [frame for frame in frames if not any(each in frame[0] for each in libraries)]
    if own:
        file, line = own[0]
        message += f"; in Python at {file.removeprefix(f'{root}/' if root else '')}, line {line}"
    return Trouble(text=message, stack=stack)


def too_little(folder: Path) -> str:
    """After a replay that succeeded: an error when the program asked for less than was recorded, else ""."""
    unread = streams.left_over(folder)
    if not unread:
        return ""
    name, draws = next(iter(unread.items()))
    left = sum(map(len, unread.values()))
    return (
        f"the program asked for less than was recorded: {left} {'draw is' if left == 1 else 'draws are'} "
        f"left; the first in {name}: {draws[0].kind} of {len(draws[0].data)} bytes at {draws[0].site}"
    )


def idle(folder: Path) -> list[str]:
    """After a replay: a note on the recorded processes that asked for nothing, where there are any."""
    names = streams.never_ran(folder)
    return [f"recorded processes that did not run this time: {', '.join(names)}"] if names else []


def read_summary(folder: Path) -> Summary:
    """The summaries of the program's processes, after it has ended."""
    said: list[dict[str, Any]] = [json.loads(path.read_text()) for path in (folder / "python").iterdir()]
    notes = folder / "notes"
    return Summary(
        modules={name: version for each in said for name, version in each["modules"].items()},
        limits=tuple(sorted({limit for each in said for limit in each["limits"]})),
        notes=tuple(notes.read_text().splitlines()) if notes.exists() else (),
        hooked=bool(said),
    )


def remarks(summary: Summary, level: Level, why: str) -> list[str]:
    """Notes on what was recorded or replayed, a sentence each, without `summary.notes`; `why` there is no
    library."""
    found = [f"{PYTHON_ONLY}{f' ({why})' if why else ''}"] if level == "python" else []
    if not summary.hooked:
        found.append(
            "no process of the program ran the hooks in Python to its end: seeds made of clocks were not seen"
        )
    return [*found, *summary.limits]
