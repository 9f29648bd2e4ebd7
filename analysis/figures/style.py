"""What all figures share: style, files, panels, colours, legends. Figures compute nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.load.study import StudyData, View, by_threads
from analysis.stats.observations import failures

WIDTH = 9.0  # inches
DPI = 150  # of the PNG files
ROW = 2.9  # inches a row of panels
LEGEND = 105  # characters a line of a legend holds
LEGEND_LINE = 0.21  # inches
LETTER = 0.08  # inches, of a label
TITLE = 58  # characters a line of a panel's title holds
CAPTION = 130  # characters a line of the words under a figure holds
CAPTION_LINE = 0.14  # inches
POINTS = 60  # runs a set up to which every run is drawn beside its box
VIEW_TEXT = {View.LAST: "without model selection", View.SELECTED: "with model selection"}
MARKERS = "osD^vPX*<>"
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "0.45",
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # matplotlib's own: the same everywhere
    "font.size": 10,
    "grid.color": "0.88",
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "svg.hashsalt": "vbstudy",
    "text.parse_math": False,  # names with a $ are names
    "text.usetex": False,  # whatever a matplotlibrc says: TeX need not be here
    "xtick.color": "0.25",
    "ytick.color": "0.25",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure, the name of its files, and the words above and under it: what to `see` in it, and what its
    marks are."""

    name: str
    title: str
    see: str
    caption: str
    figure: Figure

    @property
    def words(self) -> str:
        """The whole caption."""
        return f"To see: {self.see} {self.caption}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing on disk, beside its PNG."""

    workload: str
    title: str
    caption: str
    svg: Path


def save(drawing: Drawing, workload: str, folder: Path) -> Picture:
    svg, png = (folder / f"{drawing.name}.{kind}" for kind in ("svg", "png"))
    # The canvases' own methods draw once where `savefig` draws twice.
    drawing.figure.dpi = DPI
    agg: Any = FigureCanvasAgg(drawing.figure)  # matplotlib's canvases carry no types
    agg.print_png(png)
    drawing.figure.set_layout_engine("none")  # the layout is found; once is enough
    vector: Any = FigureCanvasSVG(drawing.figure)
    vector.print_svg(svg, metadata={"Date": None})
    return Picture(workload=workload, title=drawing.title, caption=drawing.words, svg=svg)


def alone(drawing: Drawing) -> Drawing:
    """With the words above and under it in the picture, for a file that no page stands around."""
    figure = drawing.figure
    caption = textwrap.wrap(drawing.words, CAPTION)
    height, above, below = figure.get_figheight(), 0.3, CAPTION_LINE * len(caption) + 0.1
    whole = height + above + below
    room = 0.35 if figure.legends else 0.0  # a legend below the panels stands above the words
    figure.set_figheight(whole)
    figure.set_layout_engine("constrained", rect=(0, (below + room) / whole, 1, (height - room) / whole))
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, below / whole, 1, height / whole))
    words = {"family": STYLE["font.family"]}
    figure.text(0.5, 1 - 0.08 / whole, drawing.title, ha="center", va="top", size=11, weight="bold", **words)
    figure.text(0.01, 0.06 / whole, "\n".join(caption), va="bottom", size=8, color="0.25", **words)
    return drawing


# ---- panels, colours, legends ----------------------------------------------------------------------


def by_view(study: StudyData, workload: str) -> tuple[Figure, Iterator[tuple[Axes, pd.DataFrame, View]]]:
    """A row of panels a variant, a column a view; the panels of a row share their scale."""
    runs = study.runs_of(workload)
    variants, views = list(runs.variant.unique()), study.views(workload)
    figure = Figure(figsize=(WIDTH, ROW * len(variants) + 0.4), layout="constrained")
    grid = figure.subplots(len(variants), len(views), sharey="row", squeeze=False)

    def panels() -> Iterator[tuple[Axes, pd.DataFrame, View]]:
        for row, variant in zip(grid, variants, strict=True):
            for axes, view in zip(row, views, strict=True):
                axes.set_title(f"{variant}, {VIEW_TEXT[view]}")
                yield axes, runs[runs.variant == variant], view
                if view is not View.LAST:
                    axes.set_ylabel("")  # the row shares its scale
                axes.ticklabel_format(axis="y", useOffset=False)

    return figure, panels()


def grid_of(variants: Sequence[str], height: float = ROW, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """One panel a variant, `columns` in a row."""
    columns = min(len(variants), columns)
    rows = -(-len(variants) // columns)
    figure = Figure(figsize=(WIDTH, height * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in panels[len(variants) :]:
        unused.set_axis_off()
    return figure, panels[: len(variants)]


def colours(count: int) -> list[tuple[float, float, float]]:
    """Colours that colour-blind readers distinguish; with more than ten, a scale from dark to light."""
    colours = sns.color_palette("colorblind", count) if count <= 10 else sns.color_palette("viridis", count)
    return [tuple(colour) for colour in colours]


def line_styles(count: int) -> list[dict[str, Any]]:
    return [
        {"color": colour, "marker": MARKERS[i % len(MARKERS)], "ms": 4.5, "mec": "white", "mew": 0.5}
        for i, colour in enumerate(colours(count))
    ]


def turned(names: Sequence[str], room: int) -> dict[str, Any]:
    """How labels below an axis are turned: not at all where `room` holds all their characters, and upright
    where lines at an angle would overlap."""
    if sum(map(len, names)) <= room:
        return {"rotation": 0, "ha": "center"}
    return {"rotation": 30, "ha": "right"} if len(names) <= 10 else {"rotation": 90, "ha": "center"}


def thread_ticks(axes: Axes, names: list[str]) -> None:
    how = turned(names, 36)
    axes.set_xticks(range(1, len(names) + 1), names, **how)
    figure, place = axes.get_figure(), axes.get_subplotspec()
    if how["rotation"] == 90 and isinstance(figure, Figure) and place is not None and place.is_first_col():
        figure.set_figheight(figure.get_figheight() + LETTER / 2 * max(map(len, names)))
    axes.set_xlim(0.4, len(names) + 0.6)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("threads")


def legend(figure: Figure, study: StudyData, workload: str) -> dict[str, dict[str, Any]]:
    """Places it, and returns the style of each thread setting of the workload, whatever its variants have."""
    names = list(by_threads(study.runs_of(workload).sort_values(["cpus", "intra_op", "inter_op"])))
    styles = dict(zip(names, line_styles(len(names)), strict=True))
    place_legend(figure, [Line2D([], [], **s, label=n) for n, s in styles.items()], "threads")
    return styles


def place_legend(figure: Figure, handles: Sequence[Any], title: str | None) -> None:
    lengths = [len(str(handle.get_label())) + 8 for handle in handles]  # 8: the line's sample and a gap
    columns = min(len(handles), 8)
    while columns > 1 and sum(max(part) for part in np.array_split(lengths, columns)) > LEGEND:
        columns -= 1
    more = -(-len(handles) // columns) - 2 if columns else 0  # lines; the panels have room for two
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * max(0, more))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=title)


def n_text(study: StudyData, workload: str, **where: str) -> str:
    """Of the runs with these values in the named columns, with how many failed in the primary outcome."""
    runs = study.runs_of(workload, **where)
    sizes, lost = runs.groupby("set_id").size(), failures(study, workload, **where)
    some = f", {lost} of all {len(runs)} failed" if lost else ""
    return f"n = {range_text(sizes)} run{'' if sizes.max() == 1 else 's'} a condition{some}."


def range_text(sizes: pd.Series) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return str(low) if low == high else f"{low} to {high}"
