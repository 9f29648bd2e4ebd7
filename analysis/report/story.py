"""The story at the top of the page: what one seed gave on each thread count, which operation made the
difference, and what ends it. Nothing is decided here: all of it is read from the runs and the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.findings.evidence import names_of
from analysis.findings.steps import next_steps
from analysis.findings.summary import by_workload, compared, differs
from analysis.load.study import View, by_seeds, by_threads
from analysis.provenance.checks import missing_runs
from analysis.results.cells import cell, missing, number
from analysis.results.model import Analysis, Kind
from guest.records.printable import counted, series

COLOURS = 6  # of the style sheet; letters tell apart what shares a colour
SHORT = 8  # characters of a hash that are shown
CHOICES = {
    "cheapest": "the proved tier with the lowest estimated cost",
    "cheapest, estimated": "the proved tier with the lowest estimated cost, by times that are not compared",
}
SHOWN = 3  # different results of one thread count that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """What the runs of one thread count gave at one level. Tiles of a row with one text and one colour are
    equal; `colour` is None where runs of one thread count differ or nothing was recorded."""

    text: str
    detail: str
    colour: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The opening picture of one workload: a row a level, a tile a thread count."""

    workload: str
    heads: list[tuple[str, int, str]]  # (thread setting, its runs, what is still to come)
    rows: list[tuple[str, list[Tile]]]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The cause or the cure of one workload: what it is, and what is known of it."""

    title: str
    code: str
    facts: list[tuple[str, str]]
    paste: list[tuple[str, str]] = field(default_factory=list)  # (where, lines to copy)


def settings(analysis: Analysis) -> list[str]:
    """All thread settings of the study, in order."""
    return list(by_threads(analysis.study.runs.sort_values(["cpus", "intra_op", "inter_op"])))


def size_text(analysis: Analysis) -> str:
    """What the study is made of, and what it lacks, in a line."""
    runs, lacking = analysis.study.runs, missing_runs(analysis.study)
    lacking = f" ({lacking})" if lacking else ""
    return (
        f"{counted(len(runs), 'run')}{lacking}: {names_of(list(analysis.study.metrics))}; "
        f"{', '.join(runs.variant.unique())}; threads {', '.join(settings(analysis))}"
    )


# ---- the picture ---------------------------------------------------------------------------------


def strips(analysis: Analysis, open_sets: Mapping[str, str]) -> list[Strip]:
    """One a workload with fixed seeds, those whose models differ first. `open_sets` says what is still to
    come of a condition."""
    names = sorted(by_workload(analysis), key=lambda name: not differs(analysis, name))
    return [_strip(analysis, name, open_sets) for name in names]


def _strip(analysis: Analysis, workload: str, open_sets: Mapping[str, str]) -> Strip:
    variant, _ = compared(analysis, workload)
    metric, view = analysis.study.primary(workload)
    each = by_seeds(analysis.study.runs_of(workload, variant=variant))
    runs = max(each, key=lambda same: (same.threads.nunique(), len(same)))  # of one seed: the most complete
    sets = by_threads(runs)
    rows = [
        ("weights", _tiles(sets, view.sha256("weights"), lambda each, _: str(each)[:SHORT])),
        ("predictions", _tiles(sets, view.sha256("predictions"), _changed(analysis, runs, view))),
        (metric, _tiles(sets, view.metric(metric), _apart, as_number=True)),
    ]
    seeds = "the one seed of the study" if len(each) == 1 else f"one of the study's {len(each)} seeds"
    models = "last models" if view is View.LAST else "models with the best validation metric"
    return Strip(
        workload=workload,
        heads=[
            (threads, len(same), open_sets.get(str(same.set_id.iloc[0]), ""))
            for threads, same in sets.items()
        ],
        rows=[(name, tiles) for name, tiles in rows if any(tile.text for tile in tiles)],
        caption="Read along a row: a new colour is another result of the same seed. "
        f"{_counts(runs, view, metric)} A letter and a colour stand for one result, equal to the last "
        "bit; samples 'differ' that A puts in another class. "
        f"Columns are thread counts, each with its n runs of {seeds} ({variant}, {models}).",
    )


def _counts(runs: pd.DataFrame, view: View, metric: str) -> str:
    """`3 thread counts gave 3 models, 3 sets of predictions and 3 values of accuracy.`"""
    columns = {
        view.sha256("weights"): ("model", ""),
        view.sha256("predictions"): ("set", " of predictions"),
        view.metric(metric): ("value", f" of {metric}"),
    }
    found = [
        counted(runs[column].nunique(), what) + of
        for column, (what, of) in columns.items()
        if runs[column].notna().all()
    ]
    return f"{counted(runs.threads.nunique(), 'thread count')} gave {series(found)}."


def _tiles(
    sets: Mapping[str, pd.DataFrame],
    column: str,
    detail: Callable[[Any, Any], str],
    *,
    as_number: bool = False,
) -> list[Tile]:
    """A tile a thread count. `detail` says more of a result, given the row's first one too."""
    known = {threads: [v for v in runs[column].unique() if not missing(v)] for threads, runs in sets.items()}
    order = list(dict.fromkeys(value for values in known.values() for value in values))

    def name(value: Any) -> str:
        return number(Kind.METRIC, value) if as_number else _letter(order.index(value))

    tiles = []
    for values in known.values():
        more = f" +{len(values) - SHOWN}" if len(values) > SHOWN else ""
        one = len(values) == 1
        tiles.append(
            Tile(
                text=" ".join(map(name, values[:SHOWN])) + more,
                detail=detail(values[0], order[0]) if one else "runs differ" if values else "not recorded",
                colour=order.index(values[0]) % COLOURS if one else None,
            )
        )
    return tiles


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _changed(analysis: Analysis, runs: pd.DataFrame, view: View) -> Callable[[Any, Any], str]:
    """How many samples are put in another class than by the first result."""
    run_of = dict(zip(runs[view.sha256("predictions")], runs.run_id, strict=True))
    labels = analysis.predictions.labels.get(view, {})

    def text(value: Any, first: Any) -> str:
        pair = [labels.get(run_of[each]) for each in (value, first)]
        if pair[0] is None or pair[1] is None:
            return str(value)[:SHORT]
        return f"{int((pair[0] != pair[1]).sum()):,} of {len(pair[0]):,} differ"

    return text


