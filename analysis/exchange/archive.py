"""A study as one file that others can analyse: the same study gives the same bytes.

    <study>/MANIFEST.json     schema version, and SHA-256 and size of every other file
    <study>/study.toml        what others need of it
    <study>/runs/...          every run, whole
    <study>/imported/*.json   what was imported
    <study>/projects/*        the user's own programs as they were run, unless they are left out
    <study>/trace/...         and harden/, robustness/, sequential.json: what the analysis reads beside runs
    <study>/failed/...        which attempts failed, by the kind of their error, without its text and log

An archive is data from strangers: its names must be those above and its sizes those of its manifest, or
nothing of it is kept."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import os
import re
import stat
import struct
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from analysis.exchange.imported import FOLDER
from analysis.exchange.verify import BESIDE, PROJECTS, Verification, verify
from analysis.inference.interim import SEQUENTIAL
from analysis.load.design import STUDY_FILE, StudyFileError, read_study_file
from analysis.load.failures import EVIDENCE, evidence
from analysis.load.runs import is_hidden
from analysis.load.study import NothingToAnalyse
from analysis.provenance.study_file import public_study_file
from analysis.results.temporary import temporary
from guest.records import bounded, plain_json
from guest.records.codec import NewerSchemaError, RecordError, from_json, seal
from guest.records.printable import unaccented
from guest.records.run import ARTIFACTS, FOLDER_NAME, RECORD, RECORDING, Artifact, decode_record, machine_id
from guest.records.trace import TRACE

SCHEMA_VERSION = 4  # of the manifest; an archive without failed attempts is one of version 3 or less
MANIFEST = "MANIFEST.json"
BLOCK = 2**20
LISTED_BYTES = 160 * bounded.ARCHIVE.items  # of the list of files in an archive
NAME = r"[A-Za-z0-9@+_-][A-Za-z0-9@+._-]*"  # never begins with a dot
FILE_NAME = "|".join(map(re.escape, (RECORD, RECORDING, *ARTIFACTS)))
ALLOWED = re.compile(
    rf"(?P<study>{NAME})/({re.escape(MANIFEST)}|{re.escape(STUDY_FILE)}|{FOLDER}/{NAME}\.json|{PROJECTS}/{NAME}\.(tar|json)|"
    rf"runs(/{FOLDER_NAME}){{3}}/[0-9]{{4,}}/({FILE_NAME})|{re.escape(SEQUENTIAL)}|trace/{NAME}/{re.escape(TRACE)}|"
    rf"failed(/{FOLDER_NAME}){{3}}/[0-9]{{4,}}-{NAME}/{re.escape(EVIDENCE)}|harden/{NAME}\.json|robustness(/{FOLDER_NAME}){{3}}/[0-9]{{4,}}\.json)"
)
# RuntimeError: encrypted; the rest: cut or made up.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    UnicodeDecodeError,
    struct.error,
)
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the oldest date a zip can hold: the time of packing is nobody's business


class ArchiveError(ValueError):
    """Not an archive of a study, a damaged one, or one that could not be made; the text states where."""


class DamagedStudyError(ValueError):
    """The study has damaged runs; `verification` names them."""

    def __init__(self, verification: Verification) -> None:
        super().__init__(str(verification))
        self.verification = verification


def pack(directory: Path, target: Path, *, projects: bool = True) -> int:
    """Writes the study into the zip file `target`; returns the number of its runs. Raises
    NothingToAnalyse for an empty study, DamagedStudyError for one that is not whole, ArchiveError for one
    that changes meanwhile, StudyFileError, FileExistsError."""
    if target.exists():
        raise FileExistsError(f"{target} exists already; name another file")
    before = _states(directory, projects=projects)  # what is published from now on is not in the archive
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", unaccented(directory.resolve().name)).strip("-") or "study"
    _require_readable(directory, name, before)
    checked = verify(directory)
    if checked.damaged:
        raise DamagedStudyError(checked)
    if not checked.runs and not checked.imports:
        raise NothingToAnalyse(f"no finished run in {directory}; run `vbstudy sweep` first")
    with temporary(target) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            files = {}
            if (directory / STUDY_FILE).is_file():
                public = _public_study_file(directory / STUDY_FILE)
                files[STUDY_FILE] = _add(archive, f"{name}/{STUDY_FILE}", public)
            for path, state in before.items():
                try:
                    with (directory / path).open("rb") as source:
                        files[path] = _add(archive, f"{name}/{path}", _public(path, directory, source))
                        changed = _state(os.fstat(source.fileno())) != state
                except FileNotFoundError:
                    changed = True
                if changed:
                    what = f"{directory / path}: changed while it was packed"
                    raise ArchiveError(f"{what}; run the command again when nothing else writes to the study")
            version = max(map(_version, files))
            manifest = {"schema_version": version, "files": files}
            archive.writestr(_entry(f"{name}/{MANIFEST}"), json.dumps(manifest, indent=1) + "\n")
        part.replace(target)
    return sum(path.endswith(f"/{RECORD}") for path in before)


def _public_study_file(path: Path) -> IO[bytes]:
    try:
        text, _ = public_study_file(read_study_file(path))
    except (ValueError, RecursionError) as error:  # tomllib's and UnicodeDecodeError are ValueErrors
        raise StudyFileError(f"{path}: is not TOML: {error}") from None
    return io.BytesIO(text.encode())


def _public(path: str, directory: Path, source: IO[bytes]) -> IO[bytes]:
    """What is published of a file of the study."""
    if path.startswith("failed/"):
        return _public_evidence(directory / path)
    return _without_machine(source) if path.endswith(f"/{RECORD}") else source


def _without_machine(source: IO[bytes]) -> IO[bytes]:
    """A run's record. Older ones name the machine; these get its id instead, and their checksum again."""
    content = source.read(bounded.RECORD.bytes + 1)
    try:
        record = decode_record(content)
    except RecordError as error:
        raise ArchiveError(f"{source.name}: {error}") from error
    host = record.guest.get("host")
    if host is None or (opaque := machine_id(record.spec.study_id, str(host))) == host:
        return io.BytesIO(content)
    data = plain_json.parse(content, bounded.RECORD)  # as written: the fields of its own schema version
    del data["record_sha256"]
    return io.BytesIO(seal(data | {"guest": record.guest | {"host": opaque}}).encode())


