"""Text on its way to the user: of a guest through rich, which reads square brackets as markup; durations."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.markup import escape

from guest.records.printable import printable

Say = Callable[[str], None]  # a line for the user


def plain(text: str, limit: int = 500) -> str:
    """One line of text for rich, in which nothing is markup."""
    return escape(printable(text, limit=limit))


def duration(seconds: float | None) -> str:
    """`1 h 03 min`, `4 min`, `12 s`; `?` when it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 90 else f"{minutes} min"
