"""Text of a guest on its way through rich, which reads square brackets as markup."""

from __future__ import annotations

from collections.abc import Callable

from rich.markup import escape

from guest.records.printable import printable

Say = Callable[[str], None]  # a line for the user


def plain(text: str, limit: int = 500) -> str:
    """One line of text for rich, in which nothing is markup."""
    return escape(printable(text, limit=limit))
