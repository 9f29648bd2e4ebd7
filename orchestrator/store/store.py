"""The run directory is the ledger: a run exists when its folder does.

    study.toml  guests.json
    runs/<workload>/<variant>/cpus-<n>[-threads-<t>]/<rep>/     finished runs, never edited
    failed/...       failed attempts: error and log
    quarantine/...   damaged run folders, with the reason
    projects/...     user projects as they are run: an archive each, and its source
    robustness/...   robustness of the models of finished runs, a file a run
    trace/<id>/...   `vbstudy trace`: the first operation whose result differs between two thread counts
    harden/...       `vbstudy harden`: settings that give equal models on all thread counts, and their cost
    sequential.json  `sweep --until`: the plan, written before the first interim analysis, and the decisions
    scan.json        `scan --keep`: what was found in projects
    incoming/...     files being collected; the next orchestrator removes them
    .checked         runs found whole (`orchestrator.store.index`); rebuilt when it is lost
    .live            what the sweep is doing (`orchestrator.sweep.live`), for `vbstudy watch`

A finished run is published by renaming a complete, checked folder into place. This class owns every
path of a study."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import socket
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.load.failures import EVIDENCE
from analysis.results.temporary import PREFIX, clear, temporary
from guest.records import bounded, harden, robustness
from guest.records.bounded import read_bounded
from guest.records.codec import RecordError
from guest.records.harden import Hardening
from guest.records.robustness import Robustness
from guest.records.run import LOG, RECORD, RunRecord, RunSpec, decode_record
from guest.records.trace import TRACE, Trace
from guest.records.trace import decode as decode_trace
from orchestrator.errors import ProtocolError, StoreError, UsageError
from orchestrator.files import (
    list_names,
    open_lock,
    publish_folder,
    require_readable,
    storage_errors,
    sync,
    write_durably,
)
from orchestrator.store.integrity import (
    DamagedRunError,
    check_artifacts,
    differences,
    read_record,
    sealed,
)
from orchestrator.store.shelf import Shelf

SET_DEPTH = 3  # levels below runs/ and failed/: an experiment set's folder, which lists its repetitions


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
        self.robustness: Shelf[Robustness] = Shelf(folder=directory / "robustness", decode=robustness.decode)
        """by run id"""
        self.projects = directory / "projects"
        self.traces = directory / "trace"
        self.probe = directory / "probe"
        self.hardenings: Shelf[Hardening] = Shelf(folder=directory / "harden", decode=harden.decode)
        """by workload"""
        self.sequential_file = directory / "sequential.json"
        self.checked_file = directory / ".checked"
        self.live_file = directory / ".live"
        self.scan_file = directory / "scan.json"
        self.keys = directory / "keys"
        self.known_hosts = directory / "known_hosts"
        self.imported = directory / "imported"
        self.lock_file = directory / ".lock"

    def clear_temporary(self) -> None:
        """Removes what killed commands were writing; what others are writing stays."""
        for folder in (self.directory, self.imported):
            clear(folder)

    def check_readable(self) -> None:
        """Raises StoreError where the folders of finished or failed runs cannot be listed."""
        for folder in (self.runs, self.failed):
            require_readable(folder, SET_DEPTH)

    def require_one_disk(self, *targets: Path) -> None:
        """Raises StoreError where what was collected in `incoming/` cannot be renamed into these folders."""
        for target in filter(os.path.lexists, targets):
            with storage_errors(target):
                apart = target.stat().st_dev != self.directory.stat().st_dev
            if apart:
                raise StoreError(
                    f"{target}: is on another disk than the study, and results are renamed into it: "
                    "move the whole study there"
                )

    def is_own(self, name: str) -> bool:
        """Whether what has this name in the study's folder was written by vbstudy, or is being written."""
        values = (value.folder if isinstance(value, Shelf) else value for value in vars(self).values())
        names = {value.name for value in values if value != self.directory}
        return name.removesuffix(".part") in names or name.startswith(PREFIX)

    # ---- reading -----------------------------------------------------------------------------

    def folder(self, spec: RunSpec) -> Path:
        return self.runs / spec.run_id

    def has(self, spec: RunSpec) -> bool:
        """Whether the run's folder exists; it may be damaged."""
        return (self.folder(spec) / RECORD).is_file()

    def check(self, spec: RunSpec) -> RunRecord:
        """Reads a stored run and all its bytes. Raises DamagedRunError for damage, StoreError for a
        record this program cannot read, UsageError for a run of another study file."""
        folder = self.folder(spec)
        record = read_record(folder)
        check_artifacts(folder, record)
        if record.spec.comparable != spec.comparable:
            differing = differences(record.spec, spec)
            raise UsageError(
                f"{folder}: was run with {differing}; "
                "set it back, give the workload a new name, or move the old folder away"
            )
        return record

    def records(self, set_id: str = "*/*/*", at_most: int | None = None) -> Iterator[RunRecord]:
        """The records of finished runs in order of their ids: all, or the first ones of an experiment set.
        Damaged ones are left out: `check` and the analysis report them. Raises StoreError for the run of a
        newer vbstudy."""
        for path in sorted(self.runs.glob(f"{set_id}/*/{RECORD}"))[:at_most]:
            with contextlib.suppress(DamagedRunError):
                yield read_record(path.parent)

    def stored_traces(self) -> list[Trace]:
        """The stored traces that can be read."""
        found = []
        for path in sorted(self.traces.glob(f"*/{TRACE}")):
            with contextlib.suppress(OSError, RecordError, UnicodeDecodeError):
                found.append(decode_trace(read_bounded(path, bounded.RECORD)))
        return found

    def repetitions(self, set_id: str) -> set[int]:
        """The repetitions of an experiment set whose folders exist; they may be damaged."""
        names = (name for name in list_names(self.runs / set_id) if name.isdecimal())
        return {int(name) for name in names if name == f"{int(name):04d}"}

    def failures(self, set_id: str) -> Counter[int]:
        """How many attempts of each repetition of an experiment set failed so far."""
        numbers = (name.partition("-")[0] for name in list_names(self.failed / set_id))
        return Counter(int(number) for number in numbers if number.isdecimal())

    def attempts(self) -> list[Path]:
        """The folders of failed attempts, the newest first: their names end in their times."""
        return sorted(self.failed.glob("*/*/*/*-*"), key=lambda p: p.name.partition("-")[2], reverse=True)

    # ---- writing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, command: str) -> Iterator[None]:
        """Makes this process the study's one orchestrator. Raises UsageError that names the holder.
        The operating system drops the lock when its holder dies, however it dies."""
        try:
            descriptor = open_lock(self.lock_file)  # point: lock opened
        except OSError as error:
            whose = "; a study belongs to the user who began it" if error.errno == errno.EACCES else ""
            raise StoreError(f"{self.lock_file}: cannot be written: {error.strerror}{whose}") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # point: lock taken
            except BlockingIOError:
                holder = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
                raise UsageError(
                    f"{self.directory}: another vbstudy works in this folder: {holder or 'unknown holder'}; "
                    "wait for it or stop it"
                ) from None
            holder = f"`{command}`, process {os.getpid()} on {socket.gethostname()}, since {now()}"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)  # point: lock holder written
            yield
        finally:
            os.close(descriptor)

    def clear_incoming(self) -> None:
        """Removes what a killed orchestrator left half collected, and half-written files of those that hold
        the lock. Only under the lock. A host that was given up may leave more meanwhile: what is removed is
        first taken away from there."""
        if self.incoming.is_symlink():
            raise StoreError(f"{self.incoming}: is a link; remove it: results are collected in a folder")
        with storage_errors(self.incoming), contextlib.suppress(FileNotFoundError):
            # point: incoming cleared
            self.incoming.rename(self.directory / f"{PREFIX}{uuid.uuid4().hex}")
        clear(self.directory)
        for file in (self.guests_file, self.sequential_file, self.checked_file, self.known_hosts):
            part = file.with_name(f"{file.name}.part")
            with storage_errors(part), contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(part.lstat().st_mode):
                    part.unlink()

    def new_incoming(self, files: Mapping[str, bytes] | None = None) -> Path:
        """A folder to collect one attempt in; empty, or with files that came as bytes."""
        folder = self.incoming / uuid.uuid4().hex
        with storage_errors(folder):
            folder.mkdir(parents=True)  # point: incoming folder made
            for name, data in (files or {}).items():
                (folder / name).write_bytes(data)
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

    def publish(self, folder: Path, record: RunRecord) -> bool:
        """Publishes a collected run: checks every byte, writes its record, renames it into place.
        False when the run existed already (the folder is dropped: nothing counts twice).
        Raises DamagedRunError when the files are not what the manifest says, ProtocolError for a record that
        could not be read back."""
        check_artifacts(folder, record)  # point: staged files checked
        target, data = self.folder(record.spec), sealed(record, decode_record)
        with storage_errors(target):
            write_durably(folder / RECORD, data)
            is_new = publish_folder(folder, target, record.result.artifacts)
            if not is_new:
                shutil.rmtree(folder)
        return is_new

    def drop(self, run_id: str) -> None:
        """Forgets a run; for stores that keep runs only until another one has them."""
        shutil.rmtree(self.runs / run_id, ignore_errors=True)  # point: delivered run dropped

    def new_trace_id(self, workload: str, labels: list[str]) -> str:
        """`lenet5-cpus-1-cpus-4-0001`, and the next number each time."""
        ids = ("-".join([workload, *labels, f"{number:04d}"]) for number in itertools.count(1))
        return next(each for each in ids if not (self.traces / each).exists())

    @contextlib.contextmanager
    def new_trace(self, trace_id: str) -> Iterator[Path]:
        """A folder to write a trace into, published under its id when the block ends, whole or not at all."""
        self.require_one_disk(self.traces)
        folder, target = self.new_incoming(), self.traces / trace_id
        try:
            with storage_errors(target):
                yield folder
                if not publish_folder(folder, target, list_names(folder)):
                    raise StoreError(f"{target}: exists already")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def write_together(self, target: Path, write: Callable[[Path], None]) -> None:
        """Files that `write` puts into a folder beside `target`. The study's own `probe/` is replaced as a
        whole, under the lock, and keeps its other files; into others they are moved when all are whole."""
        with storage_errors(target), temporary(target) as part:
            part.mkdir(exist_ok=True)
            write(part)
            for file in part.iterdir():
                sync(file)
            if target == self.probe:
                _replace_folder(target, part)
            else:
                target.mkdir(exist_ok=True)
                for file in part.iterdir():
                    file.rename(target / file.name)

    def quarantine(self, spec: RunSpec, reason: str) -> Path:
        """Moves a damaged run out of `runs/`, with the reason beside its files: in one rename, so that it
        is in one place or the other, and never there without the reason."""
        source, target = self.folder(spec), self.quarantined / f"{spec.run_id}-{_stamp()}"
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not source.is_dir():  # not even a folder: it gets one
                target.mkdir()
                source.rename(target / source.name)
                source = target
            write_durably(source / "reason.txt", reason + "\n")
            if source != target:
                source.rename(target)  # point: run quarantined
        return target

    def keep_failure(self, spec: RunSpec, attempt: int, folder: Path, error: dict[str, Any]) -> Path:
        """Keeps the evidence of a failed attempt, whole or not at all: the error and the log, not the partial
        results."""
        target = self.failed / spec.set_id / f"{spec.repetition:04d}-{_stamp()}"
        staged = self.new_incoming()  # point: evidence folder made
        with storage_errors(target):
            evidence = {"run_id": spec.run_id, "attempt": attempt, "at": now(), **error}
            try:
                write_durably(staged / EVIDENCE, json.dumps(evidence, indent=1) + "\n")
                if (folder / LOG).is_file():
                    shutil.copyfile(folder / LOG, staged / LOG)  # point: evidence log copied
                target.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(target)  # point: evidence published
            finally:  # frees space on a full disk
                shutil.rmtree(staged, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)  # point: attempt removed
        return target


def _replace_folder(target: Path, new: Path) -> None:
    """Puts a folder in the place of another, with the files that only the other one has."""
    former = target.with_name(f"{target.name}.former")
    if former.exists() and not target.exists():  # killed between the two renames
        former.rename(target)
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        shutil.copytree(target, new, copy_function=_link_missing, dirs_exist_ok=True)
        sync(new)
        target.rename(former)
    new.rename(target)
    sync(target.parent)
    shutil.rmtree(former, ignore_errors=True)


def _link_missing(source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.link(source, target)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f") + "-" + uuid.uuid4().hex[:6]
