"""What a program can change by itself: `sorted(...)` around the listings that VB301 finds. A file keeps its
encoding, its ends of lines, its number of lines and its permissions.

Other rules ask for a decision: a seed, a number of threads, a key to sort by."""

from __future__ import annotations

import ast
import errno
import io
import itertools
import os
import re
import stat
import tokenize
import warnings
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from analysis.results.temporary import temporary
from analysis.scan.files import read, repository
from analysis.scan.lint.lint import is_commented, lint_file
from analysis.scan.lint.order.sources import WALKS
from analysis.scan.lint.vocabulary import WORDS
from analysis.scan.results import Note, Scan
from analysis.scan.sarif import joined
from guest.records.printable import printable

RULE = "VB301"
ITERATORS = {
    *("glob.iglob", "Path.iterdir", "Path.rglob", "Path.glob", "mmengine.scandir", "mmcv.scandir"),
    *("imutils.paths.list_images", "imutils.paths.list_files"),
}
LEFT = WALKS | {"os.fwalk", "tensorflow.python.platform.gfile.Walk", "os.scandir"}
"""Walks are read while folders are left out and handles are open; entries of os.scandir have no order."""
LISTS = WORDS["listings"] - ITERATORS - LEFT
READERS = {"list", "tuple", "enumerate", "zip", "map", "filter", "tqdm"}
"""Functions that do not care whether they get a list or an iterator; `next` does."""
PASSES, PASSED_BYTES = 20, 2_000_000
"""Of `a + b` one is found at a time: a file is read as often as it takes, an enormous one not for hours."""
CONTEXT = 3
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class ChangedError(ValueError):
    """The file is another one than the diff was made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A file with changes; nothing is written before `write`."""

    path: Path
    before: bytes
    after: bytes
    calls: int

    def diff(self) -> bytes:
        """Unified, in the bytes of the file. No line is added or removed, so that the time is linear."""
        old, new = _LINE.findall(self.before), _LINE.findall(self.after)
        spans: list[tuple[int, int]] = []
        for number, (was, will) in enumerate(zip(old, new, strict=True)):
            if was == will:
                continue
            start = max(0, number - CONTEXT)
            if spans and start <= spans[-1][1]:
                start = spans.pop()[0]
            spans.append((start, min(len(old), number + CONTEXT + 1)))
        name = printable(_named(self.path))
        name += "\t" if " " in name else ""  # where a name with blanks ends
        found = [f"--- a/{name}\n+++ b/{name}\n".encode()]
        for start, stop in spans:
            where = f"{start + 1},{stop - start}"
            found.append(f"@@ -{where} +{where} @@\n".encode())
            for was, will in zip(old[start:stop], new[start:stop], strict=True):
                found += [b" ", _ended(was)] if was == will else [b"-", _ended(was), b"+", _ended(will)]
        return b"".join(found)

    def write(self) -> None:
        """Puts the file into its place, whole. Raises OSError and ChangedError."""
        if not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with temporary(self.path) as part:
            with part.open("xb") as file:
                file.write(self.after)
                os.fchmod(file.fileno(), stat.S_IMODE(self.path.stat().st_mode))
                file.flush()
                os.fsync(file.fileno())
            if self.path.is_symlink() or read(Path(), str(self.path)) != self.before:
                raise ChangedError("was changed meanwhile; not written")
            part.rename(self.path)


def fixes(scan: Scan) -> Iterator[Fix | Note]:
    """What can be changed, a file at a time, and why another file is not."""
    for project in scan.projects:
        reported: dict[str, set[int]] = {}
        for found in project.findings:
            if found.rule == RULE and not found.place.cell:
                reported.setdefault(found.place.path, set()).add(found.place.line)
        for path, lines in reported.items():
            file = Path(joined(project, path))
            data = read(Path(), str(file))
            if isinstance(data, Note):
                yield data
            elif file.is_symlink() or file.stat().st_nlink > 1:
                yield Note(path=str(file), text="is a link, or has a second name; not changed")
            else:
                after, calls = fixed(path, data, lines)
                if calls:
                    yield Fix(path=file, before=data, after=after, calls=calls)


