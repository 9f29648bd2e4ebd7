"""The command `plan`: what a sweep takes, here or on a fleet of hosts, and what its runs can show."""

from __future__ import annotations

import click

from orchestrator.cli_options import Options, print_json, stdout
from orchestrator.errors import UsageError


@click.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Repetitions, as given to sweep.")
@click.option(
    "--difference",
    type=click.FloatRange(0, min_open=True),
    default=0.01,
    metavar="D",
    help="The difference in the metric that is to be seen [default: 0.01].",
)
@click.option("--sd", type=click.FloatRange(0), metavar="SD", help="In place of the stored runs' SD.")
@click.option(
    "--hosts", type=click.IntRange(1, 100_000), metavar="H", help="Say what a fleet of H hosts takes."
)
@click.option("--cores", type=click.IntRange(1, 4096), metavar="C", help="The cores of each host.")
@click.option(
    "--memory-mib",
    type=click.IntRange(min=1),
    metavar="M",
    help="The memory of each host [default: it is enough].",
)
@click.option("--price-per-core-hour", type=click.FloatRange(0), metavar="P",
              help="Of all cores of all hosts, from the first run to the last.")  # fmt: skip
@click.pass_obj
def plan(
    options: Options,
    runs: int | None,
    difference: float,
    sd: float | None,
    hosts: int | None,
    cores: int | None,
    memory_mib: int | None,
    price_per_core_hour: float | None,
) -> None:
    """Say what a sweep will take, and what its runs can show."""
    import dataclasses

    from analysis.power import Test, detectable, runs_for
    from orchestrator import fleet_forecast, forecasting
    from orchestrator.forecast_tables import as_tables, totals

    if (hosts is None) != (cores is None) or (hosts is None and (memory_mib or price_per_core_hour)):
        raise UsageError(
            "a fleet is --hosts H with --cores C; --memory-mib and --price-per-core-hour belong to it"
        )

    def planned_with(test: Test) -> forecasting.Planned:
        return (lambda n, sd, m: detectable(n, sd, m, test)), (lambda d, sd, m: runs_for(d, sd, m, test))

    study, store = options.study(), options.store()
    report = forecasting.examine(
        study, store, runs, difference, sd, planned_with(Test.RANKS), planned_with(Test.WELCH)
    )
    fleet = None
    if hosts is not None and cores is not None:
        fleet = fleet_forecast.foretell(
            study,
            forecasting.to_do(study, store, runs),
            report,
            hosts=hosts,
            cores=cores,
            memory_mib=memory_mib,
            price_per_core_hour=price_per_core_hour,
        )
    if options.as_json:
        data = dataclasses.asdict(report)
        print_json(data if fleet is None else data | {"fleet": dataclasses.asdict(fleet)})
        return
    for table in as_tables(report):
        stdout().print(table)
    click.echo("\n".join(totals(report) + ([] if fleet is None else [fleet_forecast.told(fleet)])))
