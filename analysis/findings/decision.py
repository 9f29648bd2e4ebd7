"""What a finding says of one workload, and how workloads are put together.

Each finding is one family over all workloads: its tests are corrected together, so that the chance of any
wrong "not supported" is at most ALPHA, and so is that of any wrong "supported".

    supported       over all: when it is supported for every workload
    mixed           when it is supported for some, and refuted by a corrected test for others
    not supported   when it is refuted for some, and supported for none
    inconclusive    else, with "supported for k of W workloads"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statsmodels.stats.multitest import multipletests

from analysis.results.model import Verdict

SAME_THREADS = "the thread count is the same in all conditions; only CPUs differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    why: str
    numbers: dict[str, Any] = field(default_factory=dict)


def open_(why: str, **numbers: Any) -> Decision:
    return Decision(verdict=Verdict.INCONCLUSIVE, why=why, numbers=numbers)


def together(each: Mapping[str, Decision]) -> Decision:
    """The decision over all workloads; that of the only one as it is."""
    if len(each) == 1:
        return next(iter(each.values()))
    named = {v: [workload for workload, d in each.items() if d.verdict is v] for v in Verdict}
    k, total = len(named[Verdict.SUPPORTED]), len(each)
    verdict = Verdict.INCONCLUSIVE
    if k == total:
        verdict = Verdict.SUPPORTED
    elif named[Verdict.NOT_SUPPORTED]:
        verdict = Verdict.MIXED if k else Verdict.NOT_SUPPORTED
    listed = "; ".join(f"{v}: {', '.join(workloads)}" for v, workloads in named.items() if workloads)
    why = f"supported for {k} of {total} workloads ({listed})"
    numbers = {v.value: len(named[v]) for v in Verdict if v is not Verdict.MIXED}
    return Decision(verdict=verdict, why=why, numbers=numbers)


def hochberg(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values of independent tests (Hochberg 1988): workloads share no run. All are below a level
    when the largest raw one is, as the claim that all hold at once demands (Berger 1982)."""
    if not p_values:
        return {}
    adjusted = multipletests(list(p_values.values()), method="simes-hochberg")[1]
    return dict(zip(p_values, map(float, adjusted), strict=True))
