"""Text of a guest, made fit to be shown: what a guest says is read by people, never obeyed by a terminal
(escape sequences), nor reordered by signs that turn the direction of writing."""

from __future__ import annotations

import shlex
import sys
import unicodedata
from collections.abc import Sequence

# Control characters, signs without a glyph (among them those that turn the direction), halves of pairs.
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
LONGEST_NAME = 200  # bytes: with what is added, it names files too


def counted(number: int, what: str) -> str:
    """`1 thread`, `4 threads`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def pip_install(*packages: str, python: str = sys.executable) -> str:
    """The line that installs packages into the interpreter that lacks them, whatever `pip` belongs to."""
    return shlex.join([python, "-m", "pip", "install", *packages])


def last_line(text: str) -> str:
    """The last line that is not empty; "" where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def unaccented(text: str) -> str:
    """`über` as `uber`, for names of letters that any file system has."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def series(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def is_name(text: str) -> bool:
    """Whether a table can show it as the name of something."""
    return text.isprintable() and len(text.encode()) <= LONGEST_NAME


def printable(text: str, *, lines: bool = False, limit: int | None = None) -> str:
    """The text with `?` for what would not be shown; at most `limit` characters of it. With `lines`, ends of
    lines and tabs stay."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c in kept or unicodedata.category(c) not in HIDDEN else "?" for c in text)
