"""What exact mode knows of ATen's operations, from `operations.toml`: which are computed by an arithmetic of
our own, which are cut in pieces and how, which by one thread, and which depend on no thread count as they
are."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Literal

_TABLES = tomllib.loads(resources.files("vbstudy.exact").joinpath("operations.toml").read_text("utf-8"))

PIECES: dict[str, str] = _TABLES["pieces"]
MACHINE: dict[str, str] = _TABLES["machine"]
_NAMES: dict[str, str] = _TABLES["names"]
FUNCTIONS = frozenset(_NAMES["functions"].split())
ELEMENTWISE = frozenset(_NAMES["elementwise"].split())
SINGLE_STEPS = frozenset(_NAMES["single_steps"].split())
INVARIANT = frozenset(_NAMES["invariant"].split())
COMPOSED = frozenset(_NAMES["composed"].split())
SMALL = frozenset(_NAMES["small"].split())
ARITHMETIC = frozenset(_NAMES["arithmetic"].split())
SHARES = frozenset(_NAMES["shares"].split())
EXTREMES = frozenset(_NAMES["extremes"].split())
IN_ORDER = frozenset(_NAMES["in_order"].split())
BY_ARGUMENTS = frozenset(_NAMES["by_arguments"].split())
ONE_THREAD = frozenset(_NAMES["one_thread"].split())
Level = Literal["machine", "threads"]
ARITHMETIC_VERSION = 1  # the version of `docs/arithmetic.md`: a change of any bit is another one


def base(name: str) -> str:
    """`aten::add_.Tensor` and `add_.Tensor` are `add`; `__and__.Tensor` is `__and__`."""
    short = name.rpartition("::")[2].partition(".")[0]
    return short if short.startswith("__") else short.rstrip("_")


def level(name: str) -> Level | None:
    """At which level the ATen operation is for float32, in any overload; nothing where it is not known. At
    level machine are those of our own, and those whose every element is rounded once, or copied."""
    if base(name) in AT_MACHINE:
        return "machine"
    return "threads" if base(name) in AT_THREADS else None


def below(counts: Mapping[str, tuple[int, int]], asked: Level) -> dict[str, int]:
    """How often operations were computed below the level, or without being known, by their names. `counts`:
    of the calls by our own arithmetic, and of all others."""
    found: dict[str, int] = {}
    for full, (_, otherwise) in counts.items():
        name = base(full)
        left = name in _OWN | BY_ARGUMENTS  # with arguments that are not at level machine
        at = "threads" if left else level(full)
        if otherwise and (at is None or (asked == "machine" and at == "threads")):
            found[name] = found.get(name, 0) + otherwise
    return found


def ways(registered: Iterable[str]) -> dict[str, str]:
    """How each operation is computed that is not left as it is, by name and overload without `aten::`.
    `registered` are the names of all that have a kernel of their own for CPUs, with `aten::`."""
    found: dict[str, str] = {}
    for full in sorted(registered):
        namespace, _, name = full.partition("::")
        stem, _, overload = name.partition(".")
        if namespace != "aten":
            continue
        into = "out" in overload or overload == "grad_input"
        suffix = "_out" if into else "_in_place" if stem.endswith("_") else ""
        if {base(name), f"{base(name)}.{overload.removesuffix('_out')}"} & SHARES:
            found[name] = "shares"
        elif base(name) in SMALL:
            found[name] = "small"
        elif base(name) in ARITHMETIC:
            found[name] = "arithmetic" + suffix
        elif base(name) in EXTREMES:
            found[name] = "extreme"
        elif base(name) in INVARIANT | COMPOSED:
            continue
        elif base(name) not in ELEMENTWISE or into:
            found[name] = "one thread"
        else:
            found[name] = "elementwise" + suffix
    return found | PIECES


def own(registered: Iterable[str]) -> dict[str, str]:
    """What is computed at level machine by an arithmetic of our own, and how, by name and overload."""
    names = (full.removeprefix("aten::") for full in sorted(registered) if full.startswith("aten::"))
    return {name: "function" for name in names if base(name) in FUNCTIONS} | MACHINE


_OWN = FUNCTIONS | {base(name) for name in MACHINE}
AT_MACHINE = _OWN | SINGLE_STEPS | INVARIANT | COMPOSED | IN_ORDER
AT_THREADS = (ONE_THREAD | ELEMENTWISE | {base(name) for name in PIECES}) - AT_MACHINE
