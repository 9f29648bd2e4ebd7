"""Programs that cannot run as they are: they stop before they have a result."""

from __future__ import annotations

import re

from analysis.scan.lint.facts import FETCHES, MAIN, MOVES, Event, FileFacts
from analysis.scan.lint.index import LIBRARIES, Index
from analysis.scan.lint.vocabulary import WORDS

LIKE_LIBRARIES = WORDS["like_folders"]
"""Libraries with names that folders of projects have too."""
OF_PROJECTS = re.compile(
    r"(?:my_?|our_?)(?:model|net|network|data|dataset|dataloader|util|lib|module|loss|config|function|transform|layer"
    r"|tool|class|helper)s?"
    r"|(?:util|config|model|helper|dataloader|option|hparam|setting|constant|trainer|preprocess|preprocessing"
    r"|network|layer|argument|cfg|src|criterion|architecture|solver|loss|losses)s?"
    r"|(?:data|dataset|model|train|training|eval|test|image|text|audio|video|feature|plot|log|file|nn|net)_?"
    r"(?:util|tool|helper|loader|generator|config|process|processing|preprocess|preprocessing|prep|dir)s?"
    r"|\w+_(?:dir|utils?|configs?|helpers?|dataset|dataloader|data_?loader|model|models|trainer)"
    r"|pytorchtools|load_data|get_data|read_data|early_?stopping",
    re.IGNORECASE,
)
"""Names of modules that belong to a project, by all that is usual."""
LIKE_PROJECTS = WORDS["like_projects"]
"""Libraries that have such names nevertheless."""
OFTEN_IGNORED = frozenset(("data", "dataset", "datasets", "lib", "env", "build", "logs"))
"""Folders that are left out of repositories by a pattern that is meant for other ones."""
TRAINING = re.compile(r"train|fit|main|run|learn", re.IGNORECASE)
MADE = re.compile(r"_pb2|version", re.IGNORECASE)
"""Modules that are made when a project is built."""


def stops(file: FileFacts, index: Index, elsewhere: frozenset[str]) -> str:
    """Where and why a program stops, itself or at a module that it imports: at an import of what the project
    does not have, or at a name that nothing defines; "" for nowhere, or where it has trained before."""
    seen = {file.path}
    queue = [file]
    trained = min(
        (e.spot.line for scope in ("", MAIN) for e in file.scopes.get(scope, ()) if _may_train(e)),
        default=file.lines + 1,
    )
    while queue:
        importer = queue.pop()
        at = "" if importer is file else f"{importer.path}, "
        for line, of_program in importer.undefined.items():
            if line < trained if importer is file else not of_program:
                return f"{at}{importer.where(line)}: reads a name that nothing defines"
        for module, name, line in sorted(importer.needed, key=lambda each: (each[2], *each)):
            if importer is file and file.is_notebook and trained < line:
                continue
            if _lacks(module, name, file, index, elsewhere):
                return f"{at}{importer.where(line)}: imports {name} of {module}, which does not have it"
            if _is_missing(module, importer, file, index, elsewhere):
                return f"{at}{importer.where(line)}: imports {module}, which was not found"
            for each in (module, f"{module}.{name}"):
                found = index.module(each, importer)
                if found is not None and found.path not in seen:
                    seen.add(found.path)
                    queue.append(found)
    return ""


def fails(file: FileFacts, line: int, program: FileFacts, index: Index, elsewhere: frozenset[str]) -> bool:
    """Whether a function fails before it gets to a line: it imports what the project does not have."""
    before = [each for each in file.needed_by.get(file.scope_at(line), ()) if each[2] < line]
    return any(
        _lacks(module, name, file, index, elsewhere) or _is_missing(module, file, program, index, elsewhere)
        for module, name, _ in before
    )


def _lacks(module: str, name: str, importer: FileFacts, index: Index, elsewhere: frozenset[str]) -> bool:
    return bool(name) and name not in elsewhere and index.lacks(module, name, importer)


def _is_missing(
    module: str, importer: FileFacts, program: FileFacts, index: Index, elsewhere: frozenset[str]
) -> bool:
    """Whether a project has to have a module, by its folder or by its name, and does not."""
    parts = module.split(".")
    top = parts[0]
    if not top or top in LIBRARIES or not elsewhere.isdisjoint(parts) or MADE.search(parts[-1]):
        return False
    flags = program.flags | importer.flags
    if index.has(module) or FETCHES in flags:
        return False
    if index.has(top):
        absent = {part for at, part in enumerate(parts[:-1]) if not index.has(".".join(parts[: at + 1]))}
        used = {name for name, _, _ in importer.needed | program.needed if name.startswith(f"{top}.")}
        around = importer.module.split(".")[:-1]
        is_relative = (len(parts) > 2 and around[:2] == parts[:2]) or (
            around == [top] and OF_PROJECTS.fullmatch(top) is not None
        )
        return (
            index.is_local(top, program)
            and (is_relative or any(map(index.has, used)))
            and top not in LIKE_LIBRARIES
            and absent.isdisjoint(OFTEN_IGNORED)
        )
    return top not in LIKE_PROJECTS and MOVES not in flags and OF_PROJECTS.fullmatch(top) is not None


def _may_train(event: Event) -> bool:
    return event.kind == "train" or (event.kind in ("call", "method") and bool(TRAINING.search(event.name)))
