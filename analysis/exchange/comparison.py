"""Imported runs compared by thread count, with what can be told of them: metrics, losses, predictions.
Their weights were never seen, so nothing is said of bitwise equality."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis import metrics, statistics
from analysis.exchange.imported import Import, ImportedRun
from analysis.results import ALPHA, Column, Kind, Table

Family = tuple[str, str, str]  # import, workload, variant
WHERE = tuple(Column(header=name, source=name) for name in ("import", "workload", "variant"))


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
    return np.array([value for value in values if value is not None], dtype=float)


def _sets(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        for threads in sorted(sets):
            for name in _names(sets):
                values = _values(sets[threads], name)
                mean, sd = statistics.mean(values), statistics.sd(values)
                row = _head(family) | {"threads": threads, "metric": name, "n": mean.n, "mean": mean.value}
                row |= {"mean_low": mean.low, "mean_high": mean.high, "sd": sd.value}
                row |= {"sd_low": sd.low, "sd_high": sd.high, "values": len(np.unique(values))}
                row |= {"min": values.min() if len(values) else None}
                rows.append(row | {"max": values.max() if len(values) else None})
    columns = ["import", "workload", "variant", "threads", "metric", "n", "mean", "mean_low", "mean_high"]
    columns += ["sd", "sd_low", "sd_high", "min", "max", "values"]
    return Table(
        name="imported",
        title="Imported runs",
        note="Results of other programs, as they gave them: their weights, machines and seeds are not known, "
        "and they are part of no finding. Mean with Student's t, SD with its chi-square interval, 95 %.",
        frame=pd.DataFrame(rows, columns=columns),
        columns=(
            *WHERE,
            Column(header="threads", source="threads", kind=Kind.COUNT),
            Column(header="metric", source="metric"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="mean", source="mean", kind=Kind.METRIC, low="mean_low", high="mean_high"),
            Column(header="SD", source="sd", kind=Kind.SPREAD, low="sd_low", high="sd_high"),
            Column(header="min", source="min", kind=Kind.METRIC),
            Column(header="max", source="max", kind=Kind.METRIC),
            Column(header="values", source="values", kind=Kind.COUNT),
        ),
    )


def _tests(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        found = [
            (name, a, b, statistics.mann_whitney(_values(sets[a], name), _values(sets[b], name)))
            for name in _names(sets)
            for a, b in combinations(sorted(sets), 2)
        ]
        corrected = statistics.holm([each.p for *_, each in found])
        for (name, a, b, each), p_holm in zip(found, corrected, strict=True):
            row = _head(family) | {"metric": name, "a": a, "b": b, "n_a": each.n_a, "n_b": each.n_b}
            row |= {"u": each.u, "p": each.p, "p_holm": p_holm, "delta": each.delta}
            rows.append(row | {"method": each.method})
    columns = ["import", "workload", "variant", "metric", "a", "b", "n_a", "n_b", "u", "p", "p_holm"]
    return Table(
        name="imported_tests",
        title="Thread counts of imported runs compared in pairs: Mann-Whitney U",
        note=f"Two-sided, alpha {ALPHA}, Holm's correction within each import, workload and variant. "
        "No difference found is not sameness.",
        frame=pd.DataFrame(rows, columns=[*columns, "delta", "method"]),
        columns=(
            *WHERE,
            Column(header="metric", source="metric"),
            Column(header="a", source="a", kind=Kind.COUNT),
            Column(header="b", source="b", kind=Kind.COUNT),
            Column(header="n a", source="n_a", kind=Kind.COUNT),
            Column(header="n b", source="n_b", kind=Kind.COUNT),
            Column(header="U", source="u", kind=Kind.COUNT),
            Column(header="p", source="p", kind=Kind.P),
            Column(header="p (Holm)", source="p_holm", kind=Kind.P),
            Column(header="Cliff's delta", source="delta", kind=Kind.RATIO),
            Column(header="method", source="method"),
        ),
    )


def _churn(families: dict[Family, dict[int, list[ImportedRun]]]) -> Table:
    rows = []
    for family, sets in families.items():
        all_ = {threads: _labels(sets[threads]) for threads in sorted(sets)}
        told = {threads: labels for threads, labels in all_.items() if labels is not None}
        if len({labels.shape[1] for labels in told.values()}) > 1:
            continue  # not the same test samples
        for threads, labels in told.items():
            n = len(labels)
            value = metrics.churn_within(labels) if n > 1 else None
            rows.append(_head(family) | _churn_row(str(threads), labels, n * (n - 1) // 2, value))
        for a, b in combinations(told, 2):
            value = metrics.churn_between(told[a], told[b])
            both = np.concatenate([told[a], told[b]])
            rows.append(_head(family) | _churn_row(f"{a} | {b}", both, len(told[a]) * len(told[b]), value))
    columns = ["import", "workload", "variant", "threads", "n", "pairs", "samples", "distinct", "churn"]
    return Table(
        name="imported_churn",
        title="Churn of imported predictions",
        note="The mean over pairs of runs of the share of samples they put in different classes. Runs "
        "without predictions, and sets whose runs predict unlike numbers of samples, are left out.",
        frame=pd.DataFrame(rows, columns=columns),
        columns=(
            *WHERE,
            Column(header="threads", source="threads"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="pairs", source="pairs", kind=Kind.COUNT),
            Column(header="samples", source="samples", kind=Kind.COUNT),
            Column(header="distinct vectors", source="distinct", kind=Kind.COUNT),
            Column(header="churn", source="churn", kind=Kind.SPREAD),
        ),
    )


def _labels(runs: Sequence[ImportedRun]) -> np.ndarray | None:
    """(R, N) of the runs that have predictions; None where they are not of one length."""
    told = [run.predictions for run in runs if run.predictions]
    return np.array(told) if told and len({len(each) for each in told}) == 1 else None


def _churn_row(threads: str, labels: np.ndarray, pairs: int, churn: float | None) -> dict[str, Any]:
    distinct = len(np.unique(labels, axis=0))
    row = {"threads": threads, "n": len(labels), "pairs": pairs, "samples": labels.shape[1]}
    return row | {"distinct": distinct, "churn": churn}
