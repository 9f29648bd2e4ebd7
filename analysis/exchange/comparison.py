"""Imported runs compared by thread count: metrics, losses, predictions.
Their weights were never seen, so there is no bitwise verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from analysis.exchange.imported import Import, ImportedRun
from analysis.load.runs import number
from analysis.results.model import ALPHA, Kind, Table, col, cols, count, counts, interval
from analysis.stats import metrics, statistics
from analysis.stats.ranks import brunner_munzel
from analysis.stats.statistics import Estimate

Family = tuple[str, str, str]  # import, workload, variant
WHERE = cols("import", "workload", "variant")


def imported_tables(imports: Sequence[Import]) -> dict[str, Table]:
    """The tables of all imports; none where there are none."""
    if not imports:
        return {}
    families: dict[Family, dict[int, list[ImportedRun]]] = {}
    for each in imports:
        for run in each.runs:
            family = families.setdefault((each.name, run.workload, run.variant), {})
            family.setdefault(run.threads, []).append(run)
    tables = (_sets(families), _tests(families), _churn(families))
    return {table.name: table for table in tables}


def _head(family: Family) -> dict[str, Any]:
    return dict(zip(("import", "workload", "variant"), family, strict=True))


def _names(sets: dict[int, list[ImportedRun]]) -> list[str]:
    """Metrics of any run, and its time, in order."""
    runs = [run for threads in sorted(sets) for run in sets[threads]]
    timed = ["wall_s"] if any(run.wall_s is not None for run in runs) else []
    return [*dict.fromkeys(name for run in runs for name in run.metrics), *timed]


def _values(runs: Sequence[ImportedRun], name: str) -> np.ndarray:
    values = [run.wall_s if name == "wall_s" else run.metrics.get(name) for run in runs]
    return np.array([number(value) for value in values if value is not None], dtype=float)


def _observed(runs: Sequence[ImportedRun], name: str) -> np.ndarray:
    """The values that are compared. Runs that all gave one value may be copies of one, and so count once, as
    copies do in a study."""
    values = _values(runs, name)
    return values[:1] if statistics.is_constant(values) else values


def _distinct(found: Estimate, values: np.ndarray, needed: int) -> Estimate:
    """Without an interval where too few values are distinct, as some may be of copies."""
    return found if len(np.unique(values)) >= needed else dataclasses.replace(found, low=None, high=None)


def _sets(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        for threads in sorted(sets):
            for name in _names(sets):
                values = _values(sets[threads], name)
                mean = _distinct(statistics.mean(values), values, statistics.MEAN_FROM)
                sd = _distinct(statistics.sd(values), values, statistics.SD_FROM)
                row = _head(family) | {"threads": threads, "metric": name, "n": mean.n}
                row |= mean.cells("mean") | sd.cells("sd")
                row |= {"min": values.min() if len(values) else None}
                row |= {"max": values.max() if len(values) else None}
                rows.append(row | {"values": len(np.unique(values))})
    return Table.of(
        rows,
        *WHERE,
        count("threads"),
        col("metric"),
        count("n"),
        interval("mean", kind=Kind.METRIC),
        interval("sd", "SD"),
        *cols("min", "max", kind=Kind.METRIC),
        count("values"),
        name="imported",
        title="Imported runs",
        note="Results of other programs, as they gave them: their weights, machines and seeds are not known, "
        "and they are part of no finding. " + statistics.INTERVALS_NOTE,
    )


def _tests(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        found = [
            (name, a, b, brunner_munzel(_observed(sets[a], name), _observed(sets[b], name)))
            for name in _names(sets)
            for a, b in combinations(sorted(sets), 2)
        ]
        corrected = statistics.holm([each.p for *_, each in found])
        for (name, a, b, each), p_holm in zip(found, corrected, strict=True):
            row = _head(family) | {"metric": name, "a": a, "b": b, "n_a": each.n_a, "n_b": each.n_b}
            row |= {"u": each.u, "p": each.p, "p_holm": p_holm, "delta": each.delta}
            rows.append(row | {"method": each.method})
    return Table.of(
        rows,
        *WHERE,
        col("metric"),
        *counts("a", "b", "n_a", "n_b"),
        count("u", "U"),
        col("p", kind=Kind.P),
        col("p_holm", "p (Holm)", Kind.P),
        col("delta", "Cliff's delta", Kind.RATIO),
        col("method"),
        name="imported_tests",
        title="Thread counts of imported runs compared in pairs: Brunner-Munzel",
        note=f"Two-sided, alpha {ALPHA}, Holm's correction within each import, workload and variant. "
        "Runs of a condition that all gave one value count once. No difference found is not sameness.",
    )


def _churn(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        all_ = {threads: _labels(sets[threads]) for threads in sorted(sets)}
        known = {threads: labels for threads, labels in all_.items() if labels is not None}
        if len({labels.shape[1] for labels in known.values()}) > 1:
            continue  # not the same test samples
        for threads, labels in known.items():
            n = len(labels)
            value = metrics.churn_within(labels) if n > 1 else None
            rows.append(_head(family) | _churn_row(str(threads), labels, n * (n - 1) // 2, value))
        for a, b in combinations(known, 2):
            value = metrics.churn_between(known[a], known[b])
            both = np.concatenate([known[a], known[b]])
            rows.append(_head(family) | _churn_row(f"{a} | {b}", both, len(known[a]) * len(known[b]), value))
    return Table.of(
        rows,
        *WHERE,
        col("threads"),
        *counts("n", "pairs", "samples"),
        count("distinct", "distinct vectors"),
        col("churn", kind=Kind.SPREAD),
        name="imported_churn",
        title="Churn of imported predictions",
        note="The mean over pairs of runs of the share of samples they put in different classes. Runs "
        "without predictions, and conditions whose runs predict different numbers of samples, are left out.",
    )


def _labels(runs: Sequence[ImportedRun]) -> np.ndarray | None:
    """(R, N) of the runs that have predictions; None where they are not of one length."""
    known = [run.predictions for run in runs if run.predictions]
    return np.array(known) if known and len({len(each) for each in known}) == 1 else None


def _churn_row(threads: str, labels: np.ndarray, pairs: int, churn: float | None) -> dict[str, Any]:
    distinct = len(np.unique(labels, axis=0))
    row = {"threads": threads, "n": len(labels), "pairs": pairs, "samples": labels.shape[1]}
    return row | {"distinct": distinct, "churn": churn}
