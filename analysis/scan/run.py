"""Scans many projects, or the many files of one, on all cores."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

from analysis.scan.files import Tree, walk
from analysis.scan.lint.facts import FileFacts
from analysis.scan.lint.rules import USUAL
from analysis.scan.project import lint_some, options, put_together
from analysis.scan.results import SCHEMA_VERSION, Note, Project, Scan

FEW_FILES = 150  # below, processes cost more than they save
CHUNK = 40  # files of one project that a process takes at a time
Progress = Callable[[int, int, str], None]
"""Called with how much is done, of how much, and what."""


def scan(
    paths: Sequence[Path],
    *,
    rules: frozenset[str] = USUAL,
    exclude: Sequence[str] = (),
    ignores: Mapping[str, tuple[str, ...]] | None = None,
    within: str = "",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Scan:
    """Scans each path as one project, a folder or a file, without the files that a pattern of `exclude` fits.
    `ignores` has codes of rules by the patterns of the files in which they are silent; `within` is the way to
    the path from where patterns begin, with / at its end. Without rules nothing is linted.
    Raises BrokenProcessPool when a process was killed from outside."""
    jobs = jobs or len(os.sched_getaffinity(0))
    progress = progress or (lambda _done, _total, _what: None)  # nobody looks
    trees = [replace(walk(path, exclude, within), ignores=ignores or {}) for path in paths]
    named = list(zip(map(str, paths), trees, strict=True))
    files = sum(len(tree.python) for tree in trees)
    if jobs == 1 or files + len(trees) < FEW_FILES:
        found = []
        for done, (name, tree) in enumerate(named):
            progress(done, len(named), name)
            found.append(_project(name, tree, rules))
        return Scan(schema_version=SCHEMA_VERSION, projects=tuple(found))
    _start_server()
    server = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=server, initializer=_ignore_interrupts) as pool:
        try:
            if len(named) < 2 * jobs:
                projects = [_split_up(pool, name, tree, rules, progress) for name, tree in named]
            else:
                projects = _in_turn(pool, named, rules, progress, jobs)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Scan(schema_version=SCHEMA_VERSION, projects=tuple(projects))


def _start_server() -> None:
    """Starts what starts the processes, with interruptions blocked: they are while its processes begin."""
    resource_tracker.ensure_running()  # it would unblock them
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent reports an interruption


def _project(name: str, tree: Tree, rules: frozenset[str]) -> Project:
    facts = lint_some(tree.root, tree.python, options(tree)) if rules else []
    return put_together(name, tree, facts, rules)


def _in_turn(
    pool: ProcessPoolExecutor,
    named: Sequence[tuple[str, Tree]],
    rules: frozenset[str],
    progress: Progress,
    jobs: int,
) -> list[Project]:
    """A process takes a project at a time. Few are handed out in advance, so that memory stays small."""
    found: dict[int, Project] = {}
    waiting: dict[Future[Project], int] = {}
    todo = iter(enumerate(named))
    while len(found) < len(named):
        for number, (name, tree) in itertools.islice(todo, 4 * jobs - len(waiting)):
            waiting[pool.submit(_project, name, tree, rules)] = number
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            number = waiting.pop(future)
            found[number] = future.result()
            progress(len(found), len(named), named[number][0])
    return [found[number] for number in range(len(named))]


def _split_up(
    pool: ProcessPoolExecutor, name: str, tree: Tree, rules: frozenset[str], progress: Progress
) -> Project:
    """The files of one project are spread over the processes."""
    facts: list[FileFacts] = []
    chunks = [tree.python[i : i + CHUNK] for i in range(0, len(tree.python), CHUNK)] if rules else []
    known = options(tree) if rules else {}
    for done, some in enumerate(pool.map(partial(lint_some, tree.root, known=known), chunks)):
        facts += some
        progress(done + 1, len(chunks), name)
    return put_together(name, tree, facts, rules)


def projects_of(folders: Sequence[Path]) -> tuple[list[Path], list[Note]]:
    """The subfolders of folders, each a project (`--each`), in the order of their names; hidden ones and
    links to folders are left out. Raises OSError."""
    found, notes = [], []
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                notes.append(Note(path=str(path), text="is a link; not followed"))
            elif path.is_dir() and not path.name.startswith("."):
                found.append(path)
    return found, notes
