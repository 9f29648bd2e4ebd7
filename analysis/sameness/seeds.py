"""Runs of several fixed seeds: each is compared with those of its seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.stats import statistics

SEEDS_NOTE = (
    "With several fixed seeds only runs of one seed are compared, and the means are over so many seeds, with "
    "Hall's interval over them."
)


def over_seeds(
    parts: Sequence[dict[str, Any]], measures: Mapping[str, tuple[str | None, float]], counted: Sequence[str]
) -> dict[str, Any]:
    """One row for those of the single seeds: what is `counted` is added up, and of `measures` (with the names
    of their bounds, and the most they can be) the seeds have a mean: seeds are independent, the pairs of one
    are not."""
    row = parts[0] | {"seeds": len(parts)}
    if len(parts) == 1:
        return row
    row |= {name: sum(part[name] for part in parts) for name in counted}
    for name, (bounds, most) in measures.items():
        values = [part[name] for part in parts if part[name] is not None]
        row |= statistics.mean(values, within=(0.0, most)).cells(name, bounds)
    return row
