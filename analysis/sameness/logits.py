"""How far logits lie apart with equal seeds, within thread counts and across them: the measures of
Shanmugavelu et al. 2024, section 3. Their files are read again, one a distinct result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.predictions import read_logits
from analysis.load.study import StudyData, View, by_seeds, by_threads
from analysis.results.model import ACROSS
from analysis.stats import numerics, statistics

MOST = 8  # distinct results of a set that are read
MEASURES = ("vc", "vermv", "vs", "kl", "ulp", "ulp_most")


def logit_rows(study: StudyData) -> Iterator[dict[str, Any]]:
    """Vc, Vermv, Vs, KL and ULPs of the final logits against the first run of the seed: of every set, against
    its own; and across thread counts, of all runs on others than the lowest against the one there."""
    for head, view, runs in study.by_view():
        if not runs.seeds_fixed.all() or runs.threads.nunique() < 2:
            continue
        for scope, mine in (by_threads(runs) | {ACROSS: runs}).items():
            first = mine.drop_duplicates("seeds_used")
            lowest = mine.seeds_used.map(first.set_index("seeds_used").threads)
            others = mine[mine.threads != lowest] if scope == ACROSS else mine.drop(first.index)
            if len(others):
                yield head | {"scope": scope} | _compared(study, view, first, others)


def _compared(study: StudyData, view: View, first: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    references = first.set_index("seeds_used")
    hashes, parts = runs[view.sha256("logits")], by_seeds(runs)
    row: dict[str, Any] = {"logits_distinct": hashes.nunique(), "logits_read": 0, "logits": None}
    row |= {f"{name}{end}": None for name in MEASURES for end in ("", "_low", "_high")} | {"remark": ""}
    try:
        found = [
            _of_seed(study, view, references.loc[part.seeds_used.iloc[0]], part, max(1, MOST // len(parts)))
            for part in parts
        ]
    except (ValueError, OSError) as error:
        return row | {"remark": f"not measured: {error}"}
    read = sum(each.runs for each in found)
    row |= {"logits": found[0].size, "logits_read": read}
    for name in MEASURES:
        # Runs of equal logits are one observation, and so are those of one of several seeds.
        each = [[value for one in seed.distinct if (value := one[name]) is not None] for seed in found]
        values = each[0] if len(each) == 1 else [float(np.mean(seed)) for seed in each if seed]
        copies = len(each) == 1 and len(found[0].distinct) == 1 < read and len(values) > 0
        mean = statistics.mean(
            values, within=statistics.PROPORTION if name == "vc" else statistics.NOT_NEGATIVE
        )
        row |= (statistics.exactly(values[0], read) if copies else mean).cells(name)
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seed:
    """Of the runs of one seed that were read: how many, and the measures of each distinct result."""

    runs: int
    size: int
    distinct: list[dict[str, float | None]]


def _of_seed(study: StudyData, view: View, reference: pd.Series, runs: pd.DataFrame, most: int) -> _Seed:
    base = read_logits(study, view, reference.run_id, reference.predictions_file_sha256)
    hashes = runs[view.sha256("logits")]
    kept = runs[hashes.isin(hashes.unique()[:most])]
    each = [
        read_logits(study, view, run["run_id"], run["predictions_file_sha256"])
        for run in kept.drop_duplicates(view.sha256("logits")).to_dict("records")
    ]
    return _Seed(runs=len(kept), size=base.size, distinct=[measures(base, mine) for mine in each])


def measures(a: np.ndarray, b: np.ndarray) -> dict[str, float | None]:
    """By name; `a` is the reference. Raises ValueError for different shapes and for what is not finite."""
    some = a != 0
    vs = 1 - np.abs(b[some].astype(np.float64) / a[some])
    ulps = numerics.ulp_distance(a, b)
    differing = ulps[ulps > 0]
    return {
        "vc": numerics.vc(a, b),
        "vermv": numerics.vermv(a, b),
        "vs": float(np.abs(vs).max()) if len(vs) else None,
        "kl": numerics.kl_to_gaussian(vs),
        "ulp": float(np.median(differing)) if len(differing) else 0.0,
        "ulp_most": float(differing.max()) if len(differing) else 0.0,
    }
