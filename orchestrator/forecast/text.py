"""A forecast as text and tables."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from analysis.results.model import WHERE, Table, col, cols, count, counts
from guest.records.printable import counted, series
from orchestrator.forecast.fleet import FleetForecast
from orchestrator.forecast.model import FamilyForecast, Forecast
from orchestrator.study.plan import condition
from orchestrator.text import duration

UNKNOWN = "unknown until one run is done"
UNIT_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))  # as all options have them


def answer(forecast: Forecast) -> str:
    """What is to do, in a sentence."""
    if not forecast.to_do:
        return f"All {forecast.runs} planned runs are done."
    took = f"time {UNKNOWN}" if forecast.hours is None else f"about {hours(forecast.hours)}"
    return f"{forecast.to_do} of {forecast.runs} planned runs are to do: {took}."


def as_tables(forecast: Forecast) -> list[Table]:
    """What is known: before the first run no more than what is planned."""
    measured = any(s.n_measured for s in forecast.sets)
    if not measured and all(f.tests and f.sd is None for f in forecast.families):
        return [_planned(forecast)]
    sets = Table.of(
        [
            condition(s.set_id)
            | {
                "planned": s.planned,
                "to_do": s.to_do,
                "run": "–" if s.run_s is None else f"{s.run_s:.3g}",
                "sd": "–" if s.run_s_sd is None else f"{s.run_s_sd:.2g}",
                "time": hours(s.hours),
                "disk": amount(s.size_bytes),
                "basis": f"{s.basis}, n = {s.n_measured}" if s.n_measured else s.basis,
            }
            for s in forecast.sets
        ],
        *WHERE,
        col("setting", "condition"),
        count("planned", "runs"),
        count("to_do"),
        count("run", "a run, s"),
        count("sd", "SD"),
        *counts("time", "disk"),
        col("basis", "from"),
        name="conditions",
        title="Conditions",
        note="",
    )
    power = Table.of(
        [
            {"workload": f.workload, "variant": f.variant, "view": f.view, "metric": f.metric}
            | {
                "tests": f.tests,
                "n": f"{f.n} seeds" if f.matched else f.n,
                "sd": "unknown" if f.sd is None else _with_bounds(f.sd, f.sd_low, f.sd_high),
            }
            | {"sd_from": "" if f.sd is None else f"n = {f.n_sd}" if f.n_sd else "given"}
            | {"ranks": _difference(f, f.detectable_u), "welch": _difference(f, f.detectable_welch)}
            | {"runs_ranks": _runs(f, f.needed_u), "runs_welch": _runs(f, f.needed_welch)}
            for f in forecast.families
        ],
        *WHERE,
        *cols("view", "metric"),
        count("tests"),
        col("n"),
        count("sd", "SD"),
        col("sd_from", "from"),
        count("ranks"),
        count("welch", "Welch"),
        count("runs_ranks", f"runs for {forecast.difference:g}: ranks"),
        count("runs_welch", "Welch"),
        name="power",
        title="Power: the smallest difference that is found with 80 % power",
        note="The power holds for this SD; its 95 % interval is that of normal runs (chi-square). "
        "Two-sided, alpha 0.05, Holm over the family's tests. Ranks: Brunner-Munzel. Seeds that are on "
        "all thread counts are compared in pairs, by sign flips (under ranks) and Student's t (under Welch); "
        "their SD is that of the differences at one seed, and seeds are what is needed.",
    )
    return [sets, power]


def _planned(forecast: Forecast) -> Table:
    sets = [(condition(each.set_id), each.planned) for each in forecast.sets]
    rows = []
    by = itemgetter("workload", "variant")
    for (workload, variant), group in groupby(sets, key=lambda each: by(each[0])):
        members = list(group)
        settings = ", ".join(where["setting"] for where, _ in members)
        planned = sum(runs for _, runs in members)
        rows.append({"workload": workload, "variant": variant, "planned": planned, "setting": settings})
    return Table.of(
        rows,
        *WHERE,
        count("planned", "runs"),
        col("setting", "conditions"),
        name="conditions",
        title="Conditions",
        note="",
    )


def totals(forecast: Forecast) -> list[str]:
    """A line each for time, disk and power, as far as there is something to do or to know."""
    lines = []
    if forecast.to_do and forecast.hours is not None:
        text = f"time    {hours(forecast.hours)} with one guest at a time"
        if forecast.hours_low is not None and forecast.hours_high is not None:
            others = any(s.to_do and s.basis.startswith("other") for s in forecast.sets)
            like = ", if conditions without runs take as long as the others" if others else ""
            text += f" (95 %: {hours(forecast.hours_low)} to {hours(forecast.hours_high)}{like})"
        else:
            text += " (spread unknown until two runs are done)"
        if forecast.hours_at_best is not None and forecast.hours_at_best < forecast.hours:
            text += f"; side by side on {forecast.cores} cores not less than {hours(forecast.hours_at_best)}"
        lines.append(text)
    if forecast.to_do:
        size = amount(forecast.size_bytes) if forecast.size_bytes is not None else UNKNOWN
        lines.append(f"disk    {size}; {amount(forecast.free_bytes)} are free")
    lacking = dict.fromkeys(f.workload for f in forecast.families if f.tests and f.sd is None)
    if lacking:
        known = any(f.tests and f.sd is not None for f in forecast.families)
        of = f" of {series(list(lacking))}" if known else ""
        lines.append(f"power   unknown{of} until two runs of a condition are done; or give the SD with --sd")
    equal = dict.fromkeys(f"{f.workload} ({f.variant})" for f in forecast.families if f.tests and f.sd == 0)
    if equal:
        text = f"power   unknown of {series(list(equal))}: the runs so far have one value (SD 0)"
        lines.append(f"{text}; give the SD with --sd, or compare several seeds (`seeds = 10`)")
    return lines


def fleet_text(fleet: FleetForecast) -> str:
    """A line about a fleet."""
    what = f"fleet   {counted(fleet.hosts, 'host')} with {counted(fleet.cores, 'core')}: "
    if fleet.hours is None:
        return what + f"unknown until one run is done of {', '.join(fleet.unknown)}"
    text = f"{what}{counted(fleet.runs, 'run')} in {hours(fleet.hours)}"
    if fleet.hours_low is not None:
        text += f" (95 %: {hours(fleet.hours_low)} to {hours(fleet.hours_high)})"
    elif fleet.too_large:
        text += " (no interval: too many runs for repeated simulations)"
    else:
        text += " (spread unknown until two runs are done)"
    text += f", no schedule is shorter than {hours(fleet.bound_hours)}; "
    text += f"{fleet.utilisation or 0:.0%} of {fleet.core_hours:.4g} core-hours used"
    text += f"; times from {counted(fleet.n_measured, 'run')}, without starting guests, importing frameworks"
    return text + " and moving files"


def hours(value: float | None) -> str:
    """A time that is known in hours."""
    return "unknown" if value is None else duration(3600 * value)


def amount(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "unknown"
    for unit, name in UNIT_BYTES:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes:.0f} B"


def _with_bounds(sd: float, low: float | None, high: float | None) -> str:
    return f"{sd:.2g}" if low is None or high is None else f"{sd:.2g} [{low:.2g}, {high:.2g}]"


def _difference(family: FamilyForecast, value: float | None) -> str:
    if family.tests == 0:
        return "nothing to compare"
    if not family.sd:
        return "–"
    return "n too small" if value is None else f"{value:.2g}"


def _runs(family: FamilyForecast, value: int | None) -> str:
    if family.tests == 0 or not family.sd:
        return "–"
    return "more than 10 million" if value is None else str(value)
