"""Results of other programs, kept with the runs: their numbers, and the hash of the files they were read
from.

They are not runs: nobody saw their weights, machines or seeds. They are compared among themselves, by thread
count, and enter no finding."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from analysis.load.runs import Problem
from guest.records.codec import NewerSchemaError, RecordError, seal, unseal

FOLDER = "imported"
SCHEMA_VERSION = 1
CHECKSUM = "sha256"  # the field with the file's checksum of itself
AGAIN = "remove the file and import it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """One training that another program did. `predictions` are classes of the test samples, in order;
    what is not known is None, and `history` (metric -> one value an epoch) may be empty."""

    workload: str
    variant: str
    threads: int
    repetition: int
    metrics: dict[str, float]
    wall_s: float | None = None
    history: dict[str, tuple[float, ...]]
    predictions: tuple[int, ...] | None = None
    source: str  # the file it was read from, relative to what was imported
    source_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What one `vbstudy import` brought."""

    schema_version: int
    name: str
    kind: str
    imported_at: str  # ISO 8601, UTC
    runs: tuple[ImportedRun, ...]
    left_out: tuple[str, ...]  # what the source had and this has not


def write_import(directory: Path, imported: Import) -> Path:
    """Writes `imported/<name>.json`, whole or not at all. Raises FileExistsError."""
    target = directory / FOLDER / f"{imported.name}.json"
    if target.exists():
        raise FileExistsError(
            f"{target} is there already; give the import another --name, or remove the file"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(seal(imported, checksum=CHECKSUM, indent=None))
        file.flush()
        os.fsync(file.fileno())
    part.rename(target)
    return target


def read_imports(directory: Path) -> tuple[list[Import], list[Problem]]:
    """All imports of a study by name, and what is the matter with the others. Raises NewerSchemaError."""
    imports, problems = [], []
    for path in sorted((directory / FOLDER).glob("*.json")):
        try:
            content = path.read_bytes()
            imports.append(unseal(Import, content, FOLDER, known=SCHEMA_VERSION, checksum=CHECKSUM))
        except NewerSchemaError:
            raise
        except (OSError, RecordError) as error:
            where = path.relative_to(directory).as_posix()
            problems.append(Problem(path=where, what=str(error), todo=AGAIN))
    return imports, problems


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
