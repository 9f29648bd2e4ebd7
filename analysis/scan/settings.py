"""What a project sets for its scan: `[tool.vbstudy.scan]` in the nearest pyproject.toml that has it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from analysis.scan.files import checked_pattern, read, repository
from analysis.scan.lint.rules import chosen
from analysis.scan.results import Note

FILE = "pyproject.toml"


class SettingsError(ValueError):
    """A table that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Rules by the beginnings of their codes, and patterns of paths. `within` is the way from the folder that
    sets them, where patterns begin, to what is scanned: empty, or with / at its end."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: str = ""


def settings_of(path: Path) -> Settings:
    """The settings for a folder or file: those of the nearest folder that has some, up to the root of its
    repository; the usual ones where there are none. Raises SettingsError."""
    path = path.resolve()
    start = path if path.is_dir() else path.parent
    root = repository(start)
    for folder in (start, *start.parents):
        try:
            found = _set_in(folder)
        except SettingsError as error:
            raise SettingsError(f"{folder / FILE}: {error}") from None
        if found is not None:
            return replace(found, within="".join(f"{part}/" for part in start.relative_to(folder).parts))
        if folder == root:
            break
    return Settings()


def _set_in(folder: Path) -> Settings | None:
    """None without a file or table."""
    data = read(folder, FILE)
    if isinstance(data, Note):
        return None
    try:
        table: Any = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if b"tool.vbstudy.scan" in data:
            raise SettingsError(f"is not TOML, so [tool.vbstudy.scan] is not known: {error}") from None
        return None  # the requirements of the project report it
    for key in ("tool", "vbstudy", "scan"):
        table = table.get(key)
        if not isinstance(table, dict):
            return None
    keys = {each.name.replace("_", "-"): each.name for each in fields(Settings) if each.name != "within"}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in keys:
            raise SettingsError(f"[tool.vbstudy.scan] has no key {key}; there are {', '.join(keys)}")
        if key == "exclude":
            found[key] = _patterns(key, *_texts(key, value))
        elif key != "per-file-ignores":
            found[keys[key]] = _codes(key, value)
        elif not isinstance(value, dict):
            example = '{ "tests/*" = ["VB3"] }'
            raise SettingsError(
                f"[tool.vbstudy.scan] {key} is no table of patterns, such as {example}: {value!r:.80}"
            )
        else:
            found[keys[key]] = {
                pattern: _codes(f'{key} "{text}"', codes)
                for text, codes in value.items()
                for pattern in _patterns(key, text)
            }
    return Settings(**found)


def _texts(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SettingsError(f"[tool.vbstudy.scan] {key} is no list of texts: {value!r:.80}")
    return tuple(value)


def _codes(key: str, value: object) -> tuple[str, ...]:
    """In any case, and not empty, as those of options."""
    found = tuple(code.strip().upper() for code in _texts(key, value) if code.strip())
    try:
        chosen((), found)
    except ValueError as error:
        raise SettingsError(f"[tool.vbstudy.scan] {key}: {error}") from None
    return found


def _patterns(key: str, *texts: str) -> tuple[str, ...]:
    try:
        return tuple(map(checked_pattern, texts))
    except ValueError as error:
        raise SettingsError(f"[tool.vbstudy.scan] {key}: {error}") from None
