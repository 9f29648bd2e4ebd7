"""Whether what is stored can be trusted: a record before it is written, a run's record and every byte of its
files when they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.codec import NewerSchemaError, RecordError, seal, sha256_of
from guest.records.run import RECORD, Artifact, RunRecord, RunSpec, decode_record
from orchestrator.errors import ProtocolError, StoreError


class DamagedRunError(Exception):
    """A run folder that cannot be trusted; the text says why."""


def sealed(record: Any, decode: Callable[[bytes], object]) -> bytes:
    """The bytes of its file. Raises ProtocolError for what `decode` would refuse to read back: much comes
    from guests."""
    data = seal(record).encode()
    try:
        decode(data)
    except RecordError as error:
        raise ProtocolError(f"the result cannot be stored: {error}") from None
    return data


def read_record(folder: Path) -> RunRecord:
    """A folder's record. Raises DamagedRunError, or StoreError when a newer vbstudy wrote it."""
    path = folder / RECORD
    if path.is_symlink():
        raise DamagedRunError(f"{RECORD} is not a plain file")
    try:
        return decode_record(read_bounded(path, bounded.RECORD))
    except NewerSchemaError as error:
        raise StoreError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise DamagedRunError(f"{RECORD} is missing") from None
    except (OSError, RecordError, UnicodeDecodeError) as error:
        raise DamagedRunError(f"{RECORD}: {error}") from None


def check_artifacts(folder: Path, record: RunRecord) -> None:
    """Raises DamagedRunError unless the folder holds just the named files, byte for byte."""
    artifacts = record.result.artifacts
    odd = record.spec.workload.unexpected_artifacts(artifacts)
    if odd:
        known = "is not in the manifest" if odd[0] not in artifacts else "in the manifest is no file of a run"
        raise DamagedRunError(f"{odd[0]} {known}")
    for name, expected in artifacts.items():
        check_artifact(folder / name, expected)


def check_artifact(path: Path, expected: Artifact) -> None:
    """Raises DamagedRunError unless the file is, byte for byte, what was promised."""
    try:
        size = path.lstat().st_size  # point: artifact read
        if path.is_symlink() or not path.is_file():
            raise DamagedRunError(f"{path.name} is not a plain file")
        if size != expected.size_bytes:
            raise DamagedRunError(f"{path.name} has {size} bytes, {expected.size_bytes} were promised")
        actual = sha256_of(path)
    except FileNotFoundError:
        raise DamagedRunError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamagedRunError(f"{path.name}: {error.strerror}") from None
    if actual != expected.sha256:
        raise DamagedRunError(f"{path.name} does not match its SHA-256")


KEYS = {"study_id": "name", "source": "project"}  # in the study file
PARTS = ("workload", "project", "seeds", "threads")


def differences(stored: RunSpec, asked: RunSpec) -> str:
    """`epochs = 2 (the study says 3)`, for every field that differs, but for limits."""
    before, now = stored.comparable, asked.comparable
    pairs: list[tuple[Any, Any]] = [(before.workload, now.workload), (before.seeds, now.seeds), (before, now)]
    if before.workload.project and now.workload.project:
        pairs.insert(0, (before.workload.project, now.workload.project))
    return ", ".join(
        f"{KEYS.get(name, name)} = {getattr(a, name)} (the study says {getattr(b, name)})"
        for a, b in pairs
        for name in a.__slots__
        if name not in PARTS and getattr(a, name) != getattr(b, name)
    )
