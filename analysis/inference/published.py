"""Numbers that a study published, beside ours. Each is a file of `data`, named as on the command
line: `vbstudy analyze --against issre21`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.inference.contrasts import contrasts
from analysis.load.study import StudyData, View
from analysis.results.cells import number
from analysis.results.model import ALPHA, Kind, Table, col, count
from analysis.stats.statistics import Estimate
from guest.records.run import Metric

DATA = Path(__file__).parent / "data"
NOT_MEASURED = "not measured here"
NOTHING = Estimate(value=None, n=0)


class UnknownPublishedError(ValueError):
    """There are no published numbers of this name; the text says which there are."""


def names() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.toml"))


def load_published(name: str) -> dict[str, Any]:
    """The published numbers as they stand in the file. Raises UnknownPublishedError."""
    if name not in names():
        raise UnknownPublishedError(
            f"there are no published numbers {name!r}; there are: {', '.join(names())}"
        )
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def against(name: str, study: StudyData, tables: dict[str, Table]) -> Table:
    """The table "ours beside the published". A project of theirs that is a workload of ours is compared
    by name; else each of our workloads stands beside all of theirs. Raises UnknownPublishedError."""
    published = load_published(name)
    rows = []
    for statement, kind, by_project, ours in _statements(published, study, tables):
        for workload in study.metrics if ours else [""]:
            found = ours(workload) if ours else NOTHING
            mine = {workload: by_project[workload]} if workload in by_project else by_project
            rows.append(
                {
                    "statement": statement,
                    "projects": list(mine),
                    "published": list(mine.values()),
                    "published_text": ", ".join(f"{number(kind, v)} ({p})" for p, v in mine.items()),
                    "workload": workload,
                    "ours": found.value,
                    "ours_text": NOT_MEASURED if found.value is None else number(kind, found.value),
                    "low": found.low,
                    "high": found.high,
                    "interval": _interval(kind, found),
                    "n": found.n,
                    "remark": found.note,
                }
            )
    return Table.of(
        rows,
        col("statement"),
        col("published_text", "published"),
        col("workload"),
        col("ours_text", "ours"),
        col("interval", "95 % interval"),
        count("n"),
        col("remark"),
        name="against",
        title=f"Ours beside the published ({name})",
        note="Differences and p are of accuracies; published differences are computed from the published "
        "values. n is the number of our runs behind a number. Intervals are of 95 %: Welch's t for "
        "differences of means, of equal seeds Student's of pairs (over all pairs of "
        "thread counts, and epochs where the largest is one of several: Bonferroni); for steps, the first "
        "and last possible one, since steps are hashed at powers of two. Where all repetitions of a thread "
        "count agree, there is no sampling error to give an interval of. Other projects, machines and "
        "sizes: alike numbers prove no replication.",
    )


def _interval(kind: Kind, found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"[{number(kind, found.low)}, {number(kind, found.high)}]"


Statement = tuple[str, Kind, dict[str, float], Callable[[str], Estimate] | None]


def _statements(published: dict[str, Any], study: StudyData, tables: dict[str, Table]) -> Iterable[Statement]:
    """(statement, how its numbers are written, published by project, our number of a workload)."""
    for view, name in ((View.LAST, "without"), (View.SELECTED, "with")):
        theirs = {
            entry["project"]: difference(entry["accuracy"])
            for entry in published.get("max_difference", [])
            if entry["model_selection"] == (view is View.SELECTED)
        }
        yield (
            f"largest difference across thread counts at one epoch, fixed seeds, {name} model selection",
            Kind.SPREAD,
            theirs,
            partial(_largest, tables, view),
        )
    yield (
        "largest difference between runs of one thread count, seeds free",
        Kind.SPREAD,
        published.get("default_runs_max_difference", {}),
        lambda workload: _range(tables, workload),
    )
    yield (
        "smallest p of the pairwise U tests, seeds free, uncorrected",
        Kind.P,
        {entry["project"]: min(entry["p"]) for entry in published.get("u_test_default", [])},
        lambda workload: _least_p(tables, workload),
    )
    means = published.get("fixed_seed_mean_accuracy_without_ms", {})
    yield (
        "largest difference of the mean at the end, fixed seeds, without model selection",
        Kind.SPREAD,
        {project: difference(values) for project, values in means.items()},
        lambda workload: _means(study, workload),
    )
    yield (
        "first training step that differs across thread counts, fixed seeds",
        Kind.COUNT,
        published.get("first_divergent_step", {}),
        lambda workload: _step(tables, workload),
    )
    for key, value in published.get("requirements", {}).items():
        yield f"share of examined projects: {key.replace('_', ' ')}", Kind.RATIO, {"projects": value}, None


def difference(values: Iterable[float]) -> float:
    """max - min: how the published differences follow from the published values."""
    values = list(values)
    return max(values) - min(values)


# ---- ours ---------------------------------------------------------------------------------------------


def _largest(tables: dict[str, Table], view: View, workload: str) -> Estimate:
    found = tables["max_difference"].rows_of(
        workload, variant="fixed-seed", view=view.value, metric=Metric.ACCURACY
    )
    if found.empty:
        return NOTHING
    row = found.iloc[0]
    if pd.isna(row.difference):
        return replace(NOTHING, note=row.basis)
    n, value = sum(row.n), float(row.difference)
    note = f"epoch {row.epochs}; {row.basis}"
    if row.basis == "each thread count's runs agree":
        return Estimate(value=value, n=n, note=note)
    low, high = (None if pd.isna(bound) else float(bound) for bound in (row.low, row.high))
    return Estimate(value=value, n=n, low=low, high=high, note=note)


def _range(tables: dict[str, Table], workload: str) -> Estimate:
    found = tables["performance"].rows_of(
        workload, variant="default", view="selected", metric=Metric.ACCURACY
    )
    found = found[found.n > 1]
    if found.empty:
        return NOTHING
    row = found.sort_values("range", ascending=False, kind="stable").iloc[0]
    return Estimate(value=float(row.range), n=int(row.n), note=f"threads {row.threads}")


def _least_p(tables: dict[str, Table], workload: str) -> Estimate:
    found = tables["tests"].rows_of(workload, variant="default", view="selected", metric=Metric.ACCURACY)
    found = found.dropna(subset="p")
    if found.empty:
        return NOTHING
    row = found.sort_values("p", kind="stable").iloc[0]
    test = "sign flips of pairs" if row.matched else "Brunner and Munzel's test"
    note = f"threads {row.a} and {row.b}; {test}"
    if row.analyses > 1:
        note += f"; corrected for {row.analyses} planned interim analyses"
    return Estimate(value=float(row.p), n=int(row.n_a + row.n_b), note=note)


def _means(study: StudyData, workload: str) -> Estimate:
    if Metric.ACCURACY not in study.metrics[workload]:
        return NOTHING
    runs = study.runs_of(workload, variant="fixed-seed")
    pairs = [each for each in contrasts(runs, View.LAST, Metric.ACCURACY) if each.difference is not None]
    if not pairs:
        return NOTHING
    widest = max(pairs, key=lambda each: abs(each.difference or 0.0))
    if (widest.difference or 0.0) < 0:
        widest = replace(widest, a=widest.b, b=widest.a, x=widest.y, y=widest.x)
    low, high = widest.bounds(1 - ALPHA / len(pairs))
    note = f"threads {widest.a} and {widest.b}"
    return Estimate(value=widest.difference, n=len(runs), low=low, high=high, note=note)


def _step(tables: dict[str, Table], workload: str) -> Estimate:
    found = tables["distance"].rows_of(workload, variant="fixed-seed").dropna(subset="diverges")
    if found.empty:
        return NOTHING
    row = found.iloc[0]
    if pd.isna(row.different_at):
        return Estimate(value=None, n=int(row.n), note=str(row.diverges))
    after = 0 if pd.isna(row.equal_up_to) else int(row.equal_up_to)
    step = float(row.different_at)
    return Estimate(value=step, n=int(row.n), low=after + 1.0, high=step, note=str(row.diverges))
