"""Reads the notices of the hooks in a project's processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from guest.records.printable import counted
from guest.records.run import Framework, Override, ThreadSpec

MAX_OVERRIDES = 200  # a program may set other values in each of thousands of processes
NOT_RUN = (
    "the start-up hook did not run (not Python, or started with -I, -E or -S): seeds and thread counts were "
    "set through the environment alone, and the program's own settings were not seen"
)
Notice = dict[str, Any]


def read(folder: Path) -> list[Notice]:
    """All notices, process by process in the order of their numbers. A line that was being written when its
    process was killed is left out."""
    return [notice for path in sorted(folder.glob("*.jsonl"), key=_number) for notice in _lines(path)]


def _number(path: Path) -> tuple[int, str]:
    """As text, 1003 would come before 998."""
    return int(path.stem) if path.stem.isdecimal() else 0, path.stem


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
    """The last settings of the first process with a framework, else of the first that ended normally."""
    ends = [notice for notice in notices if notice["kind"] == "end"]
    last = next((end for end in ends if any(each in end for each in Framework)), ends[0] if ends else {})
    return {key: value for key, value in last.items() if key != "kind"}


def intra_op(notices: Sequence[Notice]) -> tuple[int, ...]:
    """The threads that an operation had at the end, of each framework that the program used."""
    seen = in_force(notices)
    return tuple(seen[each]["intra_op"] for each in Framework if "intra_op" in seen.get(each, {}))


def remarks(notices: Sequence[Notice], asked: ThreadSpec) -> list[str]:
    """Notes for the user: hooks that did not run, thread counts other than those requested."""
    if not any(notice["kind"] == "start" for notice in notices):
        return [NOT_RUN]
    return [
        *(f"the hook: {notice.get('what')}" for notice in notices if notice["kind"] == "trouble"),
        *own_threads(notices, asked),
    ]


def own_threads(notices: Sequence[Notice], asked: ThreadSpec) -> list[str]:
    """That a program computed with other thread counts than those requested."""
    found, seen = [], in_force(notices)
    for library in Framework:
        for setting, requested in (("intra_op", asked.intra_op), ("inter_op", asked.inter_op)):
            count = seen.get(library, {}).get(setting, requested)
            if count != requested:
                threads = counted(count, f"{setting.replace('_', '-')} thread")
                found.append(
                    f"{library} ended with {threads}, not {requested}: the program sets its own count"
                )
    return found
