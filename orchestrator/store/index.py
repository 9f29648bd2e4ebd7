"""Which stored runs were found whole, byte for byte, and the file system's state of their files at that time.
Runs whose state is the same are not read again, so that a sweep of many thousand runs begins in seconds.

    vbstudy-checked 2 schema 2
    <digest of what was asked> <digest of the files' state> <run id>

A cache: without the file, or where a line does not fit the run's folder, the run is read again. It misses
a flaw of the disk that leaves the files' times as they are; `vbstudy verify` and `vbstudy analyze` read every
byte."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from guest.records.codec import digest
from guest.records.run import ARTIFACTS, RECORD, RECORDING, SCHEMA_VERSION, RunSpec
from orchestrator.files import write_durably

HEADER = f"vbstudy-checked 2 schema {SCHEMA_VERSION}"
NAMES = (RECORD, *ARTIFACTS, RECORDING)
NUMBERS = struct.Struct("<" + "qqqQ" * len(NAMES))
ABSENT = (-1, 0, 0, 0)  # own projects need not have all files


def state(folder: str) -> str | None:
    """Size, time of the last change, time of the last change of the inode (which no program can choose)
    and inode of every file of a run, as a digest. None without a record, or when one is no plain file."""
    numbers: list[int] = []  # point: run state read
    for name in NAMES:
        try:
            found = os.lstat(f"{folder}/{name}")
        except FileNotFoundError:
            if name == RECORD:
                return None
            numbers += ABSENT
        except OSError:
            return None
        else:
            if not stat.S_ISREG(found.st_mode):
                return None
            numbers += (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    return hashlib.blake2b(NUMBERS.pack(*numbers), digest_size=16).hexdigest()


class Checked:
    """The runs of one store that were found whole. Made by `opened`, under the study's lock."""

    def __init__(self, runs: Path, known: dict[str, tuple[str, str]], log: BinaryIO | None) -> None:
        self._runs = str(runs)
        self._known = known
        self._log = log
        self._asked: dict[object, str] = {}
        self._lock = threading.Lock()

    def state(self, spec: RunSpec) -> str | None:
        """The state of a run's files now; see the function `state`."""
        return state(f"{self._runs}/{spec.run_id}")

    def holds(self, spec: RunSpec) -> bool:
        """Whether this run, asked for in just this way, was found whole and was not touched since."""
        run_id = spec.run_id
        known = self._known.get(run_id)
        return (
            known is not None
            and known[0] == self._digest(spec)
            and known[1] == state(f"{self._runs}/{run_id}")
        )

    def add(self, spec: RunSpec, found: str | None) -> None:
        """Records that a run is whole with its files in the state `found`. Where the line cannot be written
        (a full disk), the next sweep reads the run."""
        if found is None:
            return
        entry = self._digest(spec), found
        with self._lock, contextlib.suppress(OSError):
            self._known[spec.run_id] = entry
            if self._log is not None:
                # point: index entry written
                self._log.write(f"{entry[0]} {entry[1]} {spec.run_id}\n".encode())
                self._log.flush()  # point: index entry flushed

    def _digest(self, spec: RunSpec) -> str:
        """Of what was asked: the same for runs that differ in their repetition alone."""
        key = (spec.study_id, spec.workload, spec.variant, spec.threads, spec.seeds, spec.isa, spec.cpu_model)
        found = self._asked.get(key)
        if found is None:
            asked = dataclasses.replace(spec.comparable, repetition=0)
            found = self._asked[key] = digest(asked)[:32]
        return found


@contextlib.contextmanager
def opened(path: Path, runs: Path) -> Iterator[Checked]:
    """The runs below `runs` that the file `path` knows, and the file ready to take more."""
    known, whole = _read(path)
    log = None
    try:
        with contextlib.suppress(OSError):  # without the cache runs are read
            if not whole:
                lines = [HEADER, *(f"{a} {b} {run_id}" for run_id, (a, b) in known.items())]
                write_durably(path, "\n".join(lines) + "\n")
            log = path.open("ab")
        yield Checked(runs, known, log)
    finally:
        if log is not None:
            with contextlib.suppress(OSError):
                log.close()


def _read(path: Path) -> tuple[dict[str, tuple[str, str]], bool]:
    """The file's entries, the last one of each run, and whether the file can be kept: it is rewritten after a
    kill that cut off a line, and when many lines are outdated."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}, False
    header, *lines = text.split("\n")
    if header != HEADER:
        return {}, False
    known = {}
    for line in lines[:-1]:  # what comes after the last end of a line was cut off
        parts = line.split(" ")
        if len(parts) == 3:
            known[parts[2]] = parts[0], parts[1]
    return known, lines[-1:] == [""] and len(lines) <= 2 * len(known) + 1000