def fixed(path: str, data: bytes, reported: Set[int] | None = None) -> tuple[bytes, int]:
    """A file with its listings sorted, and how many; with `reported`, none that was seen on another line.
    What could not be written back as it was read, or would be no Python any more, stays."""
    calls = 0
    left: set[int] | None = None
    for _ in range(max(PASSES, PASSED_BYTES // (len(data) + 1))):
        facts = lint_file(path, data)
        # `why` begins with the function, as the lint resolved it: "os.listdir() gives names ..."
        places = {
            (found.place.line, found.place.column - 1): found.why.partition("() ")[0]
            for found in facts.findings
            if found.rule == RULE and not is_commented(facts, found)
        }
        if left is None:  # of what shows later, behind another one, the scan has reported nothing
            left = set() if reported is None else {line for line, _ in places} - reported
        places = {place: name for place, name in places.items() if place[0] not in left}
        changed = _wrapped(path, data, places) if places else None
        if changed is None:
            break
        data, more = changed
        calls += more
    return data, calls


def _wrapped(path: str, data: bytes, places: dict[tuple[int, int], str]) -> tuple[bytes, int] | None:
    """Once: the calls at these places; None where nothing can be changed."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        raw = text.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their code
            tree = ast.parse(text)
            calls = list(_to_wrap(tree, places))
            lines = [0, *(end.end() for end in _LINE_END.finditer(raw))]
            at = {lines[call.lineno - 1] + call.col_offset: b"sorted(" for call in calls}
            at |= {lines[(c.end_lineno or 0) - 1] + (c.end_col_offset or 0): b")" for c in calls}
            points = [0, *sorted(at), len(raw)]
            new = b"".join(at.get(a, b"") + raw[a:b] for a, b in itertools.pairwise(points))
            after = new.decode().encode(encoding)
            if not calls or text.encode(encoding) != data:
                return None
            compile(after, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return None
    return after, len(calls)


def _to_wrap(tree: ast.Module, places: dict[tuple[int, int], str]) -> Iterator[ast.Call]:
    """Of the calls that begin at a place, the innermost is the listing: `Path(a).glob(b)[0].exists()`."""
    found: dict[tuple[int, int], tuple[ast.Call, ast.AST]] = {}
    stack: list[ast.AST] = [tree]
    while stack:
        parent = stack.pop()
        if _binds_sorted(parent):
            return
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.JoinedStr):  # before Python 3.12, places inside are wrong
                continue
            stack.append(node)
            if not isinstance(node, ast.Call):
                continue
            place = node.lineno, node.col_offset
            method = places.get(place, "").removeprefix("Path.")
            is_it = method and (
                method == places[place] or (isinstance(node.func, ast.Attribute) and node.func.attr == method)
            )
            if is_it and (place not in found or _end(node) < _end(found[place][0])):
                found[place] = node, parent
    for place, (node, parent) in found.items():
        if places[place] in LISTS or (places[place] in ITERATORS and _reads_all(node, parent)):
            yield node


def _end(node: ast.Call) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _binds_sorted(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "sorted" and not isinstance(node.ctx, ast.Load)
    return "sorted" in (getattr(node, each, None) for each in ("name", "asname", "arg"))


def _reads_all(node: ast.Call, parent: ast.AST) -> bool:
    """Whether a list does as well as an iterator."""
    match parent:
        case ast.For() | ast.comprehension(is_async=0):
            return parent.iter is node
        case ast.Call(func=ast.Name(id=name)):
            return name in READERS
    return isinstance(parent, ast.YieldFrom | ast.Starred)


def _named(path: Path) -> str:
    """A file below the current folder as seen from there, another one from the root of its repository."""
    file, here = path.resolve(), Path.cwd()
    base = here if file.is_relative_to(here) else repository(file.parent) or Path(file.anchor)
    return file.relative_to(base).as_posix()


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
