"""A program's folder: what a run gets a copy of, and what the run wrote there."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.results.temporary import temporary
from guest.machine.folders import make_writable, remove_folder
from orchestrator.errors import STORAGE_ERRNOS, UnmetError, UsageError
from orchestrator.files import temporary_place
from orchestrator.study.snapshots import SKIPPED
from vbstudy import caches

COPY_LIMIT_BYTES = 2 << 30
TEMPORARY = re.compile(r"vbstudy-[a-z]+-(?:[a-z0-9_]{8}|[0-9a-f]{16})")  # ours, or of `tempfile` for us
NAMED = 5  # in a note
LEFT_ALONE = "neither kept apart nor compared"
PASSING = (".log", ".lock", ".pyc")
# Times and process numbers that programs put into the names of files and folders (TensorBoard's
# `events.out.tfevents.1700000000.host.123.0`, `runs/Nov23_16-34-48_host`, `2026-11-23_16-34-48`; Hydra's
# `2026-11-23/16-34-48`).
CHANGING = re.compile(
    r"(?<=tfevents\.)[^/]+"
    r"|(?:19|20)\d\d-?(?:0[1-9]|1[0-2])-?[0-3]\d"
    r"(?:(?:[T_ -]?|/(?=\d\d\D?\d\d\D?\d\d(?!\d)))\d\d[:._-]?\d\d(?:[:._-]?\d\d)?(?:\.\d+)?)?"
    r"|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d|\d{10,}"
)
Stamps = dict[str, tuple[int, int]]  # by path below the folder: size in bytes, time of the last change in ns


def check_size(folder: Path) -> None:
    """Raises UsageError for a folder too large to be copied for every run."""
    total = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = set(folders) - left_out(parent, folders)
        for name in files:
            try:
                total += (Path(parent) / name).lstat().st_size
            except OSError:  # it vanished meanwhile
                continue
        if total > COPY_LIMIT_BYTES:
            raise UsageError(
                f"{folder}: holds more than {COPY_LIMIT_BYTES >> 30} GiB, and every run gets a copy; "
                "run it from a folder that has the program alone, with its data named by an absolute path"
            )


@contextlib.contextmanager
def scratch(prefix: str, argv: Sequence[str]) -> Iterator[Path]:
    """A temporary folder for the runs of a program; what killed processes left of theirs is removed. Raises
    UnmetError when it cannot be read as they left it, UsageError as `temporary_place`."""
    with temporary(Path(temporary_place()) / "runs", prefix) as folder:
        folder.mkdir()
        try:
            yield folder
        except RecursionError:
            raise UnmetError(f"{shlex.join(argv)}: it made folders that are nested too deep") from None
        except OSError as error:
            if error.errno in STORAGE_ERRNOS or error.filename is None:
                raise
            raise UnmetError(
                f"{shlex.join(argv)}: {error.filename}: {error.strerror}: did the program remove the folder "
                "that it ran in, or files that are not its own?"
            ) from None
        finally:
            remove_folder(folder)


def copy(folder: Path, target: Path) -> Path:
    """The copy of one run. Raises UsageError for what cannot be copied."""
    try:
        shutil.copytree(folder, target, symlinks=True, ignore=left_out)
        make_writable(target)
        for link in _leading_out(folder):
            if not (folder / link).readlink().is_absolute():  # it would lead elsewhere from the copy
                (target / link).unlink()
                (target / link).symlink_to(os.path.realpath(folder / link))
    except shutil.Error as error:
        source, _, why = error.args[0][0]
        raise UsageError(f"{source}: cannot be copied: {why}; does another process change it?") from None
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be copied: {error.strerror}") from None
    return target.resolve()


def notes_of_links(folder: Path) -> tuple[str, ...]:
    """On links by which a run reaches what is not its copy's."""
    found = [link.as_posix() for link in _leading_out(folder)]
    told = f"what is written there is {LEFT_ALONE}"
    return (f"links that lead out of the folder: {_few(found)}; {told}",) if found else ()


def notes_of_others(files: Iterable[tuple[str, Path]]) -> tuple[str, ...]:
    """On files (name, path) that a program wrote outside of its folder, but for what is no result: temporary
    files, caches and settings of libraries, their logs and locks."""
    passing = (Path(tempfile.gettempdir()), caches.base())
    found = [
        CHANGING.sub("*", name)
        for name, path in files
        if name.startswith("..")
        or not (
            path.suffix in PASSING
            or any(map(path.is_relative_to, passing))
            or any(part.startswith(".") for part in path.parts)
        )
    ]
    names = _few(list(dict.fromkeys(found)))
    return (f"written outside of the folder, {LEFT_ALONE}: {names}",) if found else ()


def notes_of_downloads(names: Sequence[str]) -> tuple[str, ...]:
    """On files that the first run alone wrote outside of its folder."""
    return (f"written outside of the folder in the first run alone, and not compared: {_few(names)}",)


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:NAMED], *(["..."] if names[NAMED:] else [])])


def _leading_out(folder: Path) -> Iterator[Path]:
    """The links of a copy that lead out of the folder, by their paths in it; absolute ones all do."""
    for path in copied(folder):
        if path.is_symlink() and (
            path.readlink().is_absolute() or not Path(os.path.realpath(path)).is_relative_to(folder.resolve())
        ):
            yield path.relative_to(folder)


def copied(folder: Path) -> Iterator[Path]:
    """All files, links and folders that a run gets a copy of, always in the same order."""
    for parent, folders, files in os.walk(folder):
        left = left_out(parent, [*folders, *files])
        folders[:] = sorted(set(folders) - left)
        yield from (Path(parent) / name for name in (*folders, *sorted(set(files) - left)))


def left_out(folder: str, names: list[str]) -> set[str]:
    """What no run gets a copy of: leavings of Python and tools; environments; our own copies, if TMPDIR is in
    the folder; pipes, sockets and devices."""
    left = shutil.ignore_patterns(*SKIPPED, "*.pyc")(folder, names)
    ours = set(filter(TEMPORARY.fullmatch, names))
    if ours and Path(folder).samefile(tempfile.gettempdir()):
        left |= ours
    paths = (Path(folder) / name for name in names if name not in left)
    return left | {path.name for path in paths if not _plain(path) or is_environment(path)}


def is_environment(path: Path) -> bool:
    """Of venv or conda, unless a program lies in the same folder; a link to one costs nothing."""
    marked = any((path / name).exists() for name in ("pyvenv.cfg", "conda-meta"))
    return marked and not path.is_symlink() and not any(path.glob("*.py"))


def _plain(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:  # it vanished meanwhile
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def stamps(work: Path) -> Stamps:
    """All plain files of a copy."""
    found: Stamps = {}
    for parent, folders, files in os.walk(work):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for path in (Path(parent) / name for name in files):
            seen = path.lstat()
            if stat.S_ISREG(seen.st_mode) and path.suffix != ".pyc":
                found[path.relative_to(work).as_posix()] = seen.st_size, seen.st_mtime_ns
    return found


def written(work: Path, before: Stamps) -> dict[str, Path]:
    """New and changed files by a name that is the same in each run: `*` stands for times in it."""
    names = sorted(name for name, stamp in stamps(work).items() if before.get(name) != stamp)
    known = numbered(CHANGING.sub("*", name) for name in names)
    return dict(zip(known, (work / name for name in names), strict=True))


def numbered(names: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
    """The names, with a number where they are taken."""
    uses = Counter(taken)
    for name in names:
        known = name
        while uses[known]:
            uses[name] += 1
            known = f"{name} ({uses[name]})"
        uses[known] += 1
        yield known