def _version(path: str) -> int:
    """That of the manifest since which an archive may have the file."""
    first, *others = (each.partition("/")[0] for each in (path, *BESIDE, SEQUENTIAL))
    return 4 if first == "failed" else 3 if first in others else 2 if first == PROJECTS else 1


def _states(directory: Path, *, projects: bool) -> dict[str, tuple[int, ...]]:
    """Every file of the archive but the study file, in order, and what changes when it is written."""
    found = [*(directory / FOLDER).glob("*.json"), *(directory / "runs").glob("*/*/*/*/*")]
    patterns = (*BESIDE, SEQUENTIAL, f"failed/*/*/*/*/{EVIDENCE}")
    beside = list(itertools.chain.from_iterable(map(directory.glob, patterns)))
    if projects:
        for tar in (directory / PROJECTS).glob("*.tar"):
            beside += [tar, tar.with_suffix(".json")]
    found += [path for path in beside if ALLOWED.fullmatch(f"s/{path.relative_to(directory).as_posix()}")]
    states = {}
    for path in sorted(found, key=lambda each: each.relative_to(directory).as_posix()):
        if path.is_file() and not is_hidden(path, directory):
            states[path.relative_to(directory).as_posix()] = _state(path.stat())
    return states


def _public_evidence(path: Path) -> IO[bytes]:
    """What is counted of a failed attempt. Its text may have paths, or what the program printed."""
    data = evidence(path.parent)
    kept = {key: data.get(key) for key in ("run_id", "attempt", "at", "kind")}
    return io.BytesIO(json.dumps(kept | {"message": "(not in the archive)"}).encode())


def _require_readable(directory: Path, name: str, states: dict[str, tuple[int, ...]]) -> None:
    """Raises ArchiveError for a study whose archive `unpack` would refuse for its size."""
    files = {path: {"sha256": "0" * 64, "size_bytes": state[1]} for path, state in states.items()}
    size = sum(state[1] for state in states.values())
    entry = 46 + len(f"{name}/") + (28 if size >= 2**32 else 0)  # beside the file's path
    listed = sum(len(path) + entry for path in states)
    manifest = len(json.dumps({"schema_version": SCHEMA_VERSION, "files": files}, indent=1))
    if (
        size > bounded.ARCHIVE.bytes
        or listed > LISTED_BYTES - 1024  # for the study file and the manifest
        or manifest > bounded.MANIFEST.bytes - 1024
    ):
        raise ArchiveError(
            f"{directory}: {len(states)} files of {size / 2**30:.1f} GiB are more than an archive holds, "
            f"about {bounded.ARCHIVE.items} files of {bounded.ARCHIVE.bytes >> 30} GiB: copy the folder "
            "itself, or export its tables as *.parquet"
        )


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, LONG_AGO)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix, wherever it is packed
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def _add(archive: zipfile.ZipFile, name: str, source: IO[bytes]) -> dict[str, Any]:
    with archive.open(_entry(name), "w", force_zip64=True) as packed:
        sha256, size = _copy(source, packed, sys.maxsize)
    return {"sha256": sha256, "size_bytes": size}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`MANIFEST.json`."""

    schema_version: int
    files: dict[str, Artifact]


class _Bounded:
    """A file that is not read too much of at once: zipfile reads the list of an archive's files as a whole,
    however long the archive says that it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        if size > LISTED_BYTES:
            raise zipfile.BadZipFile(f"it lists more than {bounded.ARCHIVE.items} files")
        return self._file.read(LISTED_BYTES if size < 0 else size)


