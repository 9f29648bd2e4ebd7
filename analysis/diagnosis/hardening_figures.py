"""The figure of the tiers: what each costs, and whether it is proved. It computes nothing."""

from __future__ import annotations

import textwrap
from pathlib import Path

import analysis.figures  # noqa: F401  (it imports matplotlib without MPLBACKEND)

# isort: split
import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.figures.style import STYLE, WIDTH, Drawing, Picture, line_styles, place_legend, range_text, save
from analysis.results.model import Analysis
from guest.records.harden import Proof

WIDE = 4  # from here on ticks are 1, 2, 5, 10


def write_hardening_figures(analysis: Analysis, folder: Path) -> list[Picture]:
    """One figure a workload that was hardened, as SVG and PNG; none where nothing was."""
    if "tier_costs" not in analysis.tables:
        return []
    frame = analysis.tables["tier_costs"].frame
    with mpl.rc_context(STYLE):
        return [
            save(tier_costs(rows), str(name) if name in analysis.study.metrics else "", folder)
            for name, rows in frame.groupby("workload", sort=False)
        ]


def tier_costs(rows: pd.DataFrame) -> Drawing:
    """Time ratios by tier, a mark for each CPU count; hollow where a time is excluded from comparisons. Tiers
    that are proved have their names in bold."""
    workload = str(rows.workload.iloc[0])
    tiers = list(dict.fromkeys(rows.tier))
    counts = list(dict.fromkeys(map(str, rows.cpus)))
    figure = Figure(figsize=(WIDTH, 1.6 + 0.62 * len(tiers)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color="0.35", lw=1.2, ls="--", zorder=1)
    for count, style, shift in zip(
        counts, line_styles(len(counts)), np.linspace(-0.24, 0.24, len(counts)) if counts else (), strict=True
    ):
        each = rows[(rows.cpus.astype(str) == count) & rows.ratio.notna()]
        for row in each.to_dict("records"):
            y = tiers.index(row["tier"]) + (shift if len(counts) > 1 else 0)
            hollow = {"mfc": "none", "mec": style["color"], "mew": 1.5} if row["excluded"] else {}
            if not pd.isna(row["low"]):
                axes.hlines(y, row["low"], row["high"], color=style["color"], lw=1.4, zorder=2)
            axes.plot(row["ratio"], y, **(style | {"ls": "", "ms": 7} | hollow), zorder=3)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    wide = high / low > WIDE
    axes.xaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5), numticks=12) if wide else MaxNLocator(8, steps=[1, 2, 5, 10])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(tiers)), [_name(rows, tier) for tier in tiers])
    for label, tier in zip(axes.get_yticklabels(), tiers, strict=True):
        if _proof(rows, tier) == Proof.PROVED:
            label.set_fontweight("bold")
    axes.set_ylim(len(tiers) - 0.5, -0.5)
    axes.set_xlabel("training time over the default's on the same CPUs")
    place_legend(figure, [Line2D([], [], **(s | {"ls": "", "ms": 7}), label=c) for c, s in zip(
        counts, line_styles(len(counts)), strict=True)], "CPUs")  # fmt: skip
    pairs = range_text(rows[rows.n > 0].n) if (rows.n > 0).any() else "0"
    reasons = " or ".join(sorted(set(rows.excluded[rows.ratio.notna()]) - {""}))
    bounds = ", with its 95 % interval where there is one" if rows.low.notna().any() else ""
    hollow_text = f" Hollow: {reasons}, excluded from comparisons." if reasons else ""
    return Drawing(
        name=f"{workload}-hardening",
        title=f"{workload}: what equal models on all thread counts cost",
        see="which bold name has its marks furthest left: it gives one model for the least time. "
        "Marks right of the dashed line cost time.",
        caption=f"n = {pairs} pairs a mark. Mark: geometric mean of the ratios{bounds}. "
        f"Bold: proved to give equal models on {', '.join(counts)} CPUs.{hollow_text}",
        figure=figure,
    )


def _proof(rows: pd.DataFrame, tier: str) -> str:
    return str(rows[rows.tier == tier].proof.iloc[0])


def _name(rows: pd.DataFrame, tier: str) -> str:
    return "\n".join(textwrap.wrap(tier, 34)) + f"\n({_proof(rows, tier)})"
