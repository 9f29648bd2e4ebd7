"""The vocabulary of a scan: what is found in a file, in a project, and in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA_VERSION = 1


class Level(StrEnum):
    ERROR = "error"  # stops, or does something else than it states
    WARNING = "warning"  # runs can differ
    NOTE = "note"  # runs differ under other conditions: another machine, another thread count


class Part(StrEnum):
    """What a hardware requirement is about."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"
    THREADS = "threads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`line` and `column` count from 1, columns in characters. In a notebook they are those within its
    `cell`, counted from 1 over all cells; elsewhere `cell` is 0. `path` is relative to what was scanned."""

    path: str
    line: int
    column: int = 1
    cell: int = 0

    def __str__(self) -> str:
        inside = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{inside}{self.line}:{self.column}"


PROGRAMS = "; programs: "
"""What begins the list of programs that a finding is about, at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One place where a rule applies: why it matters there, and what to do."""

    rule: str
    level: Level
    place: Place
    why: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One software requirement. `pinned`: exactly one version fits it. `name` is lower case, with hyphens."""

    name: str
    specifier: str
    pinned: bool
    source: str  # the kind of file, such as "requirements.txt" or "README"
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareStatement:
    """One stated hardware requirement: the words that state it, and the sentence around them."""

    part: Part
    words: str
    quote: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What could not be read or looked at, and what to do."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What was found in one project; `path` as it was given."""

    path: str
    files: int
    lines: int  # of Python, notebooks included; 0 where nothing was linted
    software: tuple[Requirement, ...]
    hardware: tuple[HardwareStatement, ...]
    findings: tuple[LintFinding, ...]
    notes: tuple[Note, ...]

    @property
    def pinned(self) -> bool:
        """Whether every stated requirement admits one version only. A lock file pins what it lists."""
        return bool(self.software) and all(r.pinned for r in self.software)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A whole scan. `projects` are in the order of their paths."""

    schema_version: int
    projects: tuple[Project, ...]
