"""Reads what the hooks in a project's processes noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from guest.records import Override, ThreadSpec

MAX_OVERRIDES = 200  # of a program that does something else in each of thousands of processes
NOT_RUN = (
    "the start-up hook did not run (not Python, or started with -I, -E or -S): seeds and thread counts were "
    "given through the environment alone, and nothing that the program sets was noticed"
)
Notice = dict[str, Any]


def read(folder: Path) -> list[Notice]:
    """All notices, process by process. A line that was being written when its process was killed is left
    out."""
    return [notice for path in sorted(folder.glob("*.jsonl")) for notice in _lines(path)]


def _lines(path: Path) -> Iterator[Notice]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            notice = json.loads(line)
        except ValueError:
            continue
        if isinstance(notice, dict) and isinstance(notice.get("kind"), str):
            yield notice


def overrides(notices: Sequence[Notice]) -> tuple[Override, ...]:
    """Equal ones together, in the order of their first appearance."""
    counts: dict[tuple[str, str, str], int] = {}
    for notice in notices:
        if notice["kind"] == "override":
            key = (str(notice.get("what")), str(notice.get("value"))[:200], str(notice.get("where")))
            counts[key] = counts.get(key, 0) + 1
    found = [Override(what=a, value=b, where=c, times=n) for (a, b, c), n in counts.items()]
    return tuple(found[:MAX_OVERRIDES])


def in_force(notices: Sequence[Notice]) -> dict[str, Any]:
    """What the first process of the project, or else the first that ended by itself, said in its end."""
    ends = [notice for notice in notices if notice["kind"] == "end"]
    told = next((end for end in ends if "torch" in end or "tensorflow" in end), ends[0] if ends else {})
    return {key: value for key, value in told.items() if key != "kind"}


def remarks(notices: Sequence[Notice], asked: ThreadSpec) -> list[str]:
    """What a reader should know: hooks that did not run, thread counts that are not those asked for."""
    if not any(notice["kind"] == "start" for notice in notices):
        return [NOT_RUN]
    found = [f"the hook: {notice.get('what')}" for notice in notices if notice["kind"] == "trouble"]
    seen = in_force(notices)
    for library in ("torch", "tensorflow"):
        for knob, wanted in (("intra_op", asked.intra_op), ("inter_op", asked.inter_op)):
            count = seen.get(library, {}).get(knob, wanted)
            if count != wanted:
                found.append(f"{library} ended with {knob} = {count}, the study asked for {wanted}")
    return found
