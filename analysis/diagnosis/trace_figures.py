"""The figure of a trace: how the difference grows, layer by layer and step by step."""

from __future__ import annotations

from pathlib import Path

import analysis.figures  # noqa: F401  (it imports matplotlib without MPLBACKEND)

# isort: split
import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from analysis.diagnosis.traces import GROWTH, growth_table, started, whole_model
from analysis.figures.style import STYLE, WIDTH, Drawing, alone, colours, save
from analysis.results.printing import to_csv
from guest.records.codec import seal
from guest.records.trace import TRACE, Outcome, Trace

LAYERS = 60  # rows of the map that can be read
LINE = 0.19  # inches a row


def growth_map(trace: Trace) -> Drawing:
    """Above: all weights together. Below: each weight's relative distance, on a logarithmic scale."""
    frame = growth_table(trace).frame
    values = frame.pivot(index="layer", columns="step", values="relative_l2")
    values = values.reindex(list(dict.fromkeys(frame.layer)))
    left_out = max(0, len(values) - LAYERS)
    if left_out:
        values = values.iloc[np.linspace(0, len(values) - 1, LAYERS).round().astype(int)]
    whole = whole_model(trace)
    with mpl.rc_context(STYLE):
        height = max(1.6, LINE * len(values) + 0.5)
        figure = Figure(figsize=(WIDTH, height + 2.2), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=[1.7, height])
        dark, light = colours(2)
        places = np.arange(len(whole)) + 0.5  # the middles of the map's columns
        above.plot(places, whole.l2.where(whole.l2 > 0), marker="o", ms=4.5, color=dark)
        above.set(yscale="log", ylabel="|a-b|", xlim=(0, len(whole)), xticks=places, xticklabels=[])
        share = above.twinx()
        share.plot(places, 100 * whole["share"], marker="s", ms=4, ls="--", color=light)
        share.set(ylim=(0, 105))
        share.set_ylabel("% that differ", color=light)
        share.grid(visible=False)
        above.set_title("all weights: distance (line), share of elements that differ (dashed)")
        logarithms = np.log10(values.where(values > 0))
        sns.heatmap(
            logarithms, ax=below, cmap="viridis", cbar_kws={"label": "log10 of |a-b| / |a|"}, linewidths=0.3,
            xticklabels=True, yticklabels=True,
        )  # fmt: skip
        below.set_facecolor("0.92")
        below.set(xlabel="after training step", ylabel="", title="each weight (grey: equal to the last bit)")
        below.tick_params(axis="y", labelsize=8, rotation=0)
        below.tick_params(axis="x", rotation=0)
        below.grid(visible=False)
    first, second = (side.threads.label for side in trace.sides)
    more = f" {left_out} further weights are in the CSV." if left_out else ""
    origin = f" What started it: {started(trace)}." if trace.origins else ""
    repeats = "" if trace.outcome is Outcome.UNREPEATABLE else " Each repeats itself bit by bit: no spread."
    return Drawing(
        name=GROWTH,
        title=f"{trace.workload.name}: how the models of {first} and {second} diverge",
        see="in which layer the difference begins, and how it spreads and grows with the steps.",
        caption=f"n = 2 models, equal seeds, from step {trace.step} on.{repeats}{origin}{more}",
        figure=figure,
    )


def write(trace: Trace, folder: Path) -> None:
    """`trace.json`, and where there is something to draw, `growth.csv`, `growth.svg` and `growth.png`."""
    (folder / TRACE).write_text(seal(trace), encoding="utf-8")
    if trace.growth:
        (folder / f"{GROWTH}.csv").write_text(to_csv(growth_table(trace)), encoding="utf-8")
        save(alone(growth_map(trace)), "", folder)
