"""The folder in which the library and the hooks keep draws while a program runs.

    streams/<process>,<thread>     events, one after the other
    used/<process>,<thread>        replay: how many bytes of the stream were read (8 bytes)
    seeds                          replay: the recorded seeds of all streams, a line each
    own/<process>                  replay: those that the program set by itself, a line each
    claims/                        names that processes have taken
    python/                        the summary of each process, by the hooks in Python
    notes                          sentences for the user, a line each
    error                          the error that ended a replay
    whole                          removed when something could not be written

An event is its kind (1 byte), the length of its site (2), the size of its data (4), little-endian, then
site and data: as in preload.c and in hooks/vbstudy_replay.py."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from guest.replay.recording import KINDS, Draw

EVENT = struct.Struct("<BHI")
MAIN = {"main", "py-main"}  # the program itself, in the library and in Python
LETTERS = {name: letter for letter, name in KINDS.items()}


def prepare(folder: Path, draws: Iterable[Draw] = ()) -> None:
    """Makes the folder ready for a program; with `draws`, for a replay of them."""
    for name in ("streams", "used", "own", "claims", "python"):
        (folder / name).mkdir(parents=True)
    (folder / "whole").touch()
    streams: dict[str, list[bytes]] = {}
    seeds: set[bytes] = set()
    for draw in draws:
        site = draw.site.encode()
        event = EVENT.pack(ord(LETTERS[draw.kind]), len(site), len(draw.data)) + site + draw.data
        streams.setdefault(draw.stream, []).append(event)
        if draw.kind == "seed":
            seeds.add(_seed_line(draw))
    for name, events in streams.items():
        (folder / "streams" / name).write_bytes(b"".join(events))
    (folder / "seeds").write_bytes(b"\n".join(seeds))


def _seed_line(draw: Draw) -> bytes:
    """Its function and its value, as hooks/vbstudy_replay.py has it."""
    return draw.site.partition(" at ")[0].encode() + b" " + draw.data


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
    processes that asked for any; without the seeds that the program set by itself, wherever it did.
    Helper programs that were not started this time are not counted: see `never_ran`."""
    ran = _processes_that_ran(folder) | MAIN
    return {name: draws for name, draws in _unread(folder).items() if draws and name.partition(",")[0] in ran}


def never_ran(folder: Path) -> list[str]:
    """After a replay: the recorded processes that asked for nothing."""
    ran = _processes_that_ran(folder)
    return sorted({name.partition(",")[0] for name in _unread(folder)} - ran)


def _unread(folder: Path) -> dict[str, list[Draw]]:
    own = {line for path in (folder / "own").iterdir() for line in path.read_bytes().split(b"\n")}
    found = {}
    for path in sorted((folder / "streams").iterdir()):
        used = folder / "used" / path.name
        position = int.from_bytes(used.read_bytes(), "little") if used.exists() else 0
        unread = [draw for draw, end in _events(path.name, path.read_bytes()) if end > position]
        found[path.name] = [draw for draw in unread if draw.kind != "seed" or _seed_line(draw) not in own]
    return found


def _processes_that_ran(folder: Path) -> set[str]:
    return {path.name.partition(",")[0] for name in ("used", "own") for path in (folder / name).iterdir()}
