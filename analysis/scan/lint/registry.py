"""The registry of operations that can differ between runs: `data/operations.toml`, read once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

FILE = Path(__file__).parent / "data" / "operations.toml"
Pins = Mapping[tuple[str, str], str]
"""The exact versions of frameworks, by the folder whose file pins them and the framework's name."""
Arguments = tuple[tuple[str, tuple[str, ...]], ...]
"""Arguments by name, each with values; no values stand for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One entry; the head of the file explains its keys. `position` is -1 where no argument may stand without
    its name."""

    framework: str
    names: tuple[str, ...]
    switch: str = ""
    raises: str = ""
    on: str
    only: Arguments = ()
    unless: Arguments = ()
    position: int = -1
    rare: bool = False
    always: bool = False
    floats: bool = False
    of: str = ""
    dim: bool = False
    cudnn: bool = False
    chosen: str = ""
    where: str = ""
    imports: str = ""
    default: str = ""
    model: bool = False
    beside: bool = False
    alone: bool = False
    rows: bool = False
    perhaps: bool = False
    overlaps: bool = False
    cublas: bool = False
    package: str = ""
    since: tuple[tuple[str, str], ...] = ()

    @property
    def in_gradient(self) -> bool:
        return self.on.startswith("in the gradient")

    def behaviour(self, version: tuple[int, ...] | None) -> str:
        """`switch`, `raises`, or "" where that version documents nothing. None is the newest version."""
        for name, ranges in (("switch", self.switch), ("raises", self.raises)):
            if ranges and _within(version, ranges):
                return name
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threaded:
    """`what` of an operation depends on the thread count."""

    what: str
    unless: Arguments = ()
    position: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    modes: dict[str, str]
    operations: tuple[Operation, ...]
    threads: tuple[Threaded, ...]
    by_name: dict[str, tuple[int, ...]]
    by_method: dict[str, tuple[int, ...]]
    threads_by_name: dict[str, int]
    patterns: tuple[tuple[re.Pattern[str], int], ...]


@cache
def operations_of(name: str) -> tuple[int, ...]:
    """The entries for a qualified name, by its own or by a pattern."""
    known = registry()
    if "." not in name:
        return ()
    return (
        *known.by_name.get(name, ()),
        *(index for pattern, index in known.patterns if pattern.fullmatch(name)),
    )


@cache
def registry() -> Registry:
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    operations = []
    by_name: dict[str, tuple[int, ...]] = {}
    by_method: dict[str, tuple[int, ...]] = {}
    compiled: list[tuple[re.Pattern[str], int]] = []
    entries = [{"framework": of, **entry} for of, some in data["operation"].items() for entry in some]
    for index, entry in enumerate(entries):
        only, unless = _arguments(entry, "only"), _arguments(entry, "unless")
        since = tuple(entry.pop("since", {}).items())
        names, methods, patterns = (tuple(entry.pop(key, ())) for key in ("names", "methods", "patterns"))
        compiled += [(re.compile(pattern), index) for pattern in patterns]
        operations.append(Operation(names=names, only=only, unless=unless, since=since, **entry))
        for name in names:
            by_name[name] = (*by_name.get(name, ()), index)
        for name in methods:
            by_method[name] = (*by_method.get(name, ()), index)
    threads = []
    threads_by_name: dict[str, int] = {}
    for index, entry in enumerate(data["threads"]):
        threads_by_name |= dict.fromkeys(entry.pop("names"), index)
        threads.append(Threaded(unless=_arguments(entry, "unless"), **entry))
    return Registry(
        modes={name: entry["mode"] for name, entry in data["frameworks"].items()},
        operations=tuple(operations),
        threads=tuple(threads),
        by_name=by_name,
        by_method=by_method,
        threads_by_name=threads_by_name,
        patterns=tuple(compiled),
    )


def _arguments(entry: dict[str, Any], key: str) -> Arguments:
    return tuple((name, tuple(values)) for name, values in entry.pop(key, {}).items())


def version(text: str) -> tuple[int, ...] | None:
    """The first two numbers of a version; None when there are none."""
    numbers = []
    for part in text.split("+")[0].split(".")[:2]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) or None


def pin_of(pinned: Pins, framework: str, path: str) -> str:
    """That of the nearest folder around a file; else that on which all of the project agree."""
    for parent in PurePosixPath(path).parents:
        if found := pinned.get(("" if str(parent) == "." else str(parent), framework)):
            return found
    every = {found for (_, name), found in pinned.items() if name == framework}
    return every.pop() if len(every) == 1 else ""


def _within(wanted: tuple[int, ...] | None, ranges: str) -> bool:
    first, _, last = ranges.partition("-")
    if wanted is None:
        return not last
    return (version(first) or ()) <= wanted and (not last or wanted <= (version(last) or ()))
