"""Draws what the tables say, one figure a question and workload. Nothing is computed here that is
not in a table; nothing is random, and the same study gives the same SVG bytes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator, NullFormatter

from analysis.figures.charts import (
    churn_map,
    churn_runs,
    class_ranges,
    filled_bins,
    front,
    reliability,
    timeline,
)
from analysis.figures.overview import FEWEST, overview
from analysis.figures.style import (
    POINTS,
    STYLE,
    TITLE,
    Drawing,
    Picture,
    by_view,
    colours,
    grid_of,
    legend,
    line_styles,
    n_text,
    place_legend,
    range_text,
    save,
    thread_ticks,
)
from analysis.load.study import by_threads
from analysis.quality.histories import epochs_by_run
from analysis.results.model import ACROSS, Analysis
from analysis.stats.observations import failed
from analysis.stats.processes import in_processes

MANY = 16  # figures, from which on processes save more than they cost


def write_figures(analysis: Analysis, folder: Path) -> list[Picture]:
    """Draws every figure into `folder`, as SVG and PNG; workload by workload, in order of reading. Those
    of all workloads together come last. Many are drawn by several processes."""
    wanted = [
        (workload, i)
        for workload in analysis.study.metrics
        for i, (draw, table) in enumerate(FIGURES)
        if table in analysis.tables and len(analysis.tables[table].rows_of(workload))
        if draw is not reliability or len(filled_bins(analysis, workload))
    ]
    wanted += [
        ("", i)
        for i, draw in enumerate(WHOLE)
        if draw is not overview or len(analysis.study.metrics) >= FEWEST
    ]
    return in_processes(_draw, wanted, (analysis, folder), worth_it=len(wanted) >= MANY)


def _draw(common: tuple[Analysis, Path], which: tuple[str, int]) -> Picture:
    (analysis, folder), (workload, i) = common, which
    with mpl.rc_context(STYLE):
        drawing = FIGURES[i][0](analysis, workload) if workload else WHOLE[i](analysis)
        return save(drawing, workload, folder)


# ---- the figures --------------------------------------------------------------------------------


def boxes(analysis: Analysis, workload: str) -> Drawing:
    """Box plots of the final test metric by thread count."""
    study = analysis.study
    metric = study.metrics[workload][0]
    figure, panels = by_view(study, workload)
    cross: dict[str, Any] = {"ls": "", "marker": "x", "ms": 5, "color": "0.15"}
    crossed = dotted = False
    for axes, runs, view in panels:
        sets = by_threads(runs)
        lost = {name: failed(s, view, metric) for name, s in sets.items()}
        values = [s[view.metric(metric)].to_numpy()[~lost[name]] for name, s in sets.items()]
        boxes_ = axes.boxplot([v[np.isfinite(v)] for v in values], widths=0.5, patch_artist=True, sym="")
        for box, median, colour in zip(boxes_["boxes"], boxes_["medians"], colours(len(sets)), strict=True):
            box.set(facecolor=(*colour, 0.35), edgecolor=colour, linewidth=1.3)
            median.set(color=colour, linewidth=2)
        for i, (colour, runs_of_set) in enumerate(zip(colours(len(sets)), values, strict=True), start=1):
            if len(runs_of_set) <= POINTS:
                dotted |= len(runs_of_set) > 0
                # Side by side, in order of the repetitions: runs that are equal stay visible.
                axes.plot(
                    _abreast(i, len(runs_of_set)), runs_of_set, "o", ms=4, color=colour, mec="white", mew=0.6
                )
        for i, (name, s) in enumerate(sets.items(), start=1):
            axes.plot(_abreast(i, lost[name].sum()), s[view.metric(metric)][lost[name]], **cross)
            crossed |= bool(lost[name].any())
        thread_ticks(axes, list(sets))
        axes.set_ylabel(metric)
    if crossed:
        place_legend(figure, [Line2D([], [], **cross, label="failed, and in no box")], None)
    level = f", and whether the dots of one box lie level: level dots are runs that give equal {metric}"
    return Drawing(
        name=f"{workload}-box",
        title=f"{workload}: test {metric} by thread count",
        see=f"whether the boxes overlap{level * dotted}. The table tests decides what differs beyond chance.",
        caption=f"{n_text(study, workload)} Box: quartiles and median{'; each dot one run' * dotted}.",
        figure=figure,
    )


def _whole_ticks(axes: Axes) -> None:
    """At whole numbers alone, also where there is but one."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _abreast(x: float, n: int) -> np.ndarray:
    """Places of n runs side by side."""
    return x + np.linspace(-0.18, 0.18, n) * (n > 1)


