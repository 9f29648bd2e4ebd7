"""A forecast as text and tables."""

from __future__ import annotations

from rich import box
from rich.table import Table

from orchestrator.forecast.fleet import FleetForecast
from orchestrator.forecast.model import FamilyForecast, Forecast

UNKNOWN = "unknown until one run is done"
UNIT_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def as_tables(forecast: Forecast) -> list[Table]:
    sets = Table(title="Conditions", title_justify="left")
    for heading in ("condition", "runs", "to do", "a run", "from", "hours", "disk"):
        left = heading in ("condition", "from")
        sets.add_column(
            heading, justify="left" if left else "right", no_wrap=heading == "condition", overflow="fold"
        )
    for s in forecast.sets:
        run = "–" if s.run_s is None else f"{s.run_s:.3g} s"
        if s.run_s_sd is not None:
            run += f" (SD {s.run_s_sd:.2g})"
        basis = f"{s.basis}, n = {s.n_measured}" if s.n_measured else s.basis
        sets.add_row(s.set_id, str(s.planned), str(s.to_do), run, basis, hours(s.hours), amount(s.size_bytes))
    power = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title="Power: smallest difference that is found with 80 % power",
        title_justify="left",
        caption="Two-sided, alpha 0.05, Holm over the family's tests. Ranks: Brunner-Munzel.",
        caption_justify="left",
    )
    needed = f"runs for {forecast.difference:g}"
    for heading in (
        "family",
        "metric",
        "tests",
        "n",
        "SD",
        "ranks",
        "Welch",
        f"{needed}, ranks",
        f"{needed}, Welch",
    ):
        left = heading in ("family", "metric")
        power.add_column(heading, justify="left" if left else "right", no_wrap=left, overflow="fold")
    for f in forecast.families:
        power.add_row(
            f"{f.workload}/{f.variant}\n({f.view})",
            f.metric,
            str(f.tests),
            str(f.n),
            _sd(f),
            _difference(f, f.detectable_u),
            _difference(f, f.detectable_welch),
            _runs(f, f.needed_u),
            _runs(f, f.needed_welch),
        )
    return [sets, power]


def totals(forecast: Forecast) -> list[str]:
    """A line each for runs, hours and disk."""
    lines = [f"runs    {forecast.runs} planned, {forecast.to_do} to do"]
    if forecast.hours is None:
        lines.append(f"hours   {UNKNOWN} of every workload")
    else:
        text = f"hours   {forecast.hours:.3g} with one guest at a time"
        if forecast.hours_low is not None and forecast.hours_high is not None:
            text += f" (95 %: {forecast.hours_low:.3g} to {forecast.hours_high:.3g})"
        else:
            text += " (spread unknown until two runs are done)"
        if forecast.hours_at_best is not None and forecast.hours_at_best < forecast.hours:
            text += f"; side by side on {forecast.cores} cores not less than {forecast.hours_at_best:.3g}"
        lines.append(text)
    size = amount(forecast.size_bytes) if forecast.size_bytes is not None else UNKNOWN
    lines.append(f"disk    {size}; {amount(forecast.free_bytes)} are free")
    if any(f.sd is None and f.tests for f in forecast.families):
        lines.append("power   unknown until two runs of a set are done; or give the SD with --sd")
    return lines


def fleet_text(fleet: FleetForecast) -> str:
    """A line about a fleet."""
    what = f"fleet   {fleet.hosts} hosts with {fleet.cores} cores: "
    if fleet.hours is None:
        return what + f"unknown until one run is done of {', '.join(fleet.unknown)}"
    text = f"{what}{fleet.runs} runs in {fleet.hours:.3g} hours"
    if fleet.hours_low is not None:
        text += f" (95 %: {fleet.hours_low:.3g} to {fleet.hours_high:.3g})"
    text += f", no schedule is shorter than {fleet.bound_hours:.3g}; "
    text += f"{fleet.utilisation or 0:.0%} of {fleet.core_hours:.4g} core-hours used"
    return text + f"; times from n = {fleet.n_measured} runs, without starting guests and moving files"


def hours(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def amount(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "unknown"
    for unit, name in UNIT_BYTES:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes:.0f} B"


def _sd(family: FamilyForecast) -> str:
    if family.sd is None:
        return "unknown"
    return f"{family.sd:.2g}" + (f" (n = {family.n_sd})" if family.n_sd else " (given)")


def _difference(family: FamilyForecast, value: float | None) -> str:
    if family.tests == 0:
        return "nothing to compare"
    if family.sd is None:
        return "–"
    if family.sd == 0:
        return "any: runs repeat"
    return "n too small" if value is None else f"{value:.2g}"


def _runs(family: FamilyForecast, value: int | None) -> str:
    if family.tests == 0:
        return "–"
    if family.sd is None:
        return "–"
    return "more than 10 million" if value is None else str(value)