# ---- unpacking -------------------------------------------------------------------------------------


def unpack(path: Path, target: Path) -> None:
    """Unpacks an archive into the new folder `target`, whole or not at all. Raises ArchiveError,
    FileExistsError, and NewerSchemaError for an archive of a newer vbstudy."""
    if target.exists():
        raise FileExistsError(f"{target} exists already; name another folder")
    if not path.is_file():  # a pipe would be waited for
        raise ArchiveError(f"{path}: is not a plain file")
    with temporary(target) as folder:
        try:
            with path.open("rb") as file, zipfile.ZipFile(_Bounded(file)) as archive:
                _unpack(archive, folder)
        except UNREADABLE as error:
            raise ArchiveError(f"{path}: {error}") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # the disk's trouble, not the archive's
                raise
            raise ArchiveError(f"{path}: points to places outside itself") from error
        except (ArchiveError, NewerSchemaError) as error:
            raise type(error)(f"{path}: {error}") from None
        folder.rename(target)


def _unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    entries = _entries(archive)
    manifest = _manifest(archive, entries.pop(MANIFEST, None))
    if not manifest:
        raise ArchiveError("it holds no file")
    if set(entries) != set(manifest):
        odd = sorted(set(entries) ^ set(manifest))[0]
        raise ArchiveError(f"{odd} is {'not in the manifest' if odd in entries else 'missing'}")
    for name, entry in entries.items():
        size = manifest[name][1]
        if entry.file_size != size:
            raise ArchiveError(f"{name} has {entry.file_size} bytes, not {size}")
    if sum(size for _, size in manifest.values()) > bounded.ARCHIVE.bytes:
        raise ArchiveError(f"it would unpack to more than {bounded.ARCHIVE.bytes} bytes")
    for name, entry in entries.items():
        sha256, size = manifest[name]
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as packed, file.open("xb") as unpacked:
            if _copy(packed, unpacked, size)[0] != sha256:
                raise ArchiveError(f"{name} does not match its SHA-256")


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries by their path inside the study. Only plain files with names that a study has."""
    entries: dict[str, zipfile.ZipInfo] = {}
    studies = set()
    for entry in archive.infolist():
        found = ALLOWED.fullmatch(entry.filename)
        if not found:
            raise ArchiveError(f"{entry.filename[:200]!r} is no file of a study")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ArchiveError(f"{entry.filename} is not a plain file")
        if entry.compress_type not in bounded.ZIP_METHODS:
            raise ArchiveError(f"{entry.filename} is compressed in a way that no study is")
        studies.add(found["study"])
        name = entry.filename.partition("/")[2]
        if name in entries:
            raise ArchiveError(f"{name} is there twice")
        entries[name] = entry
    if len(studies) > 1:
        raise ArchiveError("it holds more than one study")
    return entries


def _manifest(archive: zipfile.ZipFile, entry: zipfile.ZipInfo | None) -> dict[str, tuple[str, int]]:
    if entry is None:
        raise ArchiveError(f"it has no {MANIFEST}")
    try:
        with archive.open(entry) as packed:
            read = plain_json.parse(packed.read(bounded.MANIFEST.bytes + 1), bounded.MANIFEST)
        manifest = from_json(Manifest, read, MANIFEST)
    except ValueError as error:
        raise ArchiveError(f"{MANIFEST} cannot be read: {error}") from error
    version = manifest.schema_version
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"archive version {version} is newer than this vbstudy reads; upgrade vbstudy")
    if version < 1:
        raise ArchiveError(f"{MANIFEST}: schema_version = {version}; 1 to {SCHEMA_VERSION} are known")
    return {name: (artifact.sha256, artifact.size_bytes) for name, artifact in manifest.files.items()}


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> tuple[str, int]:
    """Copies at most so many bytes; returns their SHA-256, and how many they are."""
    sha256, size = hashlib.sha256(), 0
    while block := source.read(min(BLOCK, most - size)):
        sha256.update(block)
        target.write(block)
        size += len(block)
    return sha256.hexdigest(), size
