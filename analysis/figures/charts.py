"""The figures of predictions, of time against test performance, and of when which guest was at work."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.cost.pareto import compared_variant, pareto
from analysis.figures.style import (
    LETTER,
    ROW,
    WIDTH,
    Drawing,
    colours,
    grid_of,
    line_styles,
    n_text,
    place_legend,
    turned,
)
from analysis.load.study import StudyData, View, by_threads, when
from analysis.quality import subgroups
from analysis.results.cells import number, spread
from analysis.results.model import Analysis, Kind
from analysis.stats.metrics import churn_matrix
from analysis.stats.statistics import bounds_of

SHOWN_RUNS = 400  # runs of a variant in a heat map, about; more would be finer than the figure's pixels
BORDER = "#de8f05"  # seen on the lightest blue and on the darkest
CELLS = 8  # thread counts up to which every cell of a heat map says its number
IN_MAP = 24  # characters that labels below a heat map have room for
SESSIONS = 6  # parts of a timeline
CLASSES = 40  # more classes than these are drawn sorted by range, the widest only


def shown_view(analysis: Analysis) -> View:
    """The view of figures that show only one: the last models, unless only selected ones are analysed."""
    return View.LAST if View.LAST in analysis.views else View.SELECTED


def _heat_maps(variants: list[str], names: list[str]) -> tuple[Figure, list[Axes]]:
    """One panel a variant; one in a row where the names of thread counts leave no room for two."""
    if sum(map(len, names)) <= 2 * IN_MAP:
        return grid_of(variants, height=4.1)
    labels = LETTER * max(map(len, names)) * (1 if turned(names, IN_MAP)["rotation"] == 90 else 0.5)
    return grid_of(variants, height=max(3.0, 0.24 * len(names)) + labels + 0.7, columns=1)


def churn_map(analysis: Analysis, workload: str) -> Drawing:
    """Churn between every two thread counts; on the diagonal within each one."""
    view = shown_view(analysis)
    frame = analysis.tables["churn"].rows_of(workload)
    frame = frame[frame["view"] == view]
    variants = list(frame.variant.unique())
    figure, panels = _heat_maps(variants, list(frame[frame.kind == "within"].scope.unique()))
    largest = frame.churn.max()
    for axes, variant in zip(panels, variants, strict=True):
        rows = frame[frame.variant == variant]
        names = list(rows[rows.kind == "within"].scope)
        values = np.full((len(names), len(names)), np.nan)
        for row in rows[rows.kind != "across"].itertuples():
            a, _, b = str(row.scope).partition(" | ")
            i, j = names.index(a), names.index(b or a)
            values[i, j] = values[j, i] = row.churn
        image = axes.imshow(values, cmap="Blues", vmin=0, vmax=largest if largest > 0 else 1)
        if len(names) <= CELLS:
            for i, j in np.ndindex(values.shape):
                strong = values[i, j] > 0.6 * largest
                axes.text(
                    j, i, spread(values[i, j]), ha="center", va="center", color="white" if strong else "0.1"
                )
        axes.set_xticks(range(len(names)), names, **turned(names, IN_MAP))
        axes.set_yticks(range(len(names)), names)
        axes.grid(visible=False)
        axes.set(title=variant, xlabel="threads", ylabel="threads")
        figure.colorbar(image, ax=axes, shrink=0.8, label="churn")
    samples = int(frame.samples.max())
    return Drawing(
        name=f"{workload}-churn",
        title=f"{workload}: churn between thread counts",
        see="whether churn is larger off the diagonal than on it: then the thread count changes "
        "predictions more than a repetition does.",
        caption=f"{n_text(analysis.study, workload)} Share of {samples} test samples that two runs put in "
        "different classes, mean over pairs of runs; on the diagonal, of two runs of one thread count "
        f"(– with one run). {_models(view)}",
        figure=figure,
    )


def churn_runs(analysis: Analysis, workload: str) -> Drawing:
    """Churn between every two runs, ordered by thread count and repetition: blocks are thread counts whose
    runs are alike."""
    view = shown_view(analysis)
    runs = analysis.study.runs_of(workload)
    variants = list(runs.variant.unique())
    figure, panels = _heat_maps(variants, list(by_threads(runs)))
    drawn = {
        variant: {
            threads: list(setting.run_id.iloc[some_of(len(setting), len(mine), SHOWN_RUNS)])
            for threads, setting in by_threads(mine).items()
        }
        for variant, mine in runs.groupby("variant", sort=False)
    }
    ids = {str(variant): [run for some in sets.values() for run in some] for variant, sets in drawn.items()}
    matrices = {v: churn_matrix(analysis.predictions.stack(view, kept)) for v, kept in ids.items()}
    largest = max(matrix.max() for matrix in matrices.values())
    for axes, variant in zip(panels, variants, strict=True):
        image = axes.imshow(matrices[variant], "Blues", vmin=0, vmax=largest or 1, interpolation="nearest")
        ends = np.cumsum([len(some) for some in drawn[variant].values()])
        starts = np.concatenate([[0], ends[:-1]])
        middles = (starts + ends - 1) / 2
        for end in ends[:-1]:
            axes.axhline(end - 0.5, color=BORDER, lw=1)
            axes.axvline(end - 0.5, color=BORDER, lw=1)
        names = list(drawn[variant])
        axes.set_xticks(middles, names, **turned(names, IN_MAP))
        axes.set_yticks(middles, names)
        axes.grid(visible=False)
        axes.set(title=variant, xlabel="runs, by threads", ylabel="runs, by threads")
        figure.colorbar(image, ax=axes, shrink=0.8, label="churn")
    counts = runs.variant.value_counts()
    cut = [f"{v}: {len(kept)} of {counts[v]} runs" for v, kept in ids.items() if len(kept) < counts[v]]
    some = f" Shown are, at even steps, {', '.join(cut)}." if cut else ""
    return Drawing(
        name=f"{workload}-churn-runs",
        title=f"{workload}: churn between every two runs",
        see="the blocks: one without churn on the diagonal is a thread count whose runs predict the "
        "same, one with churn off it two thread counts that do not.",
        caption=f"{n_text(analysis.study, workload)} A line and a column a run, in order of thread count and "
        f"repetition; 0 on the diagonal.{some} Means and intervals: table churn. {_models(view)}",
        figure=figure,
    )


def some_of(of_set: int, of_all: int, most: int) -> np.ndarray:
    """Which of a set's runs are drawn when at most about `most` of all are: even steps, one at least."""
    kept = of_set if of_all <= most else max(1, of_set * most // of_all)
    return np.unique(np.linspace(0, of_set - 1, kept).round().astype(int))


def reliability(analysis: Analysis, workload: str) -> Drawing:
    """Accuracy by confidence, a line a thread count; on the diagonal a model is as often right as it is
    sure."""
    frame = filled_bins(analysis, workload)
    variants = list(frame.variant.unique())
    figure, panels = grid_of(variants, height=3.6)
    names = list(frame.scope.unique())
    styles = dict(zip(names, line_styles(len(names)), strict=True))
    for axes, variant in zip(panels, variants, strict=True):
        axes.plot([0, 1], [0, 1], color="0.45", ls="--", lw=1)
        for threads, bins in frame[frame.variant == variant].groupby("scope", sort=False):
            style = styles[str(threads)]
            axes.plot(bins.confidence, bins.accuracy, **(style | {"ms": 4}), lw=1.2)
            axes.vlines(bins.confidence, bins.low, bins.high, color=style["color"], lw=0.9, alpha=0.7)
        axes.set(title=variant, xlabel="confidence", ylabel="accuracy", ylim=(-0.02, 1.02))
    place_legend(figure, [Line2D([], [], **s, label=n) for n, s in styles.items()], "threads")
    least = int(frame.groupby(["variant", "scope"]).samples.sum().min())
    return Drawing(
        name=f"{workload}-reliability",
        title=f"{workload}: how often models are right that are so sure",
        see="whether the lines lie apart by more than their bars are long: then the thread count "
        "changes how far a model's confidence can be trusted.",
        caption=f"{n_text(analysis.study, workload)} {least} or more predictions a line; bars: 95 % "
        "intervals for the samples of one run (Wilson). Under the dashed line models are too sure. "
        f"ECE: table calibration. {_models(shown_view(analysis))}",
        figure=figure,
    )


def filled_bins(analysis: Analysis, workload: str) -> pd.DataFrame:
    """What `reliability` draws; without rows where no model has a finite confidence: all diverged."""
    frame = analysis.tables["calibration_bins"].rows_of(workload)
    return frame[(frame["view"] == shown_view(analysis)) & (frame.samples > 0)]


def class_ranges(analysis: Analysis, workload: str) -> Drawing:
    """From the worst to the best run, class by class and thread count by thread count."""
    view = shown_view(analysis)
    frame = subgroups.class_ranges(analysis.study, analysis.predictions, workload, view)
    widest = (frame.groupby("class_").high.max() - frame.groupby("class_").low.min()).sort_values()
    kept = sorted(widest.index[-CLASSES:])
    variants = list(frame.variant.unique())
    figure = Figure(figsize=(WIDTH, ROW * len(variants) + 0.6), layout="constrained")
    panels = figure.subplots(len(variants), 1, squeeze=False)[:, 0]
    names = list(dict.fromkeys(frame.threads))
    styles = dict(zip(names, line_styles(len(names)), strict=True))
    for axes, variant in zip(panels, variants, strict=True):
        rows = frame[(frame.variant == variant) & frame.class_.isin(kept)]
        for i, (threads, each) in enumerate(rows.groupby("threads", sort=False)):
            style = styles[str(threads)]
            x = np.array([kept.index(c) for c in each.class_]) + (i - (len(names) - 1) / 2) * 0.7 / len(names)
            axes.vlines(x, each.low, each.high, color=style["color"], lw=2.5, alpha=0.8)
            axes.plot(x, each["mean"], **(style | {"ls": "", "ms": 5}))
        axes.set_xticks(range(len(kept)), [str(c) for c in kept])
        axes.grid(visible=False, axis="x")
        axes.set(title=variant, xlabel="class", ylabel="accuracy")
    place_legend(figure, [Line2D([], [], **s, label=n) for n, s in styles.items()], "threads")
    some = f" The {CLASSES} classes with the widest range of {len(widest)}." if len(widest) > CLASSES else ""
    low, high = int(frame.samples.min()), int(frame.samples.max())
    return Drawing(
        name=f"{workload}-classes",
        title=f"{workload}: test accuracy of each class",
        see="which classes have long bars or marks that lie apart: they change most, even where "
        "the accuracy over all classes does not.",
        caption=f"{n_text(analysis.study, workload)} Bar: from the worst to the best run; mark: mean. "
        f"{low if low == high else f'{low} to {high}'} test samples a class.{some} {_models(view)}",
        figure=figure,
    )


def front(analysis: Analysis, workload: str) -> Drawing:
    """Mean time against mean metric, with the thread counts that no other beats in both."""
    view = shown_view(analysis)
    study, metric = analysis.study, analysis.study.primary(workload)[0]
    points, variant = pareto(study, workload, view), compared_variant(study, workload)
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    kept = sorted((p.wall_s.value or 0.0, p.score.value or 0.0) for p in points if p.on_front)
    axes.plot(*(zip(*kept, strict=True) if kept else ([], [])), color="0.3", ls="--", lw=1.2, zorder=1)
    handles = [Line2D([], [], color="0.3", ls="--", label="front")] if len(kept) > 1 else []
    for point, style in zip(points, line_styles(len(points)), strict=True):
        time, score = point.wall_s, point.score
        if time.value is None or score.value is None:
            continue
        faint = {"mfc": "none", "mec": style["color"], "mew": 1.5} if point.excluded else {}
        style = style | {"ms": 8} | faint
        axes.plot(time.value, score.value, **(style | {"ls": ""}))
        if time.low is not None and time.high is not None:
            axes.hlines(score.value, time.low, time.high, color=style["color"], lw=1)
        if score.low is not None and score.high is not None:
            axes.vlines(time.value, score.low, score.high, color=style["color"], lw=1)
        front_ = ", on the front" if point.on_front else ""
        note = f" ({point.excluded})" if point.excluded else f" (n={time.n}{front_})"
        handles.append(Line2D([], [], **(style | {"ls": ""}), label=point.threads + note))
    axes.set(xlabel="seconds a run (mean)", ylabel=f"test {metric} (mean)")
    axes.margins(0.12)
    axes.ticklabel_format(axis="both", useOffset=False)
    place_legend(figure, handles, "threads")
    known = bounds_of(metric) is not None
    drawn = {
        "Bars: 95 % intervals of the means; means that lie within each other's may differ by chance.": any(
            each.low is not None for point in points for each in (point.wall_s, point.score)
        ),
        "The front joins the thread counts that no other beats in both means.": len(kept) > 1,
        "Hollow: times excluded from comparisons.": any(point.excluded for point in points),
    }
    return Drawing(
        name=f"{workload}-front",
        title=f"{workload}: time against test {metric}, {variant}",
        see="which thread counts the dashed line joins: choose among these."
        if len(kept) > 1
        else f"whether one thread count lies {'up and ' if known else ''}left of all others.",
        caption=" ".join(
            [
                n_text(study, workload, variant=variant),
                "Up and left is better."
                if known
                else f"Left is faster; whether a larger {metric} is better is not known.",
                *(text for text, there in drawn.items() if there),
                _models(view),
            ]
        ),
        figure=figure,
    )


def _models(view: View) -> str:
    return "Last models." if view is View.LAST else "Models with the best validation metric."


# ---- when which guest was at work -----------------------------------------------------------------


def timeline(analysis: Analysis) -> Drawing:
    """Every run as a bar on its guest's line, by the wall clock. Long pauses are cut out, for a sweep
    may be resumed days later."""
    study = analysis.study
    begin, end = spans(study)
    sessions = _sessions(begin, end)
    guests = list(dict.fromkeys(study.runs.sort_values(["cpus", "guest"]).guest))
    variants = list(dict.fromkeys(study.runs.variant))
    shades = dict(zip(variants, colours(len(variants)), strict=True))
    figure = Figure(figsize=(WIDTH, 1.5 + 0.42 * len(guests)), layout="constrained")
    number_of: Any = dates.date2num  # matplotlib's dates carry no types
    locate: Any = dates.AutoDateLocator
    concise: Any = dates.ConciseDateFormatter
    lengths = [max((last - first).total_seconds(), 1.0) for first, last in sessions]
    ratios = [max(length, 0.25 * max(lengths)) for length in lengths]
    panels = figure.subplots(1, len(sessions), sharey=True, squeeze=False, width_ratios=ratios)[0]
    for axes, (first, last) in zip(panels, sessions, strict=True):
        inside = (begin >= first) & (end <= last)
        for i, guest in enumerate(guests):
            for variant in variants:
                mine = inside & (study.runs.guest == guest) & (study.runs.variant == variant)
                left, right = number_of(begin[mine]), number_of(end[mine])
                bars = list(zip(left, right - left, strict=True))
                axes.broken_barh(bars, (i - 0.35, 0.7), fc=shades[variant], ec="white", lw=0.3)
        locator = locate(minticks=2, maxticks=max(5, int(9 * (last - first).total_seconds() / sum(lengths))))
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(concise(locator))
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(guests)), guests)
        axes.set_ylim(len(guests) - 0.5, -0.5)
    panels[0].set_xlabel("wall clock, UTC", loc="left")
    place_legend(figure, [Patch(color=shades[v], label=v) for v in variants], None)
    worked = sum((end - begin).dt.total_seconds())
    pauses = f" {len(sessions) - 1} long pauses are cut out." if len(sessions) > 2 else ""
    pauses = " One long pause is cut out." if len(sessions) == 2 else pauses
    return Drawing(
        name="timeline",
        title="When which guest was at work",
        see="whether conditions alternate, so that a slow hour slows all of them alike, and which "
        "guests worked at the same time.",
        caption=f"{len(study.runs)} runs on {len(guests)} guests, from {begin.min():%Y-%m-%d %H:%M} to "
        f"{end.max():%Y-%m-%d %H:%M} UTC; {number(Kind.SECONDS, worked)} s of runs, each from its request to "
        f"its last file.{pauses}",
        figure=figure,
    )


def spans(study: StudyData) -> tuple[pd.Series, pd.Series]:
    """When each run started and finished."""
    begin, end = (when(study.runs[at]).dt.tz_localize(None) for at in ("started_at", "finished_at"))
    return begin, end.where(end >= begin, begin)  # a clock that was set back


def _sessions(begin: pd.Series, end: pd.Series) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """The stretches of time in which runs follow each other without a pause that is long beside the
    work: an hour, or the work itself. At most SESSIONS; the longest pauses are cut first."""
    order = begin.argsort()
    starts, ends = begin.iloc[order], end.iloc[order].cummax()
    pauses = (starts.iloc[1:].to_numpy() - ends.iloc[:-1].to_numpy()) / np.timedelta64(1, "s")
    work = (ends.iloc[-1] - starts.iloc[0]).total_seconds() - pauses[pauses > 0].sum()
    longest = set(np.argsort(pauses)[::-1][: SESSIONS - 1])
    cut = [i + 1 for i, pause in enumerate(pauses) if pause > min(3600, max(work, 60)) and i in longest]
    return [(starts.iloc[a], ends.iloc[b - 1]) for a, b in pairwise([0, *cut, len(starts)])]
