"""The files that a program wrote, as `vbstudy try` compares them: read safely where that is possible, else as
raw bytes, with a caveat on what such bytes may hold besides a model; and the named numbers in them."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from guest.projects import artifacts, events
from guest.records import csv_values
from guest.training.training import hash_arrays

ARRAYS = (*artifacts.TORCH, ".safetensors", ".h5", ".hdf5", ".keras", ".npz", ".npy")
MODELS = (*ARRAYS, *artifacts.PICKLES, ".onnx", ".ubj")
PREDICTIONS = (".npy", ".npz", ".csv")
PREDICTED = re.compile(r"pred|logit|prob|y_hat|yhat|scores|submission", re.IGNORECASE)
STORED = re.compile(r"model|weight|param|checkpoint|ckpt|state|embedding", re.IGNORECASE)
# What trainers store beside a model: arguments, options, state of generators; pickles that are no weights.
BESIDE = re.compile(r"training_args|optimizer|scheduler|rng_state|trainer_state", re.IGNORECASE)
LARGE_BYTES = 4 << 30
NUMBERS_BYTES = 64 << 20
NUMBERS = 200_000  # of a file
DEPTH = 30
# The thread count that a model holds: a line of LightGBM's; in pickles of scikit-learn (KMeans, gradient
# boosting by histograms) an attribute: its name, its place in the memo, an integer.
THREAD_COUNT = re.compile(rb"\[(num_threads): \d+\]|(_?n_threads)(?:\x94|q.|r.{4})(?:K.|M..)", re.DOTALL)
LONGEST = 64  # of these
SEPARATED = {".csv": ",", ".tsv": "\t"}
# In text, what changes from run to run: clock times, durations, speeds, addresses.
PASSING = re.compile(
    r"\b[IWEF]\d{4} [^\]]{0,200}\]|0x[0-9a-fA-F]+|\b\d{12,}(?=: TensorSpec)"
    r"|\d{4}-\d\d-\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|(?<!\d)\d++(?:\.\d+)?(?:e[-+]?\d+)?\s?(?:[mun]?s|secs?|seconds?|mins?|minutes?|hours?|[kM]?it/s|[kMG]i?B)\b"
    r"|(?<!\d)\d++(?:\.\d+)?\s?(?:\w{0,20}+/s|\w{1,20}+ per second)",
    re.IGNORECASE,
)
Named = Iterator[tuple[str, str]]


class Role(StrEnum):
    WEIGHTS = "weights"
    PREDICTIONS = "predictions"
    OTHER = "other file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeen:
    """One file of one run. `digest` is over the arrays where `parsed`, else over the bytes; `classes` over
    the predicted classes ("" where there are none) and `count` how many arrays or predictions there are."""

    role: Role
    digest: str
    parsed: bool
    caveat: str
    classes: str = ""
    count: int = 0


def role_of(name: str) -> Role:
    """The role of a file by its name."""
    path = Path(name)
    suffix = artifacts.ending(path)
    if suffix in PREDICTIONS and PREDICTED.search(path.name):
        return Role.PREDICTIONS
    if suffix in (".npz", ".npy"):
        return Role.WEIGHTS if STORED.search(path.name) else Role.OTHER
    return Role.WEIGHTS if suffix in MODELS and not BESIDE.search(path.name) else Role.OTHER


def read(path: Path, role: Role) -> FileSeen:
    """Reads one file. Raises OSError when it cannot be read at all."""
    size = path.stat().st_size
    if size > LARGE_BYTES:
        return _raw(path, role, f"{size / 2**30:.1f} GiB, not parsed")
    if role is Role.OTHER and artifacts.ending(path) not in ARRAYS:
        return _raw(path, role, "")
    try:
        if role is Role.PREDICTIONS:
            return _predictions(path)
        arrays = artifacts.load_weights(path, whole=True)
    except artifacts.ArtifactError as error:
        return _raw(path, role, str(error).removeprefix(f"{path.name}: ").split(": write a")[0])
    return FileSeen(role=role, digest=hash_arrays(arrays), parsed=True, caveat="", count=len(arrays))


def _predictions(path: Path) -> FileSeen:
    found, table = artifacts.load_predictions(path), path.suffix.lower() == ".csv"
    classes = found.classes()
    return FileSeen(
        role=Role.PREDICTIONS,
        digest=_bytes(path)[0] if table else hash_arrays(artifacts.load_weights(path)),
        parsed=True,
        caveat="" if classes is not None else "numbers, no classes: compared bit for bit",
        classes="" if classes is None else hash_arrays({"classes": classes}),
        count=len(found.values),
    )


def _raw(path: Path, role: Role, why: str) -> FileSeen:
    """By its bytes; of a zip archive by its members, whose times of storing are no part of a model."""
    digest, how = _members(path), "members of the archive byte for byte"
    if digest is None:
        digest, how = _bytes(path)
    caveat = (
        f"{why}; compared {how}: it may also differ by paths, times and thread counts in it" if why else how
    )
    return FileSeen(role=role, digest=digest, parsed=False, caveat=caveat)


def _bytes(path: Path) -> tuple[str, str]:
    """The SHA-256 of the bytes, unpacked where zlib or gzip packed them, without the thread counts of
    libraries in them; and what was compared."""
    with contextlib.suppress(zlib.error, EOFError):
        return _without_counts(_unpacked(path))
    with path.open("rb") as file:
        return _without_counts(iter(partial(file.read, 1 << 20), b""))


def _unpacked(path: Path) -> Iterator[bytes]:
    """Raises zlib.error, or EOFError for more or less than one stream, and a too large one."""
    unpack, left = zlib.decompressobj(zlib.MAX_WBITS | 32), LARGE_BYTES  # 32: gzip, too
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(1 << 14)):  # which may become a thousand times as large
            yield (data := unpack.decompress(piece))
            left -= len(data)
    if left <= 0 or not unpack.eof or unpack.unused_data:
        raise EOFError


def _without_counts(pieces: Iterable[bytes]) -> tuple[str, str]:
    total, rest, names = hashlib.sha256(), b"", set[str]()

    def found(match: re.Match[bytes]) -> bytes:
        names.add((match[1] or match[2]).decode())
        return b""

    for piece in pieces:
        data = rest + piece
        if b"_threads" in data:  # which is searched fast
            data = THREAD_COUNT.sub(found, data)
        total.update(data[:-LONGEST])
        rest = data[-LONGEST:]
    total.update(rest)
    return total.hexdigest(), "byte for byte" + (f", but for its {min(names)}" if names else "")


def _members(path: Path) -> str | None:
    """None for what is no archive, or a damaged or encrypted one."""
    if not zipfile.is_zipfile(path):
        return None
    total = hashlib.sha256()
    try:
        with zipfile.ZipFile(path) as archive:
            for member in sorted(archive.infolist(), key=lambda m: m.filename):
                total.update(f"{member.filename}\0{member.file_size}\0".encode())
                with archive.open(member) as file:
                    while piece := file.read(1 << 20):
                        total.update(piece)
    except (zipfile.BadZipFile, RuntimeError):
        return None
    return total.hexdigest()


# ---- numbers ------------------------------------------------------------------------------------------


class _Written(str):
    """A number as it is written: no digit is lost, and none added."""

    __slots__ = ()


class _Text(str):
    """What is no number."""

    __slots__ = ()


def numbers(path: Path) -> tuple[dict[str, tuple[str, ...]], FileSeen | None]:
    """The named numbers of JSON, CSV and TensorBoard's events: the values of each name, in the order of the
    file; and its text, where it has some beside them. Nothing for a file that is too large or not of the
    format of its name."""
    if path.stat().st_size > NUMBERS_BYTES:
        return {}, None
    named: list[tuple[str, str]] = []
    cells, worded = hashlib.sha256(), False
    try:
        for name, value in _named(path):
            text = PASSING.sub("#", value) if isinstance(value, _Text) else None
            cells.update(json.dumps((name, text)).encode())  # of a number its place
            worded |= text is not None
            if text is None:
                named.append((name, value))
            if len(named) > NUMBERS:
                return {}, None
    except (OSError, ValueError, csv.Error, RecursionError):
        return {}, None
    if not (named and worded):
        return by_name(named), None
    words = FileSeen(
        role=Role.OTHER, digest=cells.hexdigest(), parsed=False, caveat="its text, without times"
    )
    return by_name(named), words


def by_name(named: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The values of each name, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in named:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _named(path: Path) -> Named:
    suffix = path.suffix.lower()
    if ".tfevents." in path.name:
        return ((tag, repr(value)) for _, tag, value in events.read(path))
    if suffix in SEPARATED:
        return _columns(path, SEPARATED[suffix])
    if suffix not in (".json", ".jsonl"):
        return iter(())
    text = path.read_text(encoding="utf-8")
    rows = [text] if suffix == ".json" else filter(str.strip, text.splitlines())
    return (pair for row in rows for pair in _leaves(json.loads(row, parse_float=_Written), ""))


def _leaves(value: Any, name: str, depth: int = 0) -> Named:
    """Numbers as they are written, by their keys; those of a list are one after the other."""
    if depth > DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, name, depth + 1)
    elif isinstance(value, int | float | _Written) and not isinstance(value, bool):
        yield name or "value", str(value)
    else:
        yield name or "value", _Text(value)


def _columns(path: Path, separator: str) -> Named:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        head = next(rows, [])
        named = not any(map(csv_values.is_number, head))
        columns = [text.strip() for text in head] if named else [f"column {i + 1}" for i in range(len(head))]
        for row in rows if named else (head, *rows):
            columns += [f"column {i + 1}" for i in range(len(columns), len(row))]
            for name, value in zip(columns, row, strict=False):
                yield name, value.strip() if csv_values.is_number(value) else _Text(value)
