"""User projects as the study keeps them: copied, or cloned at a commit, once; hashed; and the same
for all runs of the workload from then on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from guest.machine.folders import unfit_for_hooks, unfit_for_messages
from guest.records.codec import digest, from_json, sha256_of
from guest.records.run import ProjectFiles, portable_source
from orchestrator.errors import PrerequisiteError, StoreError, UsageError
from orchestrator.files import expand, sync, write_durably
from orchestrator.store.store import Store
from orchestrator.study.projects import ProjectTable
from orchestrator.study.schema import Study

SKIPPED = frozenset(
    (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache",
     ".ruff_cache", ".ipynb_checkpoints", "node_modules", ".DS_Store")
)  # fmt: skip
LARGE_BYTES = 4 << 30
LARGE_PARCEL_BYTES = 64 << 20
GIT_TIMEOUT_S = 600.0
FOLDER = "folder"  # an empty one: in the archive, and not in the tree's hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A project as it is run. `tree_sha256` is over paths, modes and contents, `archive_sha256` over the
    archive's bytes."""

    source: str
    commit: str  # of the git repository it was cloned from, or ""
    tree_sha256: str
    archive_sha256: str
    files: int
    size_bytes: int


def prepare(study: Study, store: Store) -> dict[str, Snapshot]:
    """Takes the snapshots that are missing, and compares those of folders with what the folders hold now.
    Raises UsageError for a source that is not there, or that changed since its snapshot, and for a study in
    a folder that sandboxes cannot run projects in."""
    if study.projects and study.provider.kind == "local":
        folder, todo = store.directory, "move the study to another folder"
        if unfit := unfit_for_hooks(folder.resolve(), todo) or unfit_for_messages(folder.absolute(), todo):
            raise UsageError(unfit)
    return {table.name: _prepare(table, store) for table in study.projects}


def read(store: Store, name: str) -> Snapshot:
    """The snapshot of a workload, its archive checked. Raises StoreError when one of them is damaged."""
    path = _file(store, name)
    again = f"remove {path.with_suffix('')}.* and run `vbstudy sweep` again"
    try:
        kept = from_json(Snapshot, json.loads(path.read_text(encoding="utf-8")), path.name)
        actual = sha256_of(_archive(store, name))
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"{error.filename}: is not there, as in a study exported --without-projects; put {name}.tar "
            f"and {name}.json there, from projects/ of the study that made the runs{_expected(store, name)}"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; {again}") from None
    if actual != kept.archive_sha256:
        raise StoreError(f"{_archive(store, name)}: does not match its SHA-256; {again}")
    return kept


def files(table: ProjectTable, store: Store) -> ProjectFiles:
    """The snapshot of a workload, where it lies on this machine. Raises as `read` and `wheels_folder`."""
    kept, wheels = read(store, table.name), wheels_folder(table, store)
    return ProjectFiles(
        archive=str(_archive(store, table.name).absolute()),
        archive_sha256=kept.archive_sha256,
        tree_sha256=kept.tree_sha256,
        commit=kept.commit,
        wheels=str(wheels or ""),
    )


def _expected(store: Store, name: str) -> str:
    """The hash of the project's files that the runs are of, where there are runs."""
    projects = (each.result.project for each in store.records() if each.spec.workload.name == name)
    project = next(filter(None, projects), None)
    return f" (tree_sha256 {project.tree_sha256})" if project else ""


def parcel(study: Study, store: Store) -> dict[str, bytes]:
    """The snapshots as files by their names, for the stores of other hosts. Raises UsageError when that is
    too much to send with every order for a run."""
    files = {path.name: path.read_bytes() for path in _files(study, store)}
    if sum(map(len, files.values())) > LARGE_PARCEL_BYTES:
        raise UsageError(
            f"{store.study_file}: the projects hold more than {LARGE_PARCEL_BYTES >> 20} MiB, which is too "
            "much to send to other hosts: keep data elsewhere, or sweep with engine.kind = 'local'"
        )
    return files


def accept(files: Mapping[str, bytes], study: Study, store: Store) -> None:
    """Keeps a parcel in a host's own store. Raises StoreError for one that is not whole."""
    store.projects.mkdir(parents=True, exist_ok=True)
    for path in _files(study, store):
        if path.name not in files:
            raise StoreError(f"{path.name} was not sent with the order")
        path.write_bytes(files[path.name])
    for table in study.projects:
        read(store, table.name)


def _files(study: Study, store: Store) -> list[Path]:
    return [path(store, table.name) for table in study.projects for path in (_archive, _file)]


def wheels_folder(table: ProjectTable, store: Store) -> Path | None:
    """The folder of wheels that requirements come from. Raises UsageError when it is not there."""
    if table.wheels is None:
        return None
    folder = (store.directory / expand(table.wheels)).resolve()
    if not folder.is_dir():
        raise UsageError(
            f"{store.study_file}: workload {table.name!r}: wheels = {table.wheels!r}: no such folder"
        )
    return folder


def _check_requirements(table: ProjectTable, folder: Path, where: str) -> None:
    if table.requirements and not (folder / table.requirements).is_file():
        raise UsageError(
            f"{where}: requirements = {table.requirements!r}: the project has no such file; name one of its "
            "files, or leave the key out for the guest's own Python"
        )


