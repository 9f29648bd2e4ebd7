"""The rules about the order of data: which of the orders that files keep reaches a training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from analysis.scan.lint.facts import FileFacts
from analysis.scan.lint.lint import is_ignored
from analysis.scan.lint.programs.differ import AFTER_TRAINING, FRAMEWORKS
from analysis.scan.lint.programs.kinds import TEST_FILE, is_test
from analysis.scan.lint.programs.program import Program
from analysis.scan.lint.vocabulary import WORDS
from analysis.scan.results import Level, LintFinding

ORDERS = frozenset(("VB301", "VB302", "VB304", "VB305"))
OF_LISTS = ORDERS - {"VB302"}
"""Orders that sorting mends; numbers that were given in the order of a set stay."""
PREPARING = re.compile(
    r"prep|extract|encod|embed|feature|convert|creat|generat|build|make|split|dataset|(?:^|[/_])aug", re.I
)
"""Files of programs that make data with a model."""
OF_DATA = re.compile(
    r"(?:^|[_-])(?:train(?:ing)?|datasets?|split\w*|label\w*|corpus|pre_?process\w*|prep(?:are)?|extract\w*|features?"
    r"|augment\w*)(?:[_.-]|$)",
    re.IGNORECASE,
)
"""Names of files that make what training reads, whatever libraries they use."""
PLANES = re.compile(r"(?:sklearn\.manifold|umap|openTSNE|MulticoreTSNE|tsnecuda)(?:\.|$)")
"""What embeds in a plane."""
WINDOWS = WORDS["windows"]
DATA_LIBRARIES = WORDS["data_libraries"]


def orders(
    files: Sequence[FileFacts], every: Sequence[Program], *, everywhere: bool
) -> Iterator[LintFinding]:
    """The orders that are reached from a program that trains or prepares data, and not sorted where they are
    used. Without such a program, and with `everywhere`, those of files that have to do with data, else all
    as notes. The queries of a file are one finding."""
    queries: dict[str, list[LintFinding]] = {}
    by_path = {file.path: file for file in files}
    for each in _reached(files, every, everywhere=everywhere):
        if each.rule == "VB305" and not is_ignored(by_path[each.place.path], each):
            queries.setdefault(each.place.path, []).append(each)
        else:
            yield each
    for first, *others in queries.values():
        more = f"; so it is with {len(others)} more in this file" * bool(others)
        yield replace(first, why=f"{first.why}{more}")


def _reached(
    files: Sequence[FileFacts], every: Sequence[Program], *, everywhere: bool
) -> Iterator[LintFinding]:
    making = [] if everywhere else [program for program in every if makes_data(program)]
    using = [program for program in making if not _only_uses(program) and not _only_shows(program)]
    of_data = {file.path for file in files if _is_of_data(file)}
    reached = set().union(*(program.scopes for program in using))
    measured = set().union(*(program.scopes for program in every if "reports" in program.file.flags))
    read = set().union(*(file.read_attributes for file in files))
    sorted_later = set().union(*(file.sorted_attributes for file in files))
    for file in files:
        if is_test(file):
            continue
        is_left = not everywhere and _is_after(file)
        for each in file.findings:
            at = each.place.line, each.place.column
            held = file.held.get(at, set())
            is_decisive = at in file.decisive
            if (
                each.rule not in ORDERS
                or each.place.line in file.looked_at
                or (is_left and not is_decisive)
                or (held and held.isdisjoint(read))
                or _is_unread(file, at, every)
            ):
                continue
            if each.rule in OF_LISTS and held & sorted_later:
                continue
            if making:
                where = file.path, file.scope_at(each.place.line)
                if where in reached or (is_decisive and where in measured):
                    yield each
            elif file.path in of_data:
                yield each
            elif everywhere or not of_data:
                yield replace(each, level=Level.NOTE)


def _is_after(file: FileFacts) -> bool:
    """Whether a file that trains nothing is about what is done after training, or about data for tests, whose
    order counts only where it decides which they are; by its name."""
    trains = any(event.kind == "train" for event in file.events())
    return not trains and bool(AFTER_TRAINING.search(file.path) or TEST_FILE.search(file.path))


def _is_unread(file: FileFacts, at: tuple[int, int], every: Sequence[Program]) -> bool:
    """Whether nothing reads what has the order: no line of its file, and no program imports the file."""
    names = file.unread.get(at, {""})
    return names.isdisjoint(file.named | {""}) and not any(
        program.file is not file and any(each is file for each in program.files) for program in every
    )


def makes_data(program: Program) -> bool:
    """A tool that prints has an order that matters to nobody."""
    return program.training is not None or any(_writes_data(program, file) for file in program.files)


def _writes_data(program: Program, file: FileFacts) -> bool:
    """Whether a program's own file writes data, or a function that it reaches in one that prepares data."""
    if "saves" not in file.flags or not _is_of_data(file):
        return False
    return file is program.file or (
        "writes" not in program.file.flags
        and bool(OF_DATA.search(PurePosixPath(file.path).name))
        and any((file.path, file.scope_at(line)) in program.scopes for line in file.written)
    )


def _only_uses(program: Program) -> bool:
    """Whether a program has a model that was trained before, and trains none: it evaluates or shows."""
    training = program.training
    clusters = any(name.startswith("sklearn.cluster") for name in program.file.imported.values())
    return (
        (training is None or (training.event.name == "estimator" and clusters))
        and not PREPARING.search(program.file.path)
        and any(step.event.kind == "loaded" for step in program.reached)
    )


def _only_shows(program: Program) -> bool:
    """Whether a program embeds data in a plane, for a picture, or opens a window, and neither trains nor
    reports metrics."""
    return (
        program.training is None
        and "reports" not in program.file.flags
        and any(
            PLANES.match(name) or name.partition(".")[0] in WINDOWS
            for name in (*program.file.imported.values(), *program.file.stars)
        )
        and not PREPARING.search(program.file.path)
    )


def _is_of_data(file: FileFacts) -> bool:
    """Whether a file likely has to do with data: by its framework, or a library of data where it writes, or
    its name."""
    return bool(file.flags & FRAMEWORKS) or (
        "writes" in file.flags
        and bool(file.flags & DATA_LIBRARIES or OF_DATA.search(PurePosixPath(file.path).name))
    )
