"""From the bytes of a file to text that can be parsed: encodings, byte order marks, notebooks.

Nothing here raises for bad input: what cannot be read is said in words."""

from __future__ import annotations

import ast
import codecs
import io
import json
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

BOMS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_MAGIC = re.compile(r"^(\s*)(?:[%!?]|\w[\w.]*\?{1,2}\s*$)")
_MAGIC_VALUE = re.compile(r"^(\s*\w[\w, ]*=\s*)[!%].*$")
_TEXT_OR_COMMENT = re.compile(r"(\"{3}|'{3}).*?(?:\1|\Z)|([\"'])(?:\\.|(?!\2)[^\\\n])*\2?|#[^\n]*", re.DOTALL)
_FOREIGN_CELL = re.compile(r"^\s*%%(?!time\b|timeit\b|capture\b|prun\b|python3?\b)")


class UnreadableError(ValueError):
    """The text says why."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One piece of Python: a file as a whole (number 0), or a cell of a notebook."""

    number: int
    text: str


def decode(data: bytes) -> str:
    """The text; what is not UTF-8 is read as Latin-1. For prose and lists, not for Python."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def decode_python(data: bytes) -> tuple[str, str]:
    """The text of a Python file, by its byte order mark or its coding line (PEP 263), and a remark where
    what it says is wrong. Raises UnreadableError for what is no text."""
    for mark, encoding in BOMS:
        if data.startswith(mark) and encoding != "utf-8-sig":
            try:
                return data.decode(
                    encoding
                ), f"is encoded in {encoding.upper()}, which Python itself does not read"
            except UnicodeDecodeError:
                raise UnreadableError(
                    f"starts like {encoding.upper()}, but is not; convert it to UTF-8"
                ) from None
    if b"\0" in data:
        raise UnreadableError("contains null bytes: not a text; left out")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), ""
    except SyntaxError as error:  # an unknown coding, or none and not UTF-8
        return data.decode("latin-1"), f"{error.msg or 'has a wrong coding line'}; read as Latin-1"
    except (UnicodeError, LookupError):  # "undefined" is an encoding whose error has no position
        return data.decode("latin-1"), f"is not {encoding.upper()}, as it should be; read as Latin-1"


def notebook_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook, numbered among all cells. Magics become blanks of the same length in
    lines. Raises UnreadableError."""
    try:
        notebook = json.loads(decode(data))
    except (ValueError, RecursionError):
        raise UnreadableError("is not JSON, so not a notebook; left out") from None
    cells = None
    match notebook:
        case {"cells": cells} if cells is not None:
            pass
        case {"worksheets": [{"cells": cells}, *_]}:  # format 3
            pass
    if not isinstance(cells, list):
        raise UnreadableError("has no cells, so it is not a notebook; left out")
    if language := _other_language(notebook.get("metadata")):
        raise UnreadableError(f"is a notebook of {language:.40}; left out")
    found = []
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        if isinstance(source, str) and not _FOREIGN_CELL.match(source):
            found.append(Cell(number, "\n".join(_without_magics(source))))
    return found


def _other_language(metadata: object) -> str:
    """The language of a notebook where it states one, and not Python or what extends it."""
    table = metadata if isinstance(metadata, dict) else {}
    found = [
        part[key]
        for name, key in (("kernelspec", "language"), ("language_info", "name"))
        if isinstance(part := table.get(name), dict) and isinstance(part.get(key), str) and part[key].strip()
    ]
    return "" if any(re.search("py|sage|sos", each, re.IGNORECASE) for each in found) else "".join(found[:1])


def _without_magics(source: str) -> Iterator[str]:
    """The lines, empty where a magic goes on from the line before. Within brackets none begins: `% loss` is
    an operator there."""
    goes_on, depth = False, 0
    code = _TEXT_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source)
    for line, words in zip(source.split("\n"), code.split("\n"), strict=True):
        kept = line if depth else "" if goes_on else _without_magic(line)
        goes_on = kept != line and line.endswith("\\")
        if kept == line:
            depth = max(0, depth + sum(map(words.count, "([{")) - sum(map(words.count, ")]}")))
        yield kept


def _without_magic(line: str) -> str:
    if value := _MAGIC_VALUE.match(line):
        return f"{value[1]}None"
    magic = _MAGIC.match(line)
    return f"{magic[1]}pass" if magic else line


def parsed(text: str) -> ast.Module:
    """The syntax tree, without the warnings that are about their code: invalid escapes and the like. Raises
    what ast.parse does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def comments(text: str) -> list[tuple[int, str]]:
    """The comments, each with its line, from 1. In a text that is no Python, all that follows a # is one."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError, ValueError):
        lines = enumerate(text.split("\n"), start=1)
        return [(number, line[line.index("#") :]) for number, line in lines if "#" in line]


_F_STRING = re.compile(r"(?<![\w\"'])(?:[fF][rR]?|[rR][fF])(?:\"(?!\"\")|'(?!''))")


_TYPE_PARAMETERS = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class|type)[ \t]+\w+[ \t]*(?=\[)", re.MULTILINE)
_TYPE = re.compile(r"^([ \t]*)type([ \t]+)(\w+)(?=[ \t]*=[^=])", re.MULTILINE)


def as_older_python(text: str) -> str:
    """What Python has since 3.12 as older ones read it: f-strings, type parameters (`class Box[T]:` as
    `class Box   :`) and `type Rows = list` as `Rows      = list`. What follows keeps its place."""
    found = list(_plain_f_strings(text))
    at = 0
    while match := _TYPE_PARAMETERS.search(text, at):
        depth, at = 0, match.end()
        while at < len(text):
            depth += {"[": 1, "]": -1}.get(text[at], 0)
            if text[at] == "\n":
                found[at - 1] = "\\"  # the statement goes on in the next line
            else:
                found[at] = " "
            at += 1
            if not depth:
                break
    return _TYPE.sub(r"\1\3    \2", "".join(found))


def _plain_f_strings(text: str) -> str:
    """`f"{x["a"]}"` as `f"{x['a']}"`, and without backslashes in braces."""
    found = list(text)
    at = 0
    while match := _F_STRING.search(text, at):
        quote, depth, at = text[match.end() - 1], 0, match.end()
        while at < len(text) and (depth or text[at] not in (quote, "\n")):
            if not depth and text[at : at + 2] in ("{{", "}}"):
                at += 1
            elif text[at] in "{}":
                depth = max(0, depth + (1 if text[at] == "{" else -1))
            elif text[at] == quote:
                found[at] = "'" if quote == '"' else '"'
            elif text[at] == "\\" and depth:
                found[at] = "_"
            at += 1
        at += 1
    return "".join(found)
