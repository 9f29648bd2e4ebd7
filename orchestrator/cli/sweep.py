"""The commands that run a study: plan, which estimates a sweep, sweep, and watch."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import click

from orchestrator.cli.options import (
    SECURITY,
    CommandFailed,
    FiniteRange,
    Options,
    note_edited,
    print_json,
    result,
    show,
    stdout,
)
from orchestrator.errors import EXIT_RUNS_FAILED, UsageError

FILE_WIDTH = 120  # a pipe has none, and a narrower table cuts its words


@click.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", show_default="repetitions of study.toml",
              help="Runs of each condition, as for sweep.")  # fmt: skip
@click.option("--difference", type=FiniteRange(1e-100, 1e100), default=0.01, metavar="D",
              help="The difference to detect, in units of the metric (0.01: one point).")  # fmt: skip
@click.option("--sd", type=FiniteRange(0, 1e100, min_open=True), metavar="SD",
              help="The SD of the metric, instead of that of the stored runs.")  # fmt: skip
@click.option("--hosts", type=click.IntRange(1, 100_000), metavar="H", help="Estimate the time on H hosts.")
@click.option("--cores", type=click.IntRange(1, 4096), metavar="C", help="The cores of each host.")
@click.option("--memory-mib", type=click.IntRange(min=1), metavar="M", show_default="enough",
              help="The memory of each host, in MiB.")  # fmt: skip
@click.pass_obj
def plan(
    options: Options,
    runs: int | None,
    difference: float,
    sd: float | None,
    hosts: int | None,
    cores: int | None,
    memory_mib: int | None,
) -> None:
    """Estimate a sweep's time, disk space and statistical power."""
    import dataclasses

    from analysis.results.printing import print_tables
    from orchestrator.forecast import fleet as fleets
    from orchestrator.forecast import model
    from orchestrator.forecast.text import answer, as_tables, fleet_text, totals
    from orchestrator.study import plan as planning
    from orchestrator.study.edited import edited
    from orchestrator.sweep import status

    if (hosts is None) != (cores is None) or (hosts is None and memory_mib):
        raise UsageError("--hosts needs --cores, and --memory-mib needs both")

    study, store = options.study(), options.store()
    report = model.estimate(study, store, runs, difference, sd)
    note_edited(options, edited(store))
    fleet = None
    if hosts is not None and cores is not None:
        to_do = [spec for spec in planning.plan(study, runs) if not store.has(spec)]
        fleet = fleets.estimate(study, to_do, report, hosts=hosts, cores=cores, memory_mib=memory_mib)
    if options.as_json:
        data = dataclasses.asdict(report)
        print_json(data if fleet is None else data | {"fleet": dataclasses.asdict(fleet)})
        return
    show("\n".join([answer(report), *totals(report), *([fleet_text(fleet)] if fleet and fleet.runs else [])]))
    print_tables(as_tables(report), sys.stdout)
    open_sets = {each.set_id for each in report.sets if each.to_do}
    options.show_next(*status.next_command(study, store, open_sets, runs))


@click.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Runs of each condition.",
              show_default="repetitions of study.toml")  # fmt: skip
@click.option("--until", metavar="RULE", help="Add runs to each condition until RULE holds for it: "
              "sd_halfwidth<X, mean_halfwidth<X, decided(tests) or decided(tests, margin=X).")  # fmt: skip
@click.option("--max-runs", type=click.IntRange(min=1), metavar="N", show_default="30",
              help="The most runs of each condition with --until.")  # fmt: skip
@click.option("--robustness", is_flag=True,
              help="Afterwards measure the stored models under noise and adversarial attack.")  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS",
              help="Run on the workers of this dask scheduler: tcp:// or tls://HOST:PORT.")  # fmt: skip
@SECURITY
@click.pass_obj
def sweep(
    options: Options,
    runs: int | None,
    until: str | None,
    max_runs: int | None,
    robustness: bool,
    scheduler: str | None,
    security: Path | None,
) -> None:
    """Train the planned runs that are missing. Ctrl-C stops; running it again resumes."""
    from orchestrator.study.engine import on_scheduler
    from orchestrator.sweep import command as sweeping
    from orchestrator.sweep.sequential import parse_rule

    store, loaded = options.store(), options.study()
    if scheduler is not None:
        loaded = loaded.model_copy(update={"engine": on_scheduler(loaded.engine, scheduler, security)})
    elif security is not None:
        raise UsageError("--security needs --scheduler")
    rule = None
    if until is not None:
        rule = parse_rule(loaded, store, runs, until, max_runs)
    elif max_runs is not None:
        raise UsageError("--max-runs needs --until; without --until, set the number of runs with --runs")
    outcome = sweeping.sweep(loaded, store, options.stderr(), runs, rule, robustness)
    result(options, *sweeping.summaries(outcome, store))
    if outcome.failed:
        raise CommandFailed(EXIT_RUNS_FAILED)


@click.command()
@click.option(
    "--once", is_flag=True, help="Print the current state once and exit; the default without a terminal."
)
@click.option("--every", "every_s", type=FiniteRange(0.2), default=1.0, metavar="S",
              help="Seconds between two updates.")  # fmt: skip
@click.pass_obj
def watch(options: Options, once: bool, every_s: float) -> None:
    """Show guests, running runs, progress, failures and the time left. Ctrl-C ends.

    Beside a running sweep, or after it; on any machine that sees the study's folder."""
    from rich.live import Live

    from orchestrator.sweep.watch import Watcher, as_json
    from orchestrator.sweep.watch_view import render

    watcher = Watcher(options.study(), options.store())
    if options.as_json:
        print_json(as_json(watcher.look()))
        return
    console, terminal = stdout(), sys.stdout.isatty()  # rich takes a pipe for one where FORCE_COLOR is set
    if not terminal:
        console.width = max(console.width, FILE_WIDTH)
    if once or not terminal:
        console.print(render(watcher.look()))
        return
    # On a screen of its own, which is taken away in the end: the terminal is as it was before.
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(render(watcher.look(), console.height, console.width), refresh=True)
            time.sleep(every_s)
