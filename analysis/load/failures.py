"""Attempts that failed, by the kind of their error."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.plain_json import PlainJsonError, parse
from guest.records.printable import counted, is_name, printable
from guest.records.run import RunRecord, Variant

EVIDENCE = "error.json"
LONGEST_KIND = 80
VARIANTS = frozenset(Variant)
# Of the guest, the way to it, or the machine below: not of the training.
OUTSIDE = frozenset({"Contended", "DamagedRunError", "GuestError", "Lost", "ProtocolError"})


def evidence(folder: Path) -> dict[str, Any]:
    """What the folder of a failed attempt tells of it; empty where that cannot be read."""
    with contextlib.suppress(OSError, PlainJsonError):
        data = parse(read_bounded(folder / EVIDENCE, bounded.EVIDENCE))
        return data if isinstance(data, dict) else {}
    return {}


def error_kind(folder: Path) -> str:
    """`unknown` where it cannot be read, or no record takes it."""
    kind = evidence(folder).get("kind")
    shown = printable(kind, limit=LONGEST_KIND) if isinstance(kind, str) else "unknown"
    return shown if is_name(shown) else "unknown"


def failures(directory: Path, records: Iterable[RunRecord]) -> dict[str, Counter[str]]:
    """By condition, from the records of finished runs, which have the attempts of their own sweep, and the
    evidence in `failed/`. Of finished runs with fixed seeds the records count alone: what was mended since no
    longer fails. With free seeds each attempt had others, and those that finished are selected ones."""
    runs = {record.spec.run_id: Counter(record.failures) for record in records}
    left: dict[str, Counter[str]] = {}
    for folder in sorted((directory / "failed").glob("*/*/*/[0-9]*-*/")):
        set_id = folder.parent.relative_to(directory / "failed").as_posix()
        variant, run_id = set_id.split("/")[1], f"{set_id}/{folder.name.partition('-')[0]}"
        if variant in VARIANTS and (run_id not in runs or not Variant(variant).seeds_fixed):
            left.setdefault(run_id, Counter())[error_kind(folder)] += 1
    found: dict[str, Counter[str]] = {}
    for run_id in {**runs, **left}:
        if failed := runs.get(run_id, Counter()) | left.get(run_id, Counter()):  # both have the last sweep's
            found.setdefault(run_id.rpartition("/")[0], Counter()).update(failed)
    return found


def of_training(failed: Mapping[str, int]) -> int:
    """How many attempts the training itself may have ended."""
    return sum(n for kind, n in failed.items() if kind not in OUTSIDE)


def failures_text(failed: Mapping[str, int]) -> str:
    """`3 attempts failed (RuntimeError 2, Lost 1)`."""
    each = ", ".join(f"{kind} {n}" for kind, n in Counter(failed).most_common())
    return f"{counted(sum(failed.values()), 'attempt')} failed ({each})"
