"""Software requirements from manifests and lock files: pyproject.toml, Pipfile, setup.py, setup.cfg,
locks."""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.utils import canonicalize_name

from analysis.scan.requirements.listed import Stated, is_exact, requirement
from analysis.scan.source import parsed

_LISTS = re.compile(r"^(?:\[options|[^#\n]*dependenc)", re.MULTILINE)  # of setup.cfg, of pyproject.toml


class ManifestError(ValueError):
    """The text says what is wrong in the file, and where."""


def pyproject(text: str) -> Iterator[Stated]:
    """PEP 621 (also hatch and pdm), poetry, pdm's and PEP 735's groups."""
    data = _toml(text)
    project = _table(data, "project")
    lists = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
    lists += _table(data, "dependency-groups").values()
    lists += _table(data, "tool", "pdm", "dev-dependencies").values()
    lists += [_table(data, "tool", "uv").get("dev-dependencies")]
    lists += [_table(data, "tool", "flit", "metadata").get("requires")]
    for environment in map(_table, _table(data, "tool", "hatch", "envs").values()):
        lists += [environment.get("dependencies"), environment.get("extra-dependencies")]
    for entries in lists:
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str) and (found := requirement(entry, _entry_line(text, entry))):
                yield found
    pixi = _table(data, "tool", "pixi")
    for part in (pixi, *_table(pixi, "feature").values()):
        for name in ("dependencies", "pypi-dependencies"):
            yield from _by_name(text, _table(part, name), caret=False)
    poetry = _table(data, "tool", "poetry")
    tables = [_table(poetry, "dependencies"), _table(poetry, "dev-dependencies")]
    tables += [_table(group, "dependencies") for group in _table(poetry, "group").values()]
    for table in tables:
        yield from _by_name(text, table, caret=True)
    python = project.get("requires-python")
    if isinstance(python, str):
        yield Stated("python", python, is_exact(python), _line(text, "requires-python"))


def pipfile(text: str) -> Iterator[Stated]:
    data = _toml(text)
    for section in ("packages", "dev-packages"):
        yield from _by_name(text, _table(data, section), caret=False)
    for name in ("python_version", "python_full_version"):
        version = _table(data, "requires").get(name)
        if isinstance(version, str):
            yield Stated("python", f"=={version}", name == "python_full_version", _line(text, name))


def _by_name(text: str, table: dict[str, Any], *, caret: bool) -> Iterator[Stated]:
    """`name = "^1.2"` or `name = {version = "1.2", ...}`. A bare version means that version to poetry."""
    for name, entry in table.items():
        value = entry[0] if isinstance(entry, list) and entry else entry  # one a platform: the first
        said = value.get("version", "") if isinstance(value, dict) else value
        pinned_source = isinstance(value, dict) and bool(value.get("rev") or value.get("tag"))
        if not isinstance(said, str):
            continue
        exact = is_exact(said) or (caret and bool(re.fullmatch(r"\d+(?:\.\d+)*", said)))
        yield Stated(
            canonicalize_name(name),
            "" if said == "*" else said,
            exact or pinned_source,
            _key_line(text, name),
        )


def toml_lock(text: str) -> Iterator[Stated]:
    """poetry.lock, uv.lock, pdm.lock: `[[package]]` with name and version; the project itself is left out."""
    lines = _lines_of(text, re.finditer(r'^name = "([^"]+)"', text, re.MULTILINE))
    packages = _toml(text).get("package")
    for package in packages if isinstance(packages, list) else ():
        known = _table(package)
        name, version = known.get("name"), known.get("version")
        is_itself = _table(known, "source").keys() & {"editable", "virtual"}
        if isinstance(name, str) and isinstance(version, str) and not is_itself:
            yield Stated(canonicalize_name(name), f"=={version}", True, lines.get(name, 1))


