"""Says what is wrong in a study file: file, line, key, value, what is allowed, the nearest spelling."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from guest.records.printable import printable


def explain(error: Any, tables: Mapping[str, type[BaseModel]], data: Any, text: str, source: str) -> str:
    """One line for one of pydantic's errors. `tables` are the models by where pydantic finds them; those in a
    table whose keys are names are found as that table. `data` was parsed from `text`."""
    location, value = _keys(error, data), error["input"]
    if error["type"] == "union_tag_invalid":
        location, value = [*location, "kind"], error["ctx"]["tag"]
    line = line_of(text, location or _named(_message(error, value), data))
    where = f"{source}:{line}" if line else source
    key = _dotted(location)
    if error["type"] == "missing":
        return f"{where}: {key}: is missing"
    if error["type"] == "extra_forbidden":
        path = tuple(part for part in error["loc"][:-1] if isinstance(part, str))
        allowed = sorted((tables.get(".".join(path)) or tables[".".join(path[:-1])]).model_fields)
        unknown = f"{where}: {key}: unknown key; allowed are {', '.join(allowed)}"
        return unknown + did_you_mean(str(location[-1]), allowed)
    message = _message(error, value)
    if not key:
        return f"{where}: {message}"
    if isinstance(value, dict):
        return f"{where}: {key}: {message}"
    return f"{where}: {key} = {_shown(value)}: {message}"


def _named(message: str, data: Any) -> list[Any]:
    """Where the error of a whole study is: at the key that its text begins with, or the workload that it
    names."""
    if key := re.match(r"\[?([a-z_]+(?:\.[a-z_]+)*)\]? (?:= |sets )", message):
        return list(key[1].split("."))
    if name := re.search(r"workload(?:s are named)? '([^']+)'", message):
        found = [index for index, each in enumerate(data["workload"]) if each.get("name") == name[1]]
        return ["workload", found[-1]] if found else []
    return []


def _keys(error: Any, data: Any) -> list[Any]:
    """Where the error is in the file. pydantic puts kinds of tables and arms of unions between the keys."""
    location = []
    for part in error["loc"]:
        known = range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()
        if part in known:
            location.append(printable(part, limit=80) if isinstance(part, str) else part)
            data = data[part]
    if error["type"] == "missing":
        location.append(error["loc"][-1])
    return location


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """`; did you mean 'digits'?`, or nothing when no spelling is near."""
    near = difflib.get_close_matches(str(value), list(allowed), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def line_of(text: str, location: list[Any]) -> int:
    """The line a key stands on, counted from 1; its table's line when the key stands nowhere, and 0
    when neither does. (tomllib keeps no positions; this reads the usual layout, `[table]` headers
    and `key =` lines, and falls back to the table for anything else.)"""
    keys = [part for part in location if isinstance(part, str)]
    wanted_index = next((part for part in location if isinstance(part, int)), 0)
    counts: dict[str, int] = {}
    table, several, index, fallback, depth = "", "", 0, 0, 0
    repeated = False  # whether this is in one of several [[table]]s
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[?\s*([\w.-]+)\s*\]", line)
        name = re.match(r"\s*[\"']?([\w-]+)[\"']?\s*[.=]", line)
        if header:
            table = header[1]
            here = table.split(".")
            if line.lstrip().startswith("[["):
                index, several = counts.get(table, -1) + 1, table
                counts[table] = index
            # [workload.metrics] belongs to the [[workload]] above it.
            repeated = bool(several) and (table == several or table.startswith(several + "."))
        elif name:
            here = [*filter(None, table.split(".")), name[1]]
        else:
            continue
        if here == keys[: len(here)] and (not repeated or index == wanted_index):
            if here == keys and name:
                return number
            if len(here) > depth:
                fallback, depth = number, len(here)
    return fallback


def _message(error: Any, value: object) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] in ("enum", "literal_error", "union_tag_invalid"):
        named = error["ctx"].get("expected", error["ctx"].get("expected_tags"))
        allowed = re.findall(r"'([^']*)'", str(named))
        return f"allowed are {', '.join(allowed)}" + did_you_mean(value, allowed)
    if error["type"] == "string_pattern_mismatch":
        return "letters, digits, '.', '_' and '-' only, a letter or digit first, 64 at most"
    if error["type"] == "tuple_type":
        if error["loc"][-1] == "workload":
            return "write [[workload]], in double brackets, and its keys below it"
        if isinstance(value, dict):
            return "write a list"
        words = [word if word.isdecimal() else json.dumps(word) for word in re.split(r"[\s,]+", str(value))]
        return f"write a list, as [{', '.join(words)}]"
    return message[:1].lower() + message[1:]


def _shown(value: Any) -> str:
    """Without what stands before the `@` of a URL, which may be a password."""
    text = re.sub(r"://[^/\s]*@", "://...@", repr(list(value) if isinstance(value, tuple) else value))
    return text if len(text) <= 80 else text[:77] + "..."


def _dotted(location: list[Any]) -> str:
    """`workload[1].dataset`; entries are counted from 0."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).removeprefix(".")
