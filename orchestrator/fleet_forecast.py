"""What a fleet of hosts will take for what is left of a study: makespan, utilisation, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from guest.records import RunSpec
from orchestrator.errors import UsageError
from orchestrator.forecast import Forecast
from orchestrator.packing import Room
from orchestrator.simulation import ExpectedRun, Fleet, simulate
from orchestrator.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetForecast:
    """`hours` is from the first start to the last end, with `hours_low` to `hours_high` about 95 % sure as
    far as the runs' times vary; None: the time of a run is unknown (of a set in `unknown`). `bound_hours` is
    what no schedule can be shorter than. `cost` counts all cores of all hosts for those hours; None where no
    price was given. `n_measured` runs are what the times are from."""

    hosts: int
    cores: int
    memory_mib: int | None
    runs: int
    n_measured: int
    hours: float | None = None
    hours_low: float | None = None
    hours_high: float | None = None
    bound_hours: float | None = None
    utilisation: float | None = None
    core_hours: float | None = None
    cost: float | None = None
    unknown: tuple[str, ...] = ()


def foretell(
    study: Study,
    to_do: Sequence[RunSpec],
    forecast: Forecast,
    *,
    hosts: int,
    cores: int,
    memory_mib: int | None,
    price_per_core_hour: float | None,
) -> FleetForecast:
    """`to_do` are the planned runs that are not stored. Raises UsageError for guests that no host has the
    memory for."""
    run_s = {s.set_id: s.run_s for s in forecast.sets}
    unknown = tuple(dict.fromkeys(s.set_id for s in to_do if run_s[s.set_id] is None))
    told = FleetForecast(
        hosts=hosts,
        cores=cores,
        memory_mib=memory_mib,
        runs=len(to_do),
        n_measured=sum(s.n_measured for s in forecast.sets if s.basis == "this set"),
        unknown=unknown,
    )
    if unknown:
        return told
    memory = study.guest_memory_mib if memory_mib is not None else 0
    simulated = simulate(
        (
            ExpectedRun(
                run=spec.run_id,
                group=spec.set_id,
                needs=Room(
                    cpus=max(spec.threads.cpus, study.engine.reserve),
                    memory_mib=memory,
                    whole=not study.engine.side_by_side,
                ),
                run_s=run_s[spec.set_id] or 0.0,
            )
            for spec in to_do
        ),
        Fleet(hosts=hosts, room=Room(cpus=cores, memory_mib=memory_mib or 0)),
    )
    if simulated.impossible:
        raise UsageError(
            f"--memory-mib {memory_mib}: a guest of this study needs {memory} (provider.memory_mib); no host "
            "has room for one"
        )
    hours = simulated.makespan_s / 3600
    spread = None  # of the whole, as a share of it: that of the hours with one guest at a time
    if forecast.hours and forecast.hours_high is not None:
        spread = (forecast.hours_high - forecast.hours) / forecast.hours
    return replace(
        told,
        hours=hours,
        hours_low=None if spread is None else max(hours * (1 - spread), 0.0),
        hours_high=None if spread is None else hours * (1 + spread),
        bound_hours=simulated.bound_s / 3600,
        utilisation=simulated.utilisation,
        core_hours=simulated.core_hours,
        cost=None if price_per_core_hour is None else simulated.core_hours * price_per_core_hour,
    )


def told(fleet: FleetForecast) -> str:
    """A line for a person."""
    what = f"fleet   {fleet.hosts} hosts with {fleet.cores} cores: "
    if fleet.hours is None:
        return what + f"unknown until one run is done of {', '.join(fleet.unknown)}"
    text = f"{what}{fleet.runs} runs in {fleet.hours:.3g} hours"
    if fleet.hours_low is not None:
        text += f" (95 %: {fleet.hours_low:.3g} to {fleet.hours_high:.3g})"
    text += f", no schedule is shorter than {fleet.bound_hours:.3g}; "
    text += f"{fleet.utilisation or 0:.0%} of {fleet.core_hours:.4g} core-hours used"
    if fleet.cost is not None:
        text += f", cost {fleet.cost:.2f}"
    return text + f"; times from n = {fleet.n_measured} runs, without starting guests and moving files"
