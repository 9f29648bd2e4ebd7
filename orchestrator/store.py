"""The run directory, which is the ledger: a run exists when its folder does.

    study.toml  guests.json
    runs/<workload>/<variant>/cpus-<n>[-threads-<t>]/<rep>/     finished runs, never edited
    failed/...       attempts that failed, with their evidence
    quarantine/...   folders that were damaged, with the reason
    projects/...     somebody's own projects as they are run: an archive each, and where it is from
    robustness/...   what was measured on the models of finished runs, a file a run
    trace/<id>/...   where two thread counts part, by `vbstudy trace`
    harden/...       what makes equal models on all thread counts, and what it costs, a file a workload
    sequential.json  the looks of `sweep --until`, planned before the first, and what they said
    scan.json        what `scan --keep` found in projects
    incoming/...     what is being collected; swept away by the next orchestrator
    .checked         which runs were found whole (`orchestrator.checked`); made anew when it is lost
    .live            what the sweep is doing (`orchestrator.live`); for those who watch

A finished run is published by renaming a complete, checked folder into place. This class owns every
path of a study."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from guest.harden_records import Hardening
from guest.harden_records import decode as decode_hardening
from guest.harden_records import encode as encode_hardening
from guest.records import (
    LOG,
    RECORD,
    Artifact,
    NewerSchemaError,
    RecordError,
    RunRecord,
    RunSpec,
    decode_record,
    encode_record,
)
from guest.robustness_records import Robustness, decode
from guest.trace_records import TRACE, Trace
from guest.trace_records import decode as decode_trace
from orchestrator.errors import ProtocolError, StoreError, UsageError, storage_error


class DamagedRunError(Exception):
    """A run folder that cannot be trusted; the text says why."""


class Store:
    """The folders of one study. Creating it touches nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.study_file = directory / "study.toml"
        self.guests_file = directory / "guests.json"
        self.runs = directory / "runs"
        self.failed = directory / "failed"
        self.quarantined = directory / "quarantine"
        self.incoming = directory / "incoming"
        self.guests = directory / "guests"
        self.report = directory / "report"
        self.robustness = directory / "robustness"
        self.projects = directory / "projects"
        self.traces = directory / "trace"
        self.probe = directory / "probe"
        self.hardenings = directory / "harden"
        self.sequential_file = directory / "sequential.json"
        self.checked_file = directory / ".checked"
        self.live_file = directory / ".live"
        self.scan_file = directory / "scan.json"
        self._lock_file = directory / ".lock"

    def paths(self) -> tuple[Path, ...]:
        """All files and folders that a study consists of."""
        named = (
            value for value in vars(self).values() if isinstance(value, Path) and value != self.directory
        )
        return (*named, self.directory / "keys", self.directory / "imported")

    # ---- reading -----------------------------------------------------------------------------

    def folder(self, spec: RunSpec) -> Path:
        return self.runs / spec.run_id

    def has(self, spec: RunSpec) -> bool:
        """Whether the run's folder exists; says nothing of its health."""
        return (self.folder(spec) / RECORD).is_file()

    def check(self, spec: RunSpec) -> RunRecord:
        """Reads a stored run and all its bytes. Raises DamagedRunError for damage, StoreError for a
        record this program cannot read, UsageError for a run of another study file."""
        folder = self.folder(spec)
        record = read_record(folder)
        _check_artifacts(folder, record)
        # Older schemas are read as they are; what a run was asked to do has no version.
        if dataclasses.replace(record.spec, schema_version=spec.schema_version) != spec:
            differing = _differences(record.spec, spec)
            raise UsageError(
                f"{folder}: was run with {differing}; "
                "give the workload a new name, or move the old folder away"
            )
        return record

    def records(self) -> Iterator[RunRecord]:
        """The records of all finished runs, in order of their ids. Damaged ones are left out: `check`
        and the analysis tell of them. Raises StoreError for the run of a newer vbstudy."""
        for path in sorted(self.runs.glob(f"*/*/*/*/{RECORD}")):
            with contextlib.suppress(DamagedRunError):
                yield read_record(path.parent)

    def records_of(self, set_id: str, at_most: int) -> list[RunRecord]:
        """Those of the first runs of an experiment set. Damaged ones are left out."""
        found: list[RunRecord] = []
        for path in sorted((self.runs / set_id).glob(f"*/{RECORD}"))[:at_most]:
            with contextlib.suppress(DamagedRunError):
                found.append(read_record(path.parent))
        return found

    def read_robustness(self, spec: RunSpec) -> Robustness | None:
        """What was measured of a run's model; None where nothing was, or where the file is damaged."""
        try:
            return decode((self.robustness / f"{spec.run_id}.json").read_bytes())
        except (OSError, RecordError, UnicodeDecodeError):
            return None

    def traces_done(self) -> list[Trace]:
        """The stored traces that can be read."""
        found = []
        for path in sorted(self.traces.glob(f"*/{TRACE}")):
            with contextlib.suppress(OSError, RecordError, UnicodeDecodeError):
                found.append(decode_trace(path.read_bytes()))
        return found

    def read_hardening(self, workload: str) -> Hardening | None:
        """What was measured of a workload's tiers; None where nothing was. Raises StoreError."""
        path = self.hardenings / f"{workload}.json"
        try:
            return decode_hardening(path.read_bytes())
        except FileNotFoundError:
            return None
        except NewerSchemaError as error:
            raise StoreError(f"{path}: {error}") from None
        except (OSError, RecordError, UnicodeDecodeError) as error:
            raise StoreError(f"{path}: {error}; move it away to measure anew") from None

    def repetitions(self, set_id: str) -> set[int]:
        """The repetitions of an experiment set whose folders exist; says nothing of their health."""
        names = (name for name in _names(self.runs / set_id) if name.isdecimal())
        return {int(name) for name in names if name == f"{int(name):04d}"}

    def failures(self, set_id: str) -> Counter[int]:
        """How many attempts of each repetition of an experiment set failed so far."""
        numbers = (name.partition("-")[0] for name in _names(self.failed / set_id))
        return Counter(int(number) for number in numbers if number.isdecimal())

    # ---- writing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, command: str) -> Iterator[None]:
        """Makes this process the study's one orchestrator. Raises UsageError that says who is.
        The operating system drops the lock when its holder dies, however it dies."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{self._lock_file}: cannot be written: {error.strerror}") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
                raise UsageError(
                    f"{self.directory}: another vbstudy works in this folder: {holder or 'unknown holder'}; "
                    "wait for it or stop it"
                ) from None
            holder = f"`{command}`, process {os.getpid()} on {socket.gethostname()}, since {now()}"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def clear_incoming(self) -> None:
        """Removes what a killed orchestrator left half collected. Only under the lock."""
        with _storage_errors(self.incoming), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.incoming)

    def new_incoming(self) -> Path:
        """An empty folder to collect one attempt in."""
        folder = self.incoming / uuid.uuid4().hex
        with _storage_errors(folder):
            folder.mkdir(parents=True)
        return folder

    def leave_token(self) -> str:
        """Something in `incoming/` by which another host knows that it sees this store."""
        return self.new_incoming().name

    def has_token(self, token: str) -> bool:
        return re.fullmatch("[0-9a-f]{32}", token) is not None and (self.incoming / token).is_dir()

    def collected(self, name: str) -> Path:
        """The folder in `incoming/` that another host left a run's files in. Raises ProtocolError for a name
        that is none."""
        if not self.has_token(name):
            raise ProtocolError(f"{self.incoming}: there is no folder {name!r}")
        return self.incoming / name

    def fill(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Writes files that came as bytes into a folder of `incoming/`."""
        with _storage_errors(folder):
            for name, data in files.items():
                (folder / name).write_bytes(data)

    def publish(self, folder: Path, record: RunRecord) -> bool:
        """Publishes a collected run: checks every byte, writes its record, renames it into place.
        False when the run existed already (the folder is dropped: nothing counts twice).
        Raises DamagedRunError when the files are not what the manifest says."""
        _check_artifacts(folder, record)
        target = self.folder(record.spec)
        with _storage_errors(target):
            write_durably(folder / RECORD, encode_record(record))
            for name in record.result.artifacts:
                _sync(folder / name)
            _sync(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (is_new := _put_in_place(folder, target)):
                shutil.rmtree(folder)
            _sync(target.parent)
        return is_new

    def publish_robustness(self, spec: RunSpec, text: str) -> None:
        """Writes one model's result, whole or not at all. The run's own folder is not touched."""
        target = self.robustness / f"{spec.run_id}.json"
        with _storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(target, text)

    def drop(self, run_id: str) -> None:
        """Forgets a run; for stores that keep runs only until another one has them."""
        shutil.rmtree(self.runs / run_id, ignore_errors=True)

    def new_trace_id(self, workload: str, labels: list[str]) -> str:
        """`lenet5-cpus-1-cpus-4-0001`, and the next number each time."""
        name = "-".join([workload, *labels])
        number = 1
        while (self.traces / f"{name}-{number:04d}").exists():
            number += 1
        return f"{name}-{number:04d}"

    @contextlib.contextmanager
    def new_trace(self, trace_id: str) -> Iterator[Path]:
        """A folder to write a trace into, published under its id when the block ends, whole or not at all."""
        folder, target = self.new_incoming(), self.traces / trace_id
        try:
            with _storage_errors(target):
                yield folder
                for file in folder.iterdir():
                    _sync(file)
                _sync(folder)
                self.traces.mkdir(exist_ok=True)
                folder.rename(target)
                _sync(self.traces)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def write_together(self, target: Path, write: Callable[[Path], None]) -> None:
        """Files that `write` puts into a folder beside `target`, moved into it when all are whole."""
        part = target.with_name(f"{target.name}.part")
        with _storage_errors(target):
            part.mkdir(parents=True, exist_ok=True)
            try:
                write(part)
                target.mkdir(exist_ok=True)
                for file in part.iterdir():
                    _sync(file)
                    file.rename(target / file.name)
            finally:
                shutil.rmtree(part)

    def publish_hardening(self, hardening: Hardening) -> None:
        """Writes what is known of a workload's tiers, whole or not at all."""
        target = self.hardenings / f"{hardening.workload.name}.json"
        with _storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(target, encode_hardening(hardening))

    def set_aside(self, spec: RunSpec, reason: str) -> Path:
        """Moves a damaged run out of `runs/`, with the reason beside its files: in one rename, so that it
        is in one place or the other, and never there without the reason."""
        source, target = self.folder(spec), self.quarantined / f"{spec.run_id}-{_stamp()}"
        with _storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not source.is_dir():  # not even a folder: it gets one
                target.mkdir()
                source.rename(target / source.name)
                source = target
            write_durably(source / "reason.txt", reason + "\n")
            if source != target:
                source.rename(target)
        return target

    def keep_failure(self, spec: RunSpec, attempt: int, folder: Path, error: dict[str, Any]) -> Path:
        """Keeps the evidence of a failed attempt, whole or not at all: the error and the log, not the partial
        results."""
        target = self.failed / spec.set_id / f"{spec.repetition:04d}-{_stamp()}"
        staged = self.new_incoming()
        with _storage_errors(target):
            evidence = {"run_id": spec.run_id, "attempt": attempt, "at": now(), **error}
            write_durably(staged / "error.json", json.dumps(evidence, indent=1) + "\n")
            if (folder / LOG).is_file():
                shutil.copyfile(folder / LOG, staged / LOG)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(target)
            shutil.rmtree(folder, ignore_errors=True)
        return target


# ---- checks ----------------------------------------------------------------------------------


def read_record(folder: Path) -> RunRecord:
    """A folder's record. Raises DamagedRunError, or StoreError when a newer vbstudy wrote it."""
    try:
        return decode_record((folder / RECORD).read_bytes())
    except NewerSchemaError as error:
        raise StoreError(f"{folder / RECORD}: {error}") from None
    except FileNotFoundError:
        raise DamagedRunError(f"{RECORD} is missing") from None
    except (OSError, RecordError, UnicodeDecodeError) as error:
        raise DamagedRunError(f"{RECORD}: {error}") from None


def _check_artifacts(folder: Path, record: RunRecord) -> None:
    """Raises DamagedRunError unless the folder holds just the named files, byte for byte."""
    artifacts = record.result.artifacts
    odd = record.spec.workload.odd_artifacts(artifacts)
    if odd:
        known = "is not in the manifest" if odd[0] not in artifacts else "in the manifest is no file of a run"
        raise DamagedRunError(f"{odd[0]} {known}")
    for name, expected in artifacts.items():
        check_artifact(folder / name, expected)


def check_artifact(path: Path, expected: Artifact) -> None:
    """Raises DamagedRunError unless the file is, byte for byte, what was promised."""
    try:
        size = path.lstat().st_size
        if path.is_symlink() or not path.is_file():
            raise DamagedRunError(f"{path.name} is not a plain file")
        if size != expected.size_bytes:
            raise DamagedRunError(f"{path.name} has {size} bytes, {expected.size_bytes} were promised")
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DamagedRunError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamagedRunError(f"{path.name}: {error.strerror}") from None
    if actual != expected.sha256:
        raise DamagedRunError(f"{path.name} does not match its SHA-256")


def _differences(stored: RunSpec, asked: RunSpec) -> str:
    """`epochs = 2 (the study says 3)`, for every field that differs."""
    pairs = []
    for a, b in ((stored.workload, asked.workload), (stored.seeds, asked.seeds), (stored, asked)):
        pairs += [
            f"{name} = {getattr(a, name)} (the study says {getattr(b, name)})"
            for name in a.__slots__
            if name not in ("workload", "seeds", "threads") and getattr(a, name) != getattr(b, name)
        ]
    return ", ".join(pairs)


# ---- small file operations -------------------------------------------------------------------


def write_durably(path: Path, text: str) -> None:
    """Writes a whole file or none: beside it, synced, then renamed."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def _put_in_place(folder: Path, target: Path) -> bool:
    """Renames a folder. False when the target is there already, and the folder still is."""
    try:
        folder.rename(target)
    except FileNotFoundError:
        # A client of NFS that gets no answer asks again, and hears that there is nothing to rename any more.
        if folder.exists() or not target.exists():
            raise
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def _names(folder: Path) -> list[str]:
    """What a folder lists; nothing when there is none."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S") + "-" + uuid.uuid4().hex[:6]
