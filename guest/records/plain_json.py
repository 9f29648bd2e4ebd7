"""JSON from the other side, within limits: whoever sent it cannot make its reader fail in another way than
with PlainJsonError, nor anything that is later made of what it read.

Python's own reader gives RecursionError for deep nesting, takes integers of any length (which no float
holds) and halves of surrogate pairs (which no file takes)."""

from __future__ import annotations

import json
from typing import Any

from guest.records.bounded import MESSAGE, Limit

MAX_INTEGER = 2**64


class PlainJsonError(ValueError):
    """Not JSON, or beyond the limits; the text says what."""


def parse(text: str | bytes, limit: Limit = MESSAGE) -> Any:
    """The value. NaN and infinities are numbers here: a loss may be one. Raises PlainJsonError."""
    if len(text) > limit.bytes:
        raise PlainJsonError(f"larger than {limit.bytes} bytes")
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        items = sum(map(text.count, ",[{"))  # no fewer than there are
        data = json.loads(text) if items <= limit.items else None
    except RecursionError:
        raise PlainJsonError(f"nested deeper than {limit.depth}") from None
    except ValueError as error:
        raise PlainJsonError(f"not JSON: {error}") from None
    if items > limit.items:
        raise PlainJsonError(f"more than {limit.items} items")
    _check(data, limit.depth)
    return data


def _check(data: Any, depth: int) -> None:
    """Goes through all values without recursion."""
    level = [data]
    for _ in range(depth):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_text(value)
            elif isinstance(value, int):
                if not -MAX_INTEGER < value < MAX_INTEGER:
                    raise PlainJsonError("an integer beyond 64 bits")
            elif isinstance(value, list):
                below += value
            elif isinstance(value, dict):
                below += value.keys()
                below += value.values()
        if not below:
            return
        level = below
    raise PlainJsonError(f"nested deeper than {depth}")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlainJsonError("half of a surrogate pair in a text") from None
