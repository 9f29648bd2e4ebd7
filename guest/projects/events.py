"""Reads scalars from TensorBoard's event files, without TensorBoard.

A file is a sequence of records, each a length (uint64), its CRC, the data and their CRC; the data are a
protocol buffer `Event`. Fields as in tensorflow/core/util/event.proto and framework/summary.proto: an event
has a step (2) and a summary (5); a summary has values (1); a value has a tag (1), and a simple_value (2,
float) or a tensor (8) with float_val (5), double_val (6) or tensor_content (4)."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PATTERN = "**/events.out.tfevents.*"
MAX_RECORD_BYTES = 64 << 20
VARINT, BYTES, FIXED = 0, 2, {1: 8, 5: 4}  # wire types; bytes of those of a fixed length
DT_FLOAT, DT_DOUBLE = 1, 2


class EventError(ValueError):
    """A file that is not one of TensorBoard's."""


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    """(step, value) of one tag, files in order of their names. Raises EventError when there is no file, none
    has the tag, or files of several folders have it; the text names the tags, or the folders, that there
    are."""
    files = sorted(folder.glob(PATTERN)) if folder.is_dir() else []
    if not files:
        raise EventError("holds no TensorBoard events (events.out.tfevents.*)")
    found: list[tuple[int, float]] = []
    tags: dict[str, None] = {}
    having: dict[Path, None] = {}
    for path in files:
        for step, name, value in read(path):
            tags[name] = None
            if name == tag:
                found.append((step, value))
                having[path.parent.relative_to(folder)] = None
    if len(having) > 1:  # one folder for each of TensorBoard's runs
        raise EventError(f"has {tag!r} in several folders: {', '.join(map(str, having))}; name one in `file`")
    if not found:
        raise EventError(f"has no scalar {tag!r}; there are {', '.join(tags) or 'none'}")
    return found


def read(path: Path) -> Iterator[tuple[int, str, float]]:
    """(step, tag, value) of all scalars of a file. A record that was cut off, as by a kill, ends it."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length
        if length > MAX_RECORD_BYTES or end > len(data):
            return
        try:
            yield from _event(data[at + 12 : end])
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise EventError(f"{path.name}: is no file of TensorBoard's events: {error}") from None
        at = end + 4


def _event(data: bytes) -> Iterator[tuple[int, str, float]]:
    integers, fields = _message(data)
    for summary in fields[5]:
        for value in _message(summary)[1][1]:
            of_value = _message(value)[1]
            found = _tensor(of_value[8][-1]) if of_value[8] else None
            if of_value[2]:
                (found,) = struct.unpack("<f", of_value[2][-1])
            if found is not None:
                yield integers.get(2, 0), b"".join(of_value[1][-1:]).decode(), found


def _tensor(data: bytes) -> float | None:
    """The number of a tensor that holds one; None for others."""
    integers, fields = _message(data)
    raw = b"".join((fields[4] + fields[5] + fields[6])[-1:])
    form = {DT_FLOAT: "<f", DT_DOUBLE: "<d"}.get(integers.get(1, DT_FLOAT))
    if form is None or len(raw) != struct.calcsize(form):
        return None
    (found,) = struct.unpack(form, raw)
    return float(found)


def _message(data: bytes) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """The integers of a protocol buffer, and its other fields, by number. Raises IndexError where it is cut
    off."""
    integers: dict[int, int] = {}
    fields = defaultdict[int, list[bytes]](list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            integers[number], at = _varint(data, at)
            continue
        if kind == BYTES:
            length, at = _varint(data, at)
        elif kind in FIXED:
            length = FIXED[kind]
        else:
            raise IndexError(f"wire type {kind}")
        if at + length > len(data):
            raise IndexError("cut off")
        fields[number].append(data[at : at + length])
        at += length
    return integers, fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