def _prepare(table: ProjectTable, store: Store) -> Snapshot:
    wheels_folder(table, store)
    if not _file(store, table.name).exists():
        return _take(table, store)
    kept = read(store, table.name)
    where = f"{store.study_file}: workload {table.name!r}"
    remedy = (
        f"give the workload another name, or remove {_file(store, table.name).with_suffix('')}.* and its runs"
    )
    known = (kept.source, portable_source(kept.source))  # the second in a published study file
    if table.location not in known or (table.commit and not kept.commit.startswith(table.commit)):
        raise UsageError(
            f"{where}: its runs are of {kept.source} {kept.commit[:12]}, not of {table.project}; {remedy}"
        )
    folder = store.directory / expand(table.location)
    if not table.is_git and folder.is_dir():  # gone since: the snapshot is what counts
        tree = _tree_sha256(_entries(folder, where, store))
        if tree != kept.tree_sha256:
            raise UsageError(f"{where}: {folder} changed since the study took it; {remedy}")
        _check_requirements(table, folder, where)
    return kept


def _take(table: ProjectTable, store: Store) -> Snapshot:
    where = f"{store.study_file}: workload {table.name!r}: project = {table.project!r}"
    store.projects.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as after:
        scratch = store.new_incoming()  # where it is swept away, should this process be killed
        after.callback(shutil.rmtree, scratch, ignore_errors=True)
        if table.is_git:
            folder = scratch / "clone"
            commit = _clone(table, folder, store.directory, where)
        else:
            folder, commit = store.directory / expand(table.location), ""
            if not folder.is_dir():
                raise UsageError(f"{where}: there is no such folder (a git URL ends in .git or has a scheme)")
        entries = list(_entries(folder, where, store))
        if all(entry[1] == FOLDER for entry in entries):
            raise UsageError(f"{where}: the folder is empty")
        _check_requirements(table, folder, f"{store.study_file}: workload {table.name!r}")
        size = sum(entry[3] for entry in entries)  # point: project hashed
        if size > LARGE_BYTES:
            raise UsageError(
                f"{where}: holds {size / 2**30:.1f} GiB, {LARGE_BYTES >> 30} are allowed; keep data and "
                "results elsewhere"
            )
        part = scratch / "archive"
        _write_archive(part, folder, [entry[0] for entry in entries])  # point: project archived
        sha256 = sha256_of(part)
        sync(part)
        part.rename(_archive(store, table.name))  # point: project archive renamed
    sync(store.projects)
    snapshot = Snapshot(
        source=table.location,
        commit=commit,
        tree_sha256=_tree_sha256(entries),
        archive_sha256=sha256,
        files=sum(entry[1] != FOLDER for entry in entries),
        size_bytes=size,
    )
    write_durably(_file(store, table.name), json.dumps(asdict(snapshot), indent=1) + "\n")
    return snapshot


def _tree_sha256(entries: Iterable[tuple[str, str, str, int]]) -> str:
    return digest([entry[:3] for entry in entries if entry[1] != FOLDER])


def _entries(folder: Path, where: str, store: Store) -> Iterator[tuple[str, str, str, int]]:
    """(path, kind, SHA-256 or a link's target, bytes) of all files and empty folders of a tree, always in
    the same order. Caches, environments and version control are left out, and so is a study that lies in the
    project. Raises UsageError for a link that leads out of the tree."""
    root, study = folder.resolve(), store.directory.resolve()
    for parent, folders, files in os.walk(root):
        skipped = {
            n for n in (*folders, *files) if n in SKIPPED or (Path(parent) == study and store.is_own(n))
        }
        folders[:] = sorted(set(folders) - skipped)
        if not folders and skipped.issuperset(files) and Path(parent) != root:
            yield Path(parent).relative_to(root).as_posix(), FOLDER, "", 0
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = Path(parent) / name
            relative = path.relative_to(root).as_posix()
            if name in skipped or name.endswith(".pyc"):
                continue
            if path.is_symlink():
                if not path.resolve().is_relative_to(root) or Path(os.readlink(path)).is_absolute():  # noqa: PTH115
                    raise UsageError(
                        f"{where}: the link {relative} leads out of the project; put a copy there"
                    )
                yield relative, "link", os.readlink(path), 0  # noqa: PTH115
                continue
            seen = path.lstat()
            if not stat.S_ISREG(seen.st_mode):
                continue  # sockets and pipes are no part of a project
            try:
                sha256 = sha256_of(path)
            except OSError as error:
                raise UsageError(f"{where}: {relative} cannot be read: {error.strerror}") from None
            yield relative, "program" if seen.st_mode & 0o100 else "file", sha256, seen.st_size


def _write_archive(target: Path, folder: Path, names: list[str]) -> None:
    """The same tree gives the same bytes: owners and times are left out."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            archive.add(folder / name, name, recursive=False, filter=plain)


def _clone(table: ProjectTable, folder: Path, directory: Path, where: str) -> str:
    """Clones the repository at its pin, or at its default branch; the commit."""
    _git(["clone", "--quiet", "--no-checkout", "--", table.location, str(folder)], directory, where)
    wanted = table.commit or "HEAD"
    _git(["-C", str(folder), "checkout", "--quiet", "--detach", wanted], directory, where)
    return _git(["-C", str(folder), "rev-parse", "HEAD"], directory, where).strip()


def _git(arguments: list[str], directory: Path, where: str) -> str:
    program = shutil.which("git")
    if program is None:
        raise PrerequisiteError(f"{where}: git is not installed; apt install git")
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, *arguments], cwd=directory, env=env, capture_output=True, text=True, errors="replace",
            timeout=GIT_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{where}: git {arguments[0]} did not end within {GIT_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        reason = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise UsageError(f"{where}: git cannot get it: {reason.partition(': ')[2] or reason}")
    return done.stdout


def _archive(store: Store, name: str) -> Path:
    return store.projects / f"{name}.tar"


def _file(store: Store, name: str) -> Path:
    return store.projects / f"{name}.json"
