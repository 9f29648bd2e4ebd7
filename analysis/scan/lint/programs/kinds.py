"""What kind of file one is: a program, a file of tests, one of figures."""

from __future__ import annotations

import re

from analysis.scan.lint.facts import MAIN, TRIES, Event, FileFacts
from analysis.scan.lint.index import Index

TEST_FILE = re.compile(r"(?:^|/)(?:test_[\w-]+|[\w-]+_test|tests?|conftest)\.py$|(?:^|/)tests/")
"""Tests train, but are no training programs; `test.py` often is one, and evaluates."""
SMOKE_TEST = re.compile(r"(?:^|[/_])(?:smoke(?:_?test)?|dummy)(?:_\w+)?\.(?:py|ipynb)$", re.IGNORECASE)
TESTING = frozenset(("pytest", "unittest", "absl.testing"))
MADE_UP = re.compile(
    r"^(?:numpy\.random|torch|tensorflow(?:\.random)?)\.(?:rand|randn|random|normal|uniform|standard_normal)$"
)
"""Draws of numbers that stand for data."""
OF_PLOTS = re.compile(
    r"(?:^|[._ ])(?:t_?sne|umap|\w*plot\w*|visuali[sz]\w*|figures?)(?:$|[._ ])", re.IGNORECASE
)


def is_of_plots(program: FileFacts, file: FileFacts, event: Event) -> bool:
    """Whether something stands where figures are made beside a program, by the names of its function, and of
    its file if that is another one, but not of the folder that has them both."""
    folder = program.module.rpartition(".")[0]
    module = file.module.removeprefix(f"{folder}.") if file is not program else ""
    return bool(OF_PLOTS.search(f"{module} {file.scope_at(event.spot.line)}"))


def is_test(file: FileFacts) -> bool:
    """Whether a file has unit tests: by its name, unless it runs from a command line without a library of
    tests, or trains as a script. A smoke test that writes nothing keeps no result."""
    if SMOKE_TEST.search(file.path) and not file.written:
        return True
    if not TEST_FILE.search(file.path):
        return False
    top = file.scopes.get("", ())
    does = any(event.kind == "train" for event in top) or any(
        file.scope_at(line) == "" for line in file.written
    )
    does |= any(event.kind == "call" for event in top) and not file.spans  # a script that calls others
    if "tests/" not in file.path and does:
        return bool(file.flags & TESTING)
    has_tests = any(name.rpartition(".")[2].startswith("test_") for name in file.scopes)
    return has_tests or not file.is_main or bool(file.flags & TESTING)


def tries_out(file: FileFacts, *, is_imported: bool) -> bool:
    """Whether what stands under the main guard of a module only shows its use, on data that are made up: it
    writes nothing, and draws what it is about, or says that it tests and trains nothing itself. One that no
    file imports draws tensors whose size is written out, and reports no metric."""
    own = file.scopes.get(MAIN, ())
    reached = _reached(file, MAIN)
    fitted = {event.spot.line for event in file.events() if event.kind == "train"}
    if any(file.scope_at(line) in reached for line in file.written if line not in fitted):
        return False
    if TRIES in file.flags:
        return not any(event.kind == "train" for event in own)
    drawn = [event for event in own if event.kind == "draw" and MADE_UP.match(event.text)]
    if is_imported:
        return bool(drawn)
    uses = any(event.kind == "loaded" for event in file.events())
    is_of_tensors = any(e.spot in file.fixed and not e.text.startswith("numpy") for e in drawn)
    return is_of_tensors and not uses and "reports" not in file.flags


def _reached(file: FileFacts, scope: str) -> set[str]:
    """The scopes of a file that one calls, directly or not, and itself."""
    found = {scope}
    queue = [scope]
    while queue:
        for event in file.scopes.get(queue.pop(), ()):
            name = event.name.replace("()", "").removeprefix("@")
            for target in (name, f"{name}.__init__"):
                if event.kind in ("call", "value") and target in file.scopes and target not in found:
                    found.add(target)
                    queue.append(target)
    return found


def runs(file: FileFacts, index: Index, is_imported: bool) -> bool:
    """Whether a file is a program."""
    if is_test(file) or tries_out(file, is_imported=is_imported):
        return False
    top = file.scopes.get("", ())
    if (
        file.is_main
        or not file.commands.isdisjoint(file.scopes.keys() | file.bound)  # a function, or a group of commands
        or any(
            event.kind in ("train", "setting", "threads")
            or (event.kind == "call" and event.name.startswith("@"))
            for event in top
        )
    ):
        return True
    if is_imported or file.module.endswith("__init__"):
        return False
    if "serves" in file.flags:
        return True
    if any(file.scope_at(line) == "" for line in file.written):  # a script
        return True
    if "reports" in file.flags and any(event.kind == "loaded" for event in top):
        return True
    return any(event.kind == "call" and index.function(event.name, file) is not None for event in top)
