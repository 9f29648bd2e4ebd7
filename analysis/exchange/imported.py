"""Results of other programs, kept with the runs: their numbers, and the hash of the files they were read
from.

They are not runs: nobody saw their weights, machines or seeds. They are compared among themselves, by thread
count, and enter no finding."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.exchange.files import ImportFormatError
from analysis.load.runs import DIVERGED_FROM, Problem
from analysis.results.temporary import temporary
from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.codec import NewerSchemaError, RecordError, seal, unseal
from guest.records.printable import LONGEST_NAME, is_name, printable

FOLDER = "imported"
SCHEMA_VERSION = 1
CHECKSUM = "sha256"  # the field with the file's checksum of itself
MOST_THREADS = 65_536
Found = tuple[list["ImportedRun"], list[str]]  # in a source: runs, and what was left out
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


def run_of(
    path: Path, name: str, where: Any, history: Mapping[str, tuple[float, ...]], **known: Any
) -> ImportedRun:
    """A run by what its source states: `where` has the fields, `history` a value an epoch. Metrics are the
    last values."""
    return ImportedRun(
        workload=where.get("workload", name),
        variant=where.get("variant", "imported"),
        threads=_count(path, where["threads"], "threads"),
        repetition=_count(path, where["repetition"], "repetition") if "repetition" in where else 0,
        **{
            "metrics": {m: values[-1] for m, values in history.items()},
            "history": dict(history),
            **known,
        },
    )


def _count(source: Path, value: Any, what: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (1 <= number < 2**53 and number == int(number)):
        raise ImportFormatError(
            f"{source}: {what} = {printable(str(value), limit=40)}; a whole number from 1 is expected"
        )
    return int(number)


def decode(content: str | bytes) -> Import:
    """Reads an import, and checks what it says. Raises as `unseal`."""
    found = unseal(Import, content, FOLDER, known=SCHEMA_VERSION, checksum=CHECKSUM, limit=bounded.IMPORTED)
    wrong = next(_wrong(found), None)
    if wrong:
        raise RecordError(wrong)
    return found


def _wrong(found: Import) -> Iterator[str]:
    """What no table can show, a phrase each."""
    shown = {text for run in found.runs for text in (run.workload, run.variant, *run.metrics, *run.history)}
    for text in (found.name, found.kind, *shown):
        if not is_name(text):
            yield f"{text!r:.80} is no name: up to {LONGEST_NAME} bytes of UTF-8 that can be shown are"
    for run in found.runs:
        for what, count, most in (
            ("threads", run.threads, MOST_THREADS),
            ("repetition", run.repetition, 2**31),
        ):
            if not 1 <= count <= most:
                yield f"{what} = {count}; a whole number from 1 to {most} is expected"
        odd = next((m for m, v in run.metrics.items() if not abs(v) <= DIVERGED_FROM), None)
        if odd is not None or not abs(run.wall_s or 0.0) <= DIVERGED_FROM:
            yield f"{odd or 'wall_s'} of {run.source!r:.80} is beyond {DIVERGED_FROM:g}"


def write_import(directory: Path, imported: Import) -> Path:
    """Writes `imported/<name>.json`, whole or not at all. Raises FileExistsError."""
    target = directory / FOLDER / f"{imported.name}.json"
    if target.exists():
        raise FileExistsError(f"{target} exists already; give the import another --name, or remove the file")
    with temporary(target) as part:
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
            found = decode(read_bounded(path, bounded.IMPORTED))
        except NewerSchemaError:
            raise
        except (OSError, RecordError) as error:
            what = str(error)
        else:
            if found.name == path.stem:
                imports.append(found)
                continue
            what = f"the import inside is {found.name!r}: it belongs elsewhere"  # a copy would count twice
        problems.append(Problem(path=path.relative_to(directory).as_posix(), what=what, todo=AGAIN))
    return imports, problems
