"""Which files a project has, and their bytes. Links to folders are not followed, so nothing can go round in
circles; only regular files are opened, so nothing can block."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from analysis.scan.results import Note

LARGEST_BYTES = 5_000_000
SKIPPED = re.compile(
    r"\.(?:git|hg|svn|bzr|tox|nox|venv|eggs|hypothesis|ipynb_checkpoints|(?:mypy|ruff|pytest)_cache)"
    r"|__pycache__|node_modules|site-packages"
)
DEEPEST = 60  # folders; more is a tree that copies itself


@dataclass(slots=True)
class Tree:
    """The files of a project, as paths relative to its `root`, with /."""

    root: Path
    python: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    within: str = ""  # the way to `root` from where patterns begin, with / at its end
    ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rules by patterns of paths
    notes: list[Note] = field(default_factory=list)
    is_file: bool = False  # that file alone, without those beside it
    unread: set[str] = field(default_factory=set)  # modules that are there and not in `python`, by name


def repository(folder: Path) -> Path | None:
    """The root of the Git repository that a folder, an absolute path, lies in."""
    return next((each for each in (folder, *folder.parents) if os.access(each / ".git", os.F_OK)), None)


def checked_pattern(text: str) -> str:
    """A pattern without `./` and without / at its end. Raises ValueError for one that fits no path below."""
    found = posixpath.normpath(text)
    if found in (".", "..") or found.startswith(("/", "../")):
        raise ValueError(f"{text or '(empty)'} matches no path in the project; write one like tests or old/*")
    return found


def fits(path: str, pattern: str) -> bool:
    """Whether a checked pattern fits a path, or a folder that the path lies in."""
    around = (str(parent) for parent in PurePosixPath(path).parents if parent.name)
    return any(_is(each, pattern) for each in (path, *around))


def _is(path: str, pattern: str) -> bool:
    """`*` stands for folders too, and `**/` for none as well."""
    return any(fnmatch.fnmatchcase(path, each) for each in (pattern, pattern.replace("**/", "")))


def walk(root: Path, exclude: Sequence[str] = (), within: str = "") -> Tree:
    """All files below a folder in the order of their names, but those that fit a pattern of `exclude` or lie
    in a folder below that does; of a file, that file alone. Patterns are checked, and see `within` before
    each path."""
    if not root.is_dir():
        tree = Tree(root.parent, within=within, is_file=True)
        (tree.python if root.suffix in (".py", ".ipynb") else tree.others).append(root.name)
        tree.unread |= _around(tree)
        return tree
    tree = Tree(root, within=within)
    tree.unread |= _around(tree)
    stack = [("", 0)]
    while stack:
        folder, depth = stack.pop()
        below = []
        for entry in _entries(tree, folder):
            path = f"{folder}{entry.name}"
            if any(_is(within + path, pattern) for pattern in exclude):
                tree.unread.add(_module(entry.name))
                continue
            try:
                is_folder, is_link = entry.is_dir(), entry.is_symlink()
            except OSError as error:
                tree.notes.append(Note(path=path, text=f"cannot be read: {error.strerror}"))
                continue
            if is_folder and is_link:
                tree.unread.add(entry.name)
                tree.notes.append(Note(path=path, text="is a link to a folder; not followed"))
            elif is_folder:
                if depth == DEEPEST:
                    tree.unread.add(entry.name)
                    tree.notes.append(
                        Note(path=path, text=f"lies more than {DEEPEST} folders deep; not looked at")
                    )
                elif not SKIPPED.fullmatch(entry.name) and not _is_environment(root / path):
                    below.append((f"{path}/", depth + 1))
            elif entry.name.endswith((".py", ".ipynb")):
                tree.python.append(path)
            else:
                tree.others.append(path)
        stack += reversed(below)
    return tree


def _around(tree: Tree) -> set[str]:
    """The modules in the folders around a tree, up to the root of its repository; of a file, those beside it
    too."""
    folder = tree.root.resolve()
    top = repository(folder) or folder
    above = [each for each in folder.parents if each.is_relative_to(top)]
    every = (_entries(tree, str(each)) for each in ([folder] * tree.is_file + above))
    return {_module(entry.name) for entries in every for entry in entries} - {""}


def _module(name: str) -> str:
    """The module that a file or folder may be; "" for none."""
    stem, _, suffix = name.partition(".")
    return stem if suffix in ("", "py") else ""


def _is_environment(folder: Path) -> bool:
    """A virtual environment, unless a project has its sources in the same folder."""
    return (folder / "pyvenv.cfg").exists() and not any(folder.glob("*.py"))


def _entries(tree: Tree, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(tree.root / folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        tree.notes.append(Note(path=folder or ".", text=f"cannot be listed: {error.strerror}"))
        return []


def beside(root: Path, module: str) -> str:
    """The file or folder in a folder that an import of a module reads, by a name that may begin with that of
    the folder; "" for none."""
    parts = module.strip(".").split(".")
    parts = parts[1:] if parts[0] == root.resolve().name else parts
    name = parts[0] if parts else ""
    if name and (root / f"{name}.py").is_file():
        return f"{name}.py"
    return f"{name}/" if name and next((root / name).glob("*.py"), None) else ""


def read(root: Path, path: str) -> bytes | Note:
    """A file's bytes, or why they are not looked at."""
    try:
        with open(root / path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return Note(path=path, text="is not a regular file; left out")
            if found.st_size > LARGEST_BYTES:
                size = f"{found.st_size / 1e6:.0f} MB"
                return Note(path=path, text=f"has {size}, more than {LARGEST_BYTES / 1e6:.0f}; left out")
            return file.read()
    except OSError as error:
        return Note(path=path, text=f"cannot be read: {error.strerror}")
