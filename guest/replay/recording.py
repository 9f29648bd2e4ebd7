"""The recording: one file of JSON lines that can be read, checked and given away.

    {"format": "vbstudy-recording", "version": 1, "level": "library", "command": [...], ...}
    {"stream": "main,main", "kind": "getrandom", "site": "libpython3.11.so:_PyOS_URandom", "data": "base64"}
    ...
    {"draws": 57, "sha256": "..."}

The last line has the number of draws and the SHA-256 of all bytes before it, so that a cut or changed file
is detected. Draws of one stream stand in their order; streams follow one another by name."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from guest.records.codec import NewerSchemaError, RecordError, from_json, to_json

FORMAT: Literal["vbstudy-recording"] = "vbstudy-recording"
VERSION = 1

Level = Literal["library", "python"]
KINDS = {
    "r": "getrandom",
    "e": "getentropy",
    "d": "device",
    "v": "random_device",
    "a": "arc4random",
    "p": "python",
    "s": "seed",
}
SITE_BYTES = 512  # what preload.c has room for
NAME_MAX = 255  # bytes of a file's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One draw: bytes that were handed out, or a seed that was set, as its JSON text."""

    stream: str
    kind: str
    site: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was recorded, and how. `level` is "library" where all random bytes were seen, "python" where only
    those drawn by Python were; then `python_hash_seed` was set, and is set again. `limits` are sentences."""

    format: Literal["vbstudy-recording"]
    version: int
    level: Level
    command: tuple[str, ...]
    created_at: str
    machine: str
    status: int
    python_hash_seed: str
    modules: dict[str, str]
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A whole recording."""

    header: Header
    draws: tuple[Draw, ...]

    @property
    def size_bytes(self) -> int:
        return sum(len(draw.data) for draw in self.draws)


class RecordingError(RecordError):
    """Not a complete recording; the text names file and line."""


class NewerRecordingError(NewerSchemaError):
    """Written by a newer vbstudy."""


def write(path: Path, recording: Recording) -> None:
    """Writes the whole file or none of it, readable by its owner alone (as `mkstemp` makes it): keys and
    tokens may have been drawn. Raises OSError, RecordingError for what `read` would refuse as too large."""
    lines = [_line(to_json(recording.header))]
    lines += [
        _line(
            {
                "stream": draw.stream,
                "kind": draw.kind,
                "site": draw.site,
                "data": base64.b64encode(draw.data).decode(),
            }
        )
        for draw in recording.draws
    ]
    body = b"".join(lines)
    tail = _line({"draws": len(recording.draws), "sha256": hashlib.sha256(body).hexdigest()})
    size, most = len(body) + len(tail), bounded.RECORDING.bytes
    if size > most:
        raise RecordingError(
            f"{path}: not written: the recording has {size >> 20} MiB, and replay accepts at most "
            f"{most >> 20}; record a shorter run"
        )
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body + tail)
            file.flush()
            os.fsync(file.fileno())
        Path(part).rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(part).unlink()
        raise


def read(path: Path) -> Recording:
    """Reads and checks a recording. Raises RecordingError, NewerRecordingError or OSError."""
    return parse(read_bounded(path, bounded.RECORDING), str(path))


def parse(content: bytes, source: str) -> Recording:
    """As `read`, of bytes; `source` is what errors call them."""
    lines = content.splitlines(keepends=True)
    if not lines or b'"vbstudy-recording"' not in lines[0]:
        raise RecordingError(f"{source}: is not a recording of `vbstudy record`")
    first = _object(lines[0], f"{source}, line 1")
    version = first.get("version")
    if isinstance(version, int) and version > VERSION:
        raise NewerRecordingError(
            f"{source}: version {version} is newer than this vbstudy reads ({VERSION}); upgrade vbstudy"
        )
    where = f"{source}, line {len(lines)}"
    tail = _object(lines[-1], where)
    if set(tail) != {"draws", "sha256"}:
        raise RecordingError(f"{where}: the last line with the checksum is missing; the file is cut off")
    if tail["sha256"] != hashlib.sha256(memoryview(content)[: -len(lines[-1])]).hexdigest():
        raise RecordingError(f"{source}: does not match its own SHA-256; it was changed or damaged")
    draws = tuple(_draw(line, f"{source}, line {number}") for number, line in enumerate(lines[1:-1], 2))
    if tail["draws"] != len(draws):
        raise RecordingError(f"{source}: has {len(draws)} draws, but its last line states {tail['draws']}")
    header = from_json(Header, first, f"{source}, line 1")
    seed = header.python_hash_seed
    if seed and not (re.fullmatch("[0-9]{1,10}", seed) and int(seed) < 2**32):
        raise RecordingError(f"{source}, line 1: python_hash_seed {seed!r:.40} is not 0 to {2**32 - 1}")
    return Recording(header=header, draws=draws)


def _draw(line: bytes, where: str) -> Draw:
    data = _object(line, where)
    if set(data) != {"stream", "kind", "site", "data"} or not all(isinstance(v, str) for v in data.values()):
        raise RecordingError(f"{where}: is not a draw")
    try:
        draw = Draw(**data | {"data": base64.b64decode(data["data"], validate=True)})
    except (binascii.Error, ValueError) as error:
        raise RecordingError(f"{where}: data is not base64: {error}") from None
    wrong = next(_wrong(draw), None)
    if wrong:
        raise RecordingError(f"{where}: is not a draw: {wrong}")
    return draw


def _wrong(draw: Draw) -> Iterator[str]:
    """What no process can have drawn, a phrase each."""
    if draw.kind not in KINDS.values():
        yield f"kind {draw.kind!r:.40} is none of {', '.join(KINDS.values())}"
    if not re.fullmatch(r"[^/\0,]+,[^/\0]*", draw.stream) or len(draw.stream.encode()) > NAME_MAX:
        yield f"stream {draw.stream!r:.40} is not the name of a process and a thread"
    if len(draw.site.encode()) >= SITE_BYTES:
        yield f"site is longer than {SITE_BYTES - 1} bytes"
    if draw.kind == "seed" and not _is_seed(draw.data):
        yield f"data {draw.data!r:.40} is not a seed"


def _is_seed(data: bytes) -> bool:
    """Whether the hooks can set it: a number, a text, whole numbers, or bytes in hex."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    match value:
        case {"hex": str(text)}:
            return re.fullmatch("(?:[0-9a-f]{2})*", text) is not None
        case list():
            return all(isinstance(each, int) for each in value)
    return isinstance(value, (int, float, str))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = plain_json.parse(line, bounded.RECORDING)
    except plain_json.PlainJsonError as error:
        raise RecordingError(f"{where}: {error}") from None
    if not isinstance(data, dict):
        raise RecordingError(f"{where}: an object was expected")
    return data


def _line(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=True).encode() + b"\n"