def pipfile_lock(text: str) -> Iterator[Stated]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"is not JSON: {error}") from None
    keys = re.finditer(r'^\s*"([^"\n]+)"\s*:\s*\{', text, re.MULTILINE)
    lines = _lines_of(text, keys)
    for section in ("default", "develop"):
        for name, entry in _table(data, section).items():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str):
                yield Stated(canonicalize_name(name), version, is_exact(version), lines.get(name, 1))


def setup_cfg(text: str) -> Iterator[Stated]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ManifestError(" ".join(str(error).split())) from None
    names = ("install_requires", "install-requires", "setup_requires", "tests_require")
    entries = [parser.get("options", name, fallback="") for name in names]
    if parser.has_section("options.extras_require"):
        entries += [value for _, value in parser.items("options.extras_require")]
    for line in "\n".join(entries).splitlines():
        if (line := line.split("#")[0].strip()) and (found := requirement(line, _entry_line(text, line))):
            yield found
    if python := parser.get("options", "python_requires", fallback="").strip():
        yield Stated("python", python, is_exact(python), _line(text, "python_requires"))


def setup_py(text: str) -> Iterator[Stated]:
    """The arguments of setup(), by the syntax tree; names of lists at the top level are followed, nothing is
    run."""
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise ManifestError(at or "is nested too deeply") from None
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "setup":
            for name, value in _arguments(node, values):
                if name in ("install_requires", "extras_require", "requires"):
                    yield from _strings(value, dict(values), 0)
                elif name == "python_requires" and isinstance(value, ast.Constant):
                    python = str(value.value)
                    yield Stated("python", python, is_exact(python), value.lineno)


def _arguments(call: ast.Call, values: dict[str, ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    """The keywords of a call, those of a `**table` included."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value
            continue
        table = values.get(keyword.value.id) if isinstance(keyword.value, ast.Name) else keyword.value
        if isinstance(table, ast.Dict):
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _strings(node: ast.expr | None, values: dict[str, ast.expr], depth: int) -> Iterator[Stated]:
    """The requirements in an expression. A name is followed once, so that lists of lists stay bounded."""
    if node is None or depth > 8:
        return
    match node:
        case ast.Constant(value=str(text)):
            for line in text.splitlines():
                if found := requirement(line.strip(), node.lineno):
                    yield found
        case ast.List(elts=inner) | ast.Tuple(elts=inner) | ast.Dict(values=inner):
            for element in inner:
                yield from _strings(element, values, depth + 1)
        case ast.BinOp(left=left, right=right):
            yield from _strings(left, values, depth + 1)
            yield from _strings(right, values, depth + 1)
        case ast.Name(id=name):
            yield from _strings(values.pop(name, None), values, depth + 1)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"is not TOML: {error}") from None


def _table(data: Any, *path: str) -> dict[str, Any]:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _lines_of(text: str, matches: Iterable[re.Match[str]]) -> dict[str, int]:
    """The line in which the name of each match ends; one pass, as locks have thousands of names."""
    lines, at, line = {}, 0, 1
    for match in matches:
        line, at = line + text.count("\n", at, match.end(1)), match.end(1)
        lines[match[1]] = line
    return lines


def _key_line(text: str, name: str) -> int:
    found = re.search(rf"""^\s*["']?{re.escape(name)}["']?\s*=""", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else _line(text, name)


def _entry_line(text: str, entry: str) -> int:
    """The line of an entry of a list: in quotes, or alone on its line or after a key."""
    words = re.escape(entry)
    pattern = re.compile(rf"""["']{words}["']|(?:^|=)[ \t]*{words}[ \t]*(?:#|$)""", re.MULTILINE)
    lists = _LISTS.search(text)
    found = pattern.search(text, lists.start() if lists else 0) or pattern.search(text)
    return text.count("\n", 0, found.end()) + 1 if found else _line(text, entry)


def _line(text: str, needle: str) -> int:
    """The line of the first occurrence; 1 where the file spells it otherwise."""
    at = text.find(needle)
    return 1 if at < 0 else text.count("\n", 0, at) + 1
