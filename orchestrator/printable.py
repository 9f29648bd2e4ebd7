"""Text of a guest on its way to a terminal. What a guest says is shown, never obeyed: neither by the
terminal (escape sequences) nor by rich (markup), and not reordered by signs that turn the direction."""

from __future__ import annotations

import unicodedata

from rich.markup import escape

# Control characters, signs without a glyph (among them those that turn the direction), halves of pairs.
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str, *, lines: bool = False, limit: int | None = None) -> str:
    """The text with `?` for what would not be shown; at most `limit` characters of it. With `lines`, ends of
    lines and tabs stay."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c in kept or unicodedata.category(c) not in HIDDEN else "?" for c in text)


def plain(text: str, limit: int = 500) -> str:
    """One line of text for rich, in which nothing is markup."""
    return escape(printable(text, limit=limit))
