"""The heat map of a probe: operations by threads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import analysis.figures  # noqa: F401  (it imports matplotlib without MPLBACKEND)

# isort: split
import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.diagnosis.probes import cells, header, table
from analysis.figures.style import STYLE, WIDTH, Drawing, alone, save
from analysis.results.printing import to_csv
from guest.records.codec import seal
from guest.records.printable import counted
from guest.records.probe import Part, ProbeReport

LINE = 0.17  # inches a row
SAME, UNKNOWN = "0.93", "white"
UNSTABLE = "×"


def heat_map(report: ProbeReport) -> Drawing:
    """Forward and backward beside each other: the largest Vermv over sizes and types on each thread count;
    grey where all bits are the reference's, × where the runs of one process differ."""
    frame = cells(report)
    names = list(dict.fromkeys(frame.operation))
    others = report.threads[1:] or report.threads
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, LINE * len(names) + 1.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        grids = {part: _grid(frame[frame.part == part], names, others) for part in Part}
        low, high = _limits([vermv for vermv, _, _ in grids.values()])
        for axes, part in zip(panels, Part, strict=True):
            vermv, marks, there = grids[part]
            axes.set_facecolor(UNKNOWN)
            axes.pcolormesh(
                np.arange(len(others) + 1), np.arange(len(names) + 1),
                np.where(there, 1.0, np.nan), cmap=mpl.colors.ListedColormap([SAME]),
            )  # fmt: skip
            sns.heatmap(
                vermv, ax=axes, cmap="rocket_r", vmin=low, vmax=high, linewidths=0.4, linecolor="white",
                annot=marks, fmt="", annot_kws={"size": 8}, cbar=part is Part.BACKWARD,
                cbar_kws={"label": "log10 of the largest Vermv", "shrink": 0.5},
                xticklabels=True, yticklabels=True,
            )  # fmt: skip
            axes.set(title=part, xlabel="threads", ylabel="")
            axes.tick_params(axis="y", labelsize=7.5, rotation=0)
            axes.tick_params(axis="x", rotation=0)
            axes.grid(visible=False)
        figure.legend(
            handles=[
                Patch(facecolor=SAME, label="same bits"),
                Patch(facecolor=UNKNOWN, edgecolor="0.6", label="not computed, or no gradient"),
                mpl.lines.Line2D(
                    [], [], ls="", marker="x", color="0.2", label="does not repeat from run to run"
                ),
            ],
            loc="outside lower center",
            ncols=3,
        )
    reference = counted(report.threads[0], "thread")
    return Drawing(
        name=f"probe-{report.framework}",
        title=f"Operations of {report.framework}: how far from the result on {reference}",
        see="which operations have cells of another colour than the same bits: threads change their result.",
        caption=f"n = {report.runs} runs a cell; {header(report)}. Largest Vermv over sizes and types.",
        figure=figure,
    )


def _grid(
    frame: pd.DataFrame, names: list[str], others: tuple[int, ...]
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """log10 Vermv (NaN: same bits), marks, and where something was computed, (operations, threads) each."""
    columns = list(others)
    vermv = pd.DataFrame(np.nan, index=names, columns=columns)
    marks = pd.DataFrame("", index=names, columns=columns)
    there = pd.DataFrame(False, index=names, columns=columns)
    for (operation, threads), cell in frame[frame.threads.isin(others)].groupby(["operation", "threads"]):
        there.loc[operation, threads] = True
        largest = pd.to_numeric(cell[~cell.equal].vermv).max()
        if not cell.equal.all():
            tiny = np.finfo(np.float32).tiny
            vermv.loc[operation, threads] = np.log10(max(largest, tiny)) if largest == largest else 0.0
        if (cell["unique"] > 1).any():
            marks.loc[operation, threads] = UNSTABLE
    return vermv, marks, there.to_numpy()


def _limits(grids: list[pd.DataFrame]) -> tuple[float, float]:
    values = np.concatenate([grid.to_numpy().ravel() for grid in grids])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max()) + 1e-9) if len(values) else (-8.0, 0.0)


def write(report: ProbeReport, folder: Path) -> None:
    """`probe-<framework>.json`, `.csv` (every cell) and the heat map."""
    name = f"probe-{report.framework}"
    (folder / f"{name}.json").write_text(seal(report), encoding="utf-8")
    every = dataclasses.replace(table(report), frame=cells(report))
    (folder / f"{name}.csv").write_text(to_csv(every), encoding="utf-8")
    if report.rows:
        save(alone(heat_map(report)), "", folder)
