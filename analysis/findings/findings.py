"""Findings F1-F5 of the reference study (Xiao et al., ISSRE 2021), decided from this study's tables. F6 is of
scanned projects: `analysis.scan.requirements.shares`. Each rule answers for all workloads, for their tests
are one family; `analysis.findings.decision` puts the answers together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from analysis.findings.bits import first_steps, fixed_seeds
from analysis.findings.decision import Decision, together
from analysis.findings.performance import free_seeds, model_selection, more_threads
from analysis.load.study import StudyData
from analysis.results.model import Finding, Table


def decide(study: StudyData, tables: dict[str, Table]) -> tuple[Finding, ...]:
    """Every finding over all workloads (`workload` empty), each followed by one a workload."""
    found: list[Finding] = []
    for name, (statement, table, rule) in RULES.items():
        each = rule(study, tables)
        found += [
            Finding(id=name, workload=workload, statement=statement, table=table, **asdict(one))
            for workload, one in {"": together(each), **each}.items()
        ]
    return tuple(found)


Rule = Callable[[StudyData, dict[str, Table]], dict[str, Decision]]
RULES: dict[str, tuple[str, str, Rule]] = {
    "F1": ("With free seeds, thread counts are equivalent within the margin", "tests", free_seeds),
    "F2": (
        "With fixed seeds, models are identical within a thread count and differ across thread counts",
        "verdicts",
        fixed_seeds,
    ),
    "F3": (
        "The difference starts as rounding in the first steps, then accumulates",
        "distance",
        first_steps,
    ),
    "F4": ("Model selection narrows the difference across thread counts", "max_difference", model_selection),
    "F5": ("More threads are not faster", "time", more_threads),
}
