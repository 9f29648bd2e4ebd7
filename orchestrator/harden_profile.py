"""Which operations of a workload vary with the thread count, from the traces that a study holds. Only what is
needed of a trace is read: its workload, the operations at which it parted, and those that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from guest.harden_records import Profile
from guest.records import WorkloadSpec, digest, to_json

TRACES = "trace/*/trace.json"


def profile(directory: Path, workload: WorkloadSpec) -> Profile | None:
    """Of all traces of this very training; None where there is none. A trace that is damaged says nothing."""
    varying: dict[str, None] = {}
    unknown: dict[str, None] = {}
    traces = []
    for path in sorted(directory.glob(TRACES)):
        trace = _read(path)
        if trace is None or trace.get("workload") != to_json(workload):
            continue
        traces.append(path.parent.name)
        varying |= dict.fromkeys(origin["op"] for origin in trace["origins"])
        unknown |= dict.fromkeys(trace["unknown"])
    if not traces:
        return None
    return Profile(traces=tuple(traces), varying=tuple(varying), unknown=tuple(unknown))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.pop("record_sha256", None) != digest(data):
        return None
    return data
