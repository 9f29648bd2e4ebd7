"""Dataclasses as checked JSON: a record becomes JSON-ready data and is read back field by field. Stored text
carries a checksum of itself. Nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from guest.records.bounded import RECORD, Limit
from guest.records.plain_json import PlainJsonError, parse

T = TypeVar("T")


class RecordError(ValueError):
    """A record that does not fit the schema; the text names the field."""


class NewerSchemaError(RecordError):
    """The record was written by a newer vbstudy: not damage, and never quarantined."""


@functools.cache
def fields_of(cls: type) -> tuple[dataclasses.Field[Any], ...]:
    """`dataclasses.fields`, which makes a new tuple for each call; Python keeps thousands of those that are
    no longer needed, and so a long sweep's memory would grow by them."""
    return dataclasses.fields(cls)


def to_json(record: Any) -> Any:
    """A dataclass as JSON-ready data: tuples become lists, enums their values; halves of pairs (bytes of the
    name of a file that are no text, say) are written out, as no encoding has them."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in fields_of(type(record))}
    if isinstance(record, Mapping):
        return {_encodable(str(key)): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    if isinstance(record, StrEnum):
        return record.value
    return _encodable(record) if isinstance(record, str) else record


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def from_json(cls: type[T], data: Any, where: str = "record") -> T:
    """The inverse of `to_json`, checked field by field. Raises RecordError naming the field."""
    return typing.cast(T, _read(cls, data, where))


def _read(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _read(next(arm for arm in get_args(kind) if arm is not type(None)), data, where)
    if origin is Literal:
        if data not in get_args(kind):
            raise RecordError(f"{where}: {data!r} is none of {', '.join(map(repr, get_args(kind)))}")
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise RecordError(f"{where}: a list was expected, not {data!r:.80}")
        return tuple(_read(get_args(kind)[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            raise RecordError(f"{where}: an object was expected, not {data!r:.80}")
        return {key: _read(get_args(kind)[1], v, f"{where}.{key}") for key, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), data, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(data)
        except ValueError as error:
            raise RecordError(f"{where}: {error}") from error
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise RecordError(f"{where}: {kind.__name__} was expected, not {data!r:.80}")
    return data


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read_dataclass(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise RecordError(f"{where}: an object was expected, not {data!r:.80}")
    hints = _hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise RecordError(f"{where}: unknown field {unknown[0]!r}")
    values: dict[str, Any] = {}
    for f in fields_of(cls):
        if f.name in data:
            values[f.name] = _read(hints[f.name], data[f.name], f"{where}.{f.name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise RecordError(f"{where}: field {f.name!r} is missing")
    return cls(**values)


def canonical_json(data: Any) -> bytes:
    """The bytes that are hashed: sorted keys, no spaces, UTF-8."""
    return json.dumps(to_json(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(data)).hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(record: Any, *, checksum: str = "record_sha256", indent: int | None = 1) -> str:
    """A dataclass as the text of a file, with a checksum of itself so that a flipped byte shows."""
    data = to_json(record)
    return json.dumps({**data, checksum: digest(data)}, indent=indent, ensure_ascii=False) + "\n"


def unseal(
    cls: type[T],
    text: str | bytes,
    where: str,
    *,
    known: int,
    version: str = "schema_version",
    checksum: str = "record_sha256",
    limit: Limit = RECORD,
    upgrade: Callable[[dict[str, Any], int], None] | None = None,
) -> T:
    """The inverse of `seal`. `known` is the newest version that this program reads, `version` the field that
    has it; `upgrade` gives the fields of an older version
    their names of today. Raises RecordError for damage, NewerSchemaError for a newer version."""
    try:
        data = parse(text, limit)
    except PlainJsonError as error:
        raise RecordError(str(error)) from error
    if not isinstance(data, dict):
        raise RecordError("an object was expected")
    found = data.get(version)
    if isinstance(found, int) and found > known:
        raise NewerSchemaError(
            f"{version.replace('_', ' ')} {found} is newer than this vbstudy reads ({known}); upgrade vbstudy"
        )
    if data.pop(checksum, None) != digest(data):
        raise RecordError("it does not match its own checksum")
    if upgrade is not None and isinstance(found, int) and found < known:
        try:
            upgrade(data, found)
        except (AttributeError, KeyError, TypeError) as error:
            raise RecordError(f"{where}: not a record of version {found}") from error
    return from_json(cls, data, where)
