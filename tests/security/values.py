"""What a hostile guest or archive may write where a number, a text or an object is expected."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

HOSTILE_TEXTS = st.sampled_from(
    [
        "",
        "\x1b[2J\x1b]0;owned\x07",
        "[/red]",
        "[link=https://x.invalid]",
        "../../../etc/passwd",
        "/etc/passwd",
        "a\x00b",
        "\ud800",
        "\u202egnp.exe",
        "nan",
        "__class__",
        "x" * 5000,
        "\r\n",
    ]
)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 2**63, 2**64, -1, 0, float("nan"), float("inf"), True]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20), HOSTILE_TEXTS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | HOSTILE_TEXTS, inner),
    max_leaves=12,
)


def deep(levels: int) -> Any:
    """A list in a list, that many times."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES = st.one_of(JSON, st.sampled_from([31, 40, 400]).map(deep))


def paths(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the whole included."""
    found = [here]
    if len(here) > 6:
        return found  # deep enough
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += paths(value, (*here, key))
    return found


@st.composite
def mutated(draw: Any, whole: Any) -> Any:
    """A valid value with up to three places replaced, removed or added to."""
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(paths(data)))
        if not place:
            return draw(VALUES) if draw(st.booleans()) else data
        inside = data
        for key in place[:-1]:
            inside = inside[key]
        what = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if what == "remove":
            del inside[place[-1]]
        elif what == "add" and isinstance(inside, dict):
            inside[draw(st.text(max_size=8) | HOSTILE_TEXTS)] = draw(VALUES)
        else:
            inside[place[-1]] = draw(VALUES)
    return data


def line(data: Any) -> bytes:
    """As a guest would send it; halves of surrogate pairs escaped, as JSON allows."""
    return json.dumps(data).encode() + b"\n"
