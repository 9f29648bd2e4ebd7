"""Is a study whole? Every run's record, files, sizes and hashes, what lies beside the runs, and which planned
runs are missing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from analysis.exchange.imported import FOLDER, read_imports
from analysis.inference.interim import read_looks
from analysis.load.predictions import check_predictions
from analysis.load.runs import FOREIGN, REDO, Problem, check_run, is_hidden, run_folders
from analysis.load.study import READERS
from guest.records import bounded, harden, plain_json, robustness, trace
from guest.records.bounded import opened_bounded, read_bounded
from guest.records.codec import NewerSchemaError, RecordError, sha256_of
from guest.records.printable import counted
from guest.records.run import RECORD

PROJECTS = "projects"
BESIDE: Mapping[str, Callable[[bytes], object]] = MappingProxyType(
    {
        f"trace/*/{trace.TRACE}": trace.decode,
        "harden/*.json": harden.decode,
        "robustness/*/*/*/*.json": robustness.decode,
    }
)
"""What is read beside runs, with its decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was found: `damaged` runs and files, `missing` planned runs. `planned` is None where no
    study file says what there should be."""

    runs: int
    imports: int
    damaged: tuple[Problem, ...]
    missing: tuple[str, ...]
    planned: int | None

    def __str__(self) -> str:
        of = "" if self.planned is None else f"; {len(self.missing)} of {self.planned} planned runs missing"
        imports = f", {counted(self.imports, 'imported file')}" if self.imports else ""
        return f"{counted(self.runs, 'run')}{imports} checked byte for byte: {len(self.damaged)} damaged{of}"


def verify(directory: Path, planned: Iterable[str] | None = None) -> Verification:
    """Checks a study's folder. `planned` are the run ids that there should be. Raises NewerSchemaError
    when something was written by a newer vbstudy."""
    folders = run_folders(directory)
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda folder: _check(directory, folder), folders))
    imports, problems = read_imports(directory)
    wanted = None if planned is None else list(planned)
    present = {folder.relative_to(directory / "runs").as_posix() for folder in folders}
    return Verification(
        runs=len(folders),
        imports=len(imports) + len(problems),
        damaged=(
            *(problem for problem in found if problem),
            *problems,
            *_projects(directory),
            *_beside(directory),
            *read_looks(directory)[1],
            *_strays(directory),
        ),
        missing=tuple(run for run in wanted or () if run not in present),
        planned=None if wanted is None else len(wanted),
    )


def _check(directory: Path, folder: Path) -> Problem | None:
    """What is the matter with a run, or nothing. Looks at all bytes, also those no analysis reads."""
    outcome = check_run(directory, folder)
    if isinstance(outcome, Problem):
        return outcome
    record, _ = outcome
    path = folder.relative_to(directory).as_posix()
    artifacts = record.result.artifacts
    if record.spec.workload.unexpected_artifacts(artifacts):
        return Problem(path=path, what="the record names other files than a run has", todo=REDO)
    names = {each.name for each in folder.iterdir() if not each.name.startswith(".")}
    unknown = sorted(names - {RECORD, *artifacts})
    if unknown:
        return Problem(path=path, what=f"{unknown[0]} is no file of a run", todo=FOREIGN)
    for name, artifact in artifacts.items():
        file = folder / name
        if file.is_symlink() or not file.is_file():
            return Problem(path=path, what=f"{name} is not a plain file", todo=REDO)
        try:
            sha256 = sha256_of(file)
        except OSError as error:
            return Problem(path=path, what=f"{name}: {error.strerror}", todo=REDO)
        if sha256 != artifact.sha256:
            return Problem(path=path, what=f"{name} does not match its SHA-256", todo=REDO)
    return check_predictions(directory, record)


def _projects(directory: Path) -> Iterable[Problem]:
    """The user's own programs whose archive is not the one that was taken."""
    for path in sorted((directory / PROJECTS).glob("[!.]*.json")):
        archive = path.with_suffix(".tar")
        what = "does not match its SHA-256"
        try:
            kept = plain_json.parse(read_bounded(path, bounded.MESSAGE))
            with opened_bounded(archive, bounded.ARTIFACT) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == kept["archive_sha256"]:
                    continue
        except OSError as error:
            what = error.strerror or str(error)
        except (ValueError, LookupError, TypeError):
            archive, what = path, "cannot be read"
        name = f"{PROJECTS}/{path.stem}"
        todo = f"take {name}.* from an archive of the study; or remove them and run `vbstudy sweep`"
        yield Problem(path=archive.relative_to(directory).as_posix(), what=what, todo=todo)


def _beside(directory: Path) -> Iterable[Problem]:
    for pattern, decode in BESIDE.items():
        for path in sorted(directory.glob(pattern)):
            if is_hidden(path, directory):
                continue
            try:
                decode(read_bounded(path, bounded.RECORD))
            except NewerSchemaError:
                raise
            except (OSError, RecordError) as error:
                todo = "move it away; what made it makes it again"
                yield Problem(path=path.relative_to(directory).as_posix(), what=str(error), todo=todo)


def _strays(directory: Path) -> Sequence[Problem]:
    """Files below runs/ and imported/ that belong to nothing."""
    depths = ((directory / "runs", 5), (directory / FOLDER, 1))
    return [
        Problem(path=path.relative_to(directory).as_posix(), what="belongs to no run", todo=FOREIGN)
        for root, depth in depths
        if root.is_dir()
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or path.is_file())
        and (parts := path.relative_to(root).parts)
        and not is_hidden(path, root)
        and (len(parts) != depth or (depth == 1 and path.suffix != ".json"))
    ]