def sorted_runs(analysis: Analysis, workload: str) -> Drawing:
    """The runs of every thread count, sorted (Xiao et al., ISSRE 2021, figure 3)."""
    study = analysis.study
    metric = study.metrics[workload][0]
    figure, panels = by_view(study, workload)
    styles = legend(figure, study, workload)
    for axes, runs, view in panels:
        for threads, runs_of_set in by_threads(runs).items():
            values = np.sort(runs_of_set[view.metric(metric)].to_numpy())
            axes.plot(np.arange(1, len(values) + 1), values, **styles[threads], lw=1.2, alpha=0.9)
        _whole_ticks(axes)
        axes.set(xlabel="run, sorted", ylabel=metric)
    return Drawing(
        name=f"{workload}-sorted",
        title=f"{workload}: the runs of each thread count, sorted by test {metric}",
        see=f"whether the curves cover each other: then thread counts give the same {metric}, run "
        f"for run. A flat curve is a thread count whose runs all have one {metric}.",
        caption=f"{n_text(study, workload)} Curves that cover each other are runs of equal {metric}; their "
        "models may differ (table verdicts).",
        figure=figure,
    )


def epochs(analysis: Analysis, workload: str) -> Drawing:
    """The mean test metric at every epoch with a band of one SD; of one epoch, where a band has no width,
    with a bar."""
    study = analysis.study
    metric = study.metrics[workload][0]
    figure, panels = by_view(study, workload)
    styles = legend(figure, study, workload)
    some_failed = banded = False
    for axes, runs, view in panels:
        for threads, runs_of_set in by_threads(runs).items():
            lost = failed(runs_of_set, view, metric)
            some_failed |= bool(lost.any())
            wide = epochs_by_run(study, runs_of_set[~lost], view.epoch_metric(metric))
            wide = wide.where(np.isfinite(wide))
            x, mean, sd = wide.columns.to_numpy(), wide.mean(), wide.std()
            style = styles[threads]
            if len(x) == 1:
                at = _abreast(x[0], len(styles))[list(styles).index(threads)]
                axes.errorbar(at, mean, sd, **style, capsize=4, lw=1.3)
                continue
            banded |= len(x) > 1
            axes.plot(x, mean, **(style | {"markevery": max(1, len(x) // 8)}), lw=1.3)
            axes.fill_between(x, mean - sd, mean + sd, color=style["color"], alpha=0.18, lw=0)
        if not banded:
            axes.margins(x=0.9)
        _whole_ticks(axes)
        axes.set(xlabel="epoch", ylabel=metric)
    return Drawing(
        name=f"{workload}-epochs",
        title=f"{workload}: test {metric} at every epoch",
        see="at which epoch the lines separate, and whether by more than the bands are wide."
        if banded
        else "whether the marks lie further apart than their bars reach.",
        caption=f"{n_text(study, workload)} {'Line' if banded else 'Mark'}: mean of the runs"
        f"{' that did not fail' * some_failed}; {'band' if banded else 'bar'}: one standard deviation.",
        figure=figure,
    )


def loss_sd(analysis: Analysis, workload: str) -> Drawing:
    """SD of the training loss at every epoch, within thread counts and across them, log scale."""
    frame = analysis.tables["loss_sd_by_epoch"].rows_of(workload)
    variants = list(frame.variant.unique())
    figure, panels = grid_of(variants)
    scopes = [scope for scope in frame.scope.unique() if scope != ACROSS]
    styles = dict(zip(scopes, line_styles(len(scopes)), strict=True))
    styles[ACROSS] = {"color": "black", "ls": "--", "marker": "x", "label": ACROSS}
    for axes, variant in zip(panels, variants, strict=True):
        curves = frame[frame.variant == variant]
        for scope, curve in curves.groupby("scope", sort=False):
            drawn = curve[curve.sd > 0]
            if len(drawn):
                axes.plot(drawn.epoch, drawn.sd, **(styles[str(scope)] | {"ms": 4}), lw=1.3)
        silent = [line for text in _silent(curves) for line in textwrap.wrap(text, TITLE)]
        axes.set_title("\n".join([variant, *silent]))
        axes.set_xlim(0.5, curves.epoch.max() + 0.5)
        axes.set(xlabel="epoch", ylabel="SD of the training loss")
        _whole_ticks(axes)
        if (curves.sd > 0).any():
            axes.set_yscale("log")
            # matplotlib's own labels are TeX, which the style leaves as it stands
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
            axes.yaxis.set_minor_formatter(_between_decades(*axes.get_ylim()))
        else:
            axes.set_yticks([])
            axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center", color="0.45")
    handles = [Line2D([], [], **(style | {"label": scope})) for scope, style in styles.items()]
    place_legend(figure, handles, "threads")
    sizes = frame[frame.scope != ACROSS].n
    return Drawing(
        name=f"{workload}-loss-sd",
        title=f"{workload}: standard deviation of the training loss",
        see="which lines rise: there a difference grows. The dashed line is the SD of the thread counts' "
        "means, the others are SDs of single runs. With n independent runs a thread count, and no effect of "
        "it, the dashed line lies at about 1/√n of the others.",
        caption=f"{range_text(sizes)} runs a thread count; a seed with several models counts once, with "
        "their mean. A standard deviation of 0 has no place on a log scale and is named above the panel.",
        figure=figure,
    )


def _between_decades(low: float, high: float) -> Formatter:
    """Labels of the minor ticks of a logarithmic axis, where fewer than two powers of ten lie within its
    limits: as many as do not overlap."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if first < last:
        return NullFormatter()
    shown = "25" if high > 10 * low else "2357" if high > 3 * low else "123456789"
    return FuncFormatter(lambda value, _: _digits(value) if f"{value:.3e}"[0] in shown else "")


def _digits(value: float) -> str:
    """With the digits that ticks between powers of ten need."""
    texts = [f"{value:.{digits}e}" for digits in range(4)]
    return next((text for text in texts if math.isclose(float(text), value, rel_tol=1e-6)), texts[-1])


def _silent(curves: pd.DataFrame) -> list[str]:
    """What a log scale cannot show: where the SD is 0, or unknown, at every epoch."""
    scopes = list(curves.scope.unique())
    zero = [s for s, c in curves.groupby("scope", sort=False) if (c.sd == 0).all()]
    alone = [s for s, c in curves.groupby("scope", sort=False) if c.sd.isna().all()]
    texts = (("0 at every epoch", zero), ("not known (one run, or not finite)", alone))
    return [f"{text}: {_names(named, scopes)}" for text, named in texts if named]


def _names(named: Sequence[Any], scopes: Sequence[Any]) -> str:
    threads = [str(scope) for scope in named if scope != ACROSS]
    every = len(threads) > 1 and len(threads) == len([scope for scope in scopes if scope != ACROSS])
    text = "each thread count" if every else f"threads {', '.join(threads)}" if threads else ""
    return " and ".join(filter(None, (text, ACROSS if ACROSS in named else "")))


def times(analysis: Analysis, workload: str) -> Drawing:
    """Mean wall time by thread count with its interval; sets excluded from comparisons hatched."""
    study, frame = analysis.study, analysis.tables["time"].rows_of(workload)
    bounded, dotted = bool(frame.wall_low.notna().any()), bool((frame.n <= POINTS).any())
    variants = list(frame.variant.unique())
    figure, panels = grid_of(variants)
    runs = study.runs_of(workload)
    for axes, variant in zip(panels, variants, strict=True):
        rows, sets = frame[frame.variant == variant], by_threads(runs[runs.variant == variant])
        for i, (row, colour) in enumerate(
            zip(rows.to_dict("records"), colours(len(rows)), strict=True), start=1
        ):
            hatched = {"hatch": "////", "alpha": 0.55} if row["excluded"] else {"alpha": 0.8}
            axes.bar(i, row["wall_s"], width=0.6, color=colour, edgecolor="white", **hatched)
            if not pd.isna(row["wall_low"]):
                low, high = row["wall_s"] - row["wall_low"], row["wall_high"] - row["wall_s"]
                axes.errorbar(i, row["wall_s"], [[low], [high]], color="0.15", capsize=4, lw=1.2)
            each = sets[str(row["threads"])].wall_s
            if len(each) <= POINTS:
                axes.plot(np.full(len(each), i), each, "o", ms=3.5, color="0.15", mfc="white", mew=0.8)
        thread_ticks(axes, [str(name) for name in rows.threads])
        axes.set_ylim(bottom=0)
        axes.set_title(variant)
        axes.set_ylabel("seconds a run")
    if frame.excluded.any():
        text = f"{' or '.join(sorted(set(frame.excluded) - {''}))}: not used in conclusions"
        place_legend(figure, [Patch(facecolor="0.7", edgecolor="white", hatch="////", label=text)], None)
    return Drawing(
        name=f"{workload}-time",
        title=f"{workload}: time of a run",
        see=f"which bar is lowest{', and whether its interval clears those of the others' * bounded}. "
        "The table time decides what is faster beyond chance.",
        caption=f"{n_text(study, workload)} Bar: mean"
        f"{', with its 95 % interval where there is one' * bounded}{'; each dot one run' * dotted}.",
        figure=figure,
    )


FIGURES = (
    (boxes, "time"),
    (sorted_runs, "time"),
    (epochs, "time"),
    (loss_sd, "loss_sd_by_epoch"),
    (churn_map, "churn"),
    (churn_runs, "churn"),
    (class_ranges, "by_class"),
    (reliability, "calibration"),
    (times, "time"),
    (front, "time"),
)
"""Each with a table that must have rows of the workload: projects do not record everything."""
WHOLE = (overview, timeline)
