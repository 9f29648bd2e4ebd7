"""The files that a program wrote, as `vbstudy try` compares them: read safely where that is possible, else as
raw bytes, with a caveat on what such bytes may hold besides a model."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from guest.projects import artifacts
from guest.training.training import hash_arrays

ARRAYS = (*artifacts.TORCH, ".safetensors", ".h5", ".hdf5", ".keras", ".npz", ".npy")
MODELS = (*ARRAYS, *artifacts.PICKLES, ".onnx", ".ubj")
PREDICTIONS = (".npy", ".npz", ".csv")
PREDICTED = re.compile(r"pred|logit|prob|y_hat|yhat|scores|submission", re.IGNORECASE)
STORED = re.compile(r"model|weight|param|checkpoint|ckpt|state|embedding", re.IGNORECASE)
# What trainers store beside a model: arguments, options, state of generators; pickles that are no weights.
BESIDE = re.compile(r"training_args|optimizer|scheduler|rng_state|trainer_state", re.IGNORECASE)
LARGE_BYTES = 4 << 30


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
    suffix = path.suffix.lower()
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
    if role is Role.OTHER and path.suffix.lower() not in ARRAYS:
        return _raw(path, role, "")
    try:
        if role is Role.PREDICTIONS:
            return _predictions(artifacts.load_predictions(path))
        arrays = artifacts.load_weights(path)
    except artifacts.ArtifactError as error:
        return _raw(path, role, str(error).removeprefix(f"{path.name}: ").split(": write a")[0])
    return FileSeen(role=role, digest=hash_arrays(arrays), parsed=True, caveat="", count=len(arrays))


def _predictions(found: artifacts.Predictions) -> FileSeen:
    classes = found.classes()
    return FileSeen(
        role=Role.PREDICTIONS,
        digest=hash_arrays({"values": found.values}),
        parsed=True,
        caveat="" if classes is not None else "numbers, no classes: compared bit for bit",
        classes="" if classes is None else hash_arrays({"classes": classes}),
        count=len(found.values),
    )


def _raw(path: Path, role: Role, why: str) -> FileSeen:
    """By its bytes; of a zip archive by its members, whose times of storing are no part of a model."""
    digest, how = _members(path), "members of the archive byte for byte"
    if digest is None:
        with path.open("rb") as file:
            digest, how = hashlib.file_digest(file, "sha256").hexdigest(), "byte for byte"
    caveat = f"{why}; compared {how}: it may also differ by paths and times in it" if why else how
    return FileSeen(role=role, digest=digest, parsed=False, caveat=caveat)


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
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return None
    return total.hexdigest()
