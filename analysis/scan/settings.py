"""What a project sets for its scan: `[tool.vbstudy.scan]` in its pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from analysis.scan.files import read
from analysis.scan.results import Note

FILE = "pyproject.toml"


class SettingsError(ValueError):
    """A table that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Rules by the beginnings of their codes, and patterns of paths."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def settings_of(project: Path) -> Settings:
    """The settings of a folder; the usual ones without a file or table, and where the file is no TOML, which
    the requirements of the project report. Raises SettingsError."""
    data = read(project, FILE)
    if isinstance(data, Note):
        return Settings()
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return Settings()
    for key in ("tool", "vbstudy", "scan"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            return Settings()
    known = [field.name for field in fields(Settings)]
    for key, value in table.items():
        if key not in known:
            raise SettingsError(f"[tool.vbstudy.scan] has no key {key}; there are {', '.join(known)}")
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise SettingsError(f"[tool.vbstudy.scan] {key} is no list of texts")
    return Settings(**{key: tuple(value) for key, value in table.items()})
