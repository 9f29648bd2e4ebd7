"""All workloads in one figure: how many models one seed gives, and how many predictions change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from analysis.figures.style import MARKERS, WIDTH, Drawing, colours, place_legend
from analysis.results.model import ACROSS, Analysis
from analysis.sameness.verdicts import LEVELS
from analysis.stats.observations import failures
from guest.records.printable import series
from guest.records.run import Variant

OVERVIEW = "overview"  # its files
LINE = 0.27  # inches a workload
DARK = 0.65  # of the scale of blues: from here on white text has more contrast than dark text
LONGEST = 36  # characters of a workload's name that leave the panels their room
FEWEST = 2  # workloads, from which on they are shown side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """What is said of a half of the figure."""

    title: str
    see: str
    caption: str


def overview(analysis: Analysis) -> Drawing:
    """A line a workload: distinct results of one seed on all thread counts, by variant and level; and churn
    between thread counts."""
    workloads = list(analysis.study.metrics)
    figure = Figure(figsize=(WIDTH, 1.7 + LINE * len(workloads)), layout="constrained")
    columns = _columns(analysis)
    share = max(len(columns), len(LEVELS)) * 0.85
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(share, 5))
    both = (_matrix(analysis, left, workloads, columns), _churn(analysis, figure, right, workloads))
    shown = {name: name if len(name) <= LONGEST else f"{name[:20]}…{name[-15:]}" for name in workloads}
    left.set_yticks(range(len(workloads)), list(shown.values()))
    left.set_ylim(len(workloads) - 0.5, -0.5)
    halves = [half for half in both if half is not None]
    return Drawing(
        name=OVERVIEW,
        title=f"All workloads: {', and '.join(half.title for half in halves) or 'nothing was measured'}",
        see=f"{'; '.join(half.see for half in halves) or 'that no seed is fixed and no churn is known'}.",
        caption=" ".join(
            [
                *(half.caption for half in halves),
                *(f"{short} is {name}." for name, short in shown.items() if short != name),
            ]
        ),
        figure=figure,
    )


def _not_measured(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color="0.35")
    axes.set_xticks([])
    axes.grid(visible=False)


def _shown(analysis: Analysis, table: str, workload: str) -> pd.DataFrame:
    """The rows across thread counts, of the models that findings are decided by where known."""
    frame = analysis.tables[table].frame
    rows = frame[(frame.workload == workload) & (frame.scope == ACROSS)]
    view = analysis.study.primary(workload)[1].value
    return rows[rows["view"] == view] if (rows["view"] == view).any() else rows.drop_duplicates("variant")


def _columns(analysis: Analysis) -> list[tuple[str, str]]:
    """(variant, level): all levels of the first variant with fixed seeds, the weights of the others."""
    there = [each for each in Variant if each.seeds_fixed and each in set(analysis.study.runs.variant)]
    return [
        (variant, level)
        for i, variant in enumerate(there)
        for level in LEVELS
        if i == 0 or level == LEVELS[0]
    ]


def _matrix(
    analysis: Analysis, axes: Axes, workloads: list[str], columns: list[tuple[str, str]]
) -> _Half | None:
    """Draws the numbers, workloads x columns; returns the words, None where there are no columns."""
    axes.set_title("distinct results of one seed")
    if not columns:
        _not_measured(axes)
        return None
    values = np.full((len(workloads), len(columns)), np.nan)
    for y, workload in enumerate(workloads):
        rows = _shown(analysis, "verdicts", workload).set_index("variant")
        for x, (variant, level) in enumerate(columns):
            if variant in rows.index:
                row: Any = rows.loc[variant]
                counted = row[f"{level}_distinct"] / max(row.seeds, 1)
                values[y, x] = counted if counted else np.nan  # 0: not recorded, or not finite
    most = analysis.study.runs.threads.nunique()
    scale = Normalize(1, max(2, 1.4 * most))
    axes.imshow(values, cmap="Blues", norm=scale, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else f"{value:.3g}"
        colour = "0.55" if text in ("1", "–") else "white" if scale(value) > DARK else "0.1"
        axes.text(x, y, text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), [f"{variant}\n{level}" for variant, level in columns], fontsize=8)
    axes.grid(visible=False)
    above = f"; a number above {most} is of results that differ within a thread count too"
    within = above if (values > most).any() else ""
    return _Half(
        title="models of one seed",
        see="whether a line has numbers above 1: then one seed gives several results on different thread "
        "counts",
        caption=f"Left: distinct results a seed, on up to {most} thread counts, mean over the seeds; 1 is "
        f"one result everywhere{within} (table verdicts).",
    )


def _churn(analysis: Analysis, figure: Figure, axes: Axes, workloads: list[str]) -> _Half | None:
    """Draws it; returns the words, None where there is no churn."""
    axes.set_title("churn between thread counts")
    known = analysis.tables.get("churn")
    shown = sorted(Variant, key=lambda each: not each.seeds_fixed)
    variants = [v.value for v in shown if known is not None and v in set(known.frame.variant)]
    drawn: dict[str, Line2D] = {}
    hollow: dict[str, Any] = {"mfc": "white", "mew": 1.2}
    some_failed = False
    for i, (variant, colour) in enumerate(zip(variants, colours(max(len(variants), 1)), strict=False)):
        shift = (i - (len(variants) - 1) / 2) * min(0.22, 0.75 / len(variants))
        style: dict[str, Any] = {
            "color": colour,
            "marker": MARKERS[i],
            "ms": 5,
            "ls": "",
            "mec": "white",
            "mew": 0.5,
        }
        for y, workload in enumerate(workloads):
            rows = _shown(analysis, "churn", workload)
            for row in rows[rows.variant == variant].to_dict("records"):
                if pd.notna(row["low"]):
                    axes.plot([row["low"], row["high"]], [y + shift] * 2, color=colour, lw=1.2)
                if pd.notna(row["churn"]):
                    drawn |= {variant: Line2D([], [], **style, label=variant)}
                    lost = failures(analysis.study, workload, variant=variant) > 0
                    some_failed |= lost
                    mark = style | hollow | {"mec": colour} if lost else style
                    axes.plot(row["churn"], y + shift, **mark, clip_on=False)
    if not drawn:
        _not_measured(axes)
        return None
    axes.set_xlabel("test samples that change their class")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.set_xlim(left=0)
    handles = list(drawn.values())
    if some_failed:
        text = "hollow: some of its runs failed"
        handles.append(Line2D([], [], marker="o", ms=5, ls="", color="0.4", **hollow, label=text))
    place_legend(figure, handles, None)
    seed = free = ""
    if freed := [f"'{each}'" for each in drawn if not Variant(each).seeds_fixed]:
        seed = " and the seed" if len(freed) == len(drawn) else ", and how much less than with the seed"
        free = f"; in {series(freed)} the seeds differ too"
    return _Half(
        title="predictions that change",
        see=f"on the right, whether predictions change with the thread count{seed}",
        caption="Right: share of test samples that two runs on two thread counts put in different classes, "
        f"mean over pairs with its 95 % interval where there is one{free} (table churn).",
    )
