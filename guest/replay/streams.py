"""The folder in which the library and the hooks keep draws while a program runs.

    streams/<process>,<thread>          events, one after the other
    streams/<process>,<thread>.used     replay: how many bytes of the stream were read (8 bytes)
    claims/                             names that processes have taken
    python/                             the summary of each process, by the hooks in Python
    notes                               sentences for the user, a line each
    error                               the error that ended a replay
    whole                               removed when something could not be written

An event is its kind (1 byte), the length of its site (2), the size of its data (4), little-endian, then
site and data: as in preload.c and in hooks/vbstudy_replay.py."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from guest.replay.recording import Draw, RecordingError

EVENT = struct.Struct("<BHI")
KINDS = {
    "r": "getrandom",
    "e": "getentropy",
    "d": "device",
    "v": "random_device",
    "a": "arc4random",
    "p": "python",
    "s": "seed",
}
MAIN = {"main", "py-main"}  # the program itself, in the library and in Python
LETTERS = {name: letter for letter, name in KINDS.items()}


def prepare(folder: Path, draws: Iterable[Draw] = ()) -> None:
    """Makes the folder ready for a program; with `draws`, for a replay of them."""
    for name in ("streams", "claims", "python"):
        (folder / name).mkdir(parents=True)
    (folder / "whole").touch()
    streams: dict[str, list[bytes]] = {}
    for draw in draws:
        if draw.kind not in LETTERS or "/" in draw.stream:
            raise RecordingError(f"a draw of kind {draw.kind!r} in stream {draw.stream!r} cannot be replayed")
        site = draw.site.encode()
        event = EVENT.pack(ord(LETTERS[draw.kind]), len(site), len(draw.data)) + site + draw.data
        streams.setdefault(draw.stream, []).append(event)
    for name, events in streams.items():
        (folder / "streams" / name).write_bytes(b"".join(events))


def collect(folder: Path) -> tuple[Draw, ...]:
    """All draws of a recorded program. The last event of a process that was killed may be cut off; it was
    never used, and is left out."""
    return tuple(
        draw
        for path in sorted((folder / "streams").iterdir())
        for draw, _ in _events(path.name, path.read_bytes())
    )


def _events(stream: str, data: bytes) -> list[tuple[Draw, int]]:
    """Each event with the offset behind it."""
    found = []
    offset = 0
    while offset + EVENT.size <= len(data):
        kind, site_length, size = EVENT.unpack_from(data, offset)
        end = offset + EVENT.size + site_length + size
        if end > len(data):
            break
        site = data[offset + EVENT.size : offset + EVENT.size + site_length].decode(errors="replace")
        draw = Draw(stream=stream, kind=KINDS[chr(kind)], site=site, data=data[end - size : end])
        found.append((draw, end))
        offset = end
    return found


def left_over(folder: Path) -> dict[str, list[Draw]]:
    """After a replay: the draws of each stream that were not asked for, of the program itself and of
    processes that asked for any.
    Helper programs that were not started this time are not counted: see `never_ran`."""
    ran = _processes_that_ran(folder) | MAIN
    return {name: draws for name, draws in _unread(folder).items() if draws and name.partition(",")[0] in ran}


def never_ran(folder: Path) -> list[str]:
    """After a replay: the recorded processes that asked for nothing."""
    ran = _processes_that_ran(folder)
    return sorted({name.partition(",")[0] for name in _unread(folder)} - ran)


def _unread(folder: Path) -> dict[str, list[Draw]]:
    found = {}
    for path in sorted((folder / "streams").iterdir()):
        if path.name.endswith(".used"):
            continue
        used = path.with_name(path.name + ".used")
        position = int.from_bytes(used.read_bytes(), "little") if used.exists() else 0
        found[path.name] = [draw for draw, end in _events(path.name, path.read_bytes()) if end > position]
    return found


def _processes_that_ran(folder: Path) -> set[str]:
    return {path.name.partition(",")[0] for path in (folder / "streams").glob("*.used")}