def _apart(value: Any, first: Any) -> str:
    return "" if value == first else f"{value - first:+.2g}"


# ---- the cause -----------------------------------------------------------------------------------


def commands(analysis: Analysis) -> dict[str, list[str]]:
    """What is still to do, by its first word: `trace` has `vbstudy trace --cpus 1,2`."""
    found: dict[str, list[str]] = {}
    for arguments, _ in next_steps(analysis):
        found.setdefault(arguments.split()[0], []).append(f"vbstudy {arguments}")
    return found


def causes(analysis: Analysis) -> list[Part]:
    """One a trace."""
    if "traces" not in analysis.tables:
        return []
    rows = analysis.tables["traces"].frame.to_dict("records")
    return [_cause(row, many=len(rows) > 1) for row in rows]


def _cause(row: dict[Any, Any], *, many: bool) -> Part:
    where = f"{row['workload']}, " if many else ""
    if not row["op"]:
        title = f"{where}{row['threads']}: {row['found']}"
        return Part(title=title, code="", facts=[("Growth", row["growth"])] if row["growth"] else [])
    module = f" of `{row['module']}`" if row["module"] else ""
    ulp = "" if missing(row["max_ulp"]) else f", by up to {int(row['max_ulp']):,} ULP"
    facts = {
        "Where": f"`{row['source']}`" if row["source"] else "",
        "When": f"training step {int(row['step'])}, between {row['threads'].replace(' | ', ' and ')} "
        "(n = 2 models)",
        "What": f"equal inputs, unequal outputs: {int(row['differing']):,} of {int(row['elements']):,} "
        f"elements differ{ulp}",
        "Governed by": row["setting"] or "unknown: the registry of operations does not have it",
        "Then": row["growth"],
    }
    return Part(
        title=f"{where}`{row['op']}`, {row['phase']}{module}",
        code=row["line"],
        facts=[(name, text) for name, text in facts.items() if text],
    )


# ---- the cure ------------------------------------------------------------------------------------


def cures(analysis: Analysis) -> list[Part]:
    """One a workload that was hardened."""
    if "hardening" not in analysis.tables:
        return []
    table = analysis.tables["hardening"]
    frame = table.frame
    cost = next(column for column in table.columns if column.source == "mean_cost")
    found = []
    for workload, rows in frame.groupby("workload", sort=False):
        where = f"{workload}: " if frame.workload.nunique() > 1 else ""
        chosen = rows[rows.cheapest != ""].to_dict("records")
        if not chosen:
            tried = "; ".join(f"tier {row.tier}: {row.proof}" for row in rows.itertuples())
            found.append(Part(title=f"{where}no tier is proved", code="", facts=[("Tried", tried)]))
            continue
        row = chosen[0]
        price = (
            _costs(analysis, str(workload), row["tier"])
            if missing(row["mean_cost"])
            else f"{cell(cost, row)} of the default's training time (n = {row['n']} trainings)"
        )
        level, _, title = row["tier"].partition(" ")
        facts = [("Proof", row["why"]), ("Price", price), ("Why this one", CHOICES[row["cheapest"]])]
        paste = [
            ("Before the program starts:", row["shell"]),
            ("At the top of the script, before the first operation:", row["python"]),
        ]
        title = f"{where}{title[:1].upper()}{title[1:]} (tier {level})"
        found.append(Part(title=title, code="", facts=facts, paste=paste))
    return found


def _costs(analysis: Analysis, workload: str, tier: str) -> str:
    """By CPU count, with why each is excluded from comparisons."""
    frame = analysis.tables["tier_costs"].frame
    rows = frame[(frame.workload == workload) & (frame.tier == tier) & frame.ratio.notna()]
    known = [
        f"{number(Kind.RATIO, row['ratio'])} on {counted(row['cpus'], 'CPU')} "
        f"(n = {row['n']}{row['excluded'] and ', '}{row['excluded']})"
        for row in rows.to_dict("records")
    ]
    return f"not comparable; training time over the default's: {series(known)}" if known else "not measured"
