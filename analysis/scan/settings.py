"""What a project sets for its scan: `[tool.vbstudy.scan]` in its pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from analysis.scan.files import read
from analysis.scan.lint.rules import chosen
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
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def settings_of(project: Path) -> Settings:
    """The settings of a folder; the usual ones without a file or table. Raises SettingsError."""
    data = read(project, FILE)
    if isinstance(data, Note):
        return Settings()
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if b"tool.vbstudy.scan" in data:
            raise SettingsError(f"is not TOML, so [tool.vbstudy.scan] is not known: {error}") from None
        return Settings()  # the requirements of the project report it
    for key in ("tool", "vbstudy", "scan"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            return Settings()
    keys = {each.name.replace("_", "-"): each.name for each in fields(Settings)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in keys:
            raise SettingsError(f"[tool.vbstudy.scan] has no key {key}; there are {', '.join(keys)}")
        if key != "per-file-ignores":
            found[key] = _texts(key, value)
        elif not isinstance(value, dict):
            example = '{ "tests/*" = ["VB3"] }'
            raise SettingsError(
                f"[tool.vbstudy.scan] {key} is no table of patterns, such as {example}: {value!r:.80}"
            )
        else:
            found[keys[key]] = {
                pattern: _texts(f'{key} "{pattern}"', codes) for pattern, codes in value.items()
            }
    return Settings(**found)


def _texts(key: str, value: object) -> tuple[str, ...]:
    """A list of texts; but of patterns, they are codes of rules."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SettingsError(f"[tool.vbstudy.scan] {key} is no list of texts: {value!r:.80}")
    try:
        chosen((), () if key == "exclude" else tuple(value))
    except ValueError as error:
        raise SettingsError(f"[tool.vbstudy.scan] {key}: {error}") from None
    return tuple(value)
