"""The commands that write the report: analyze and report, live or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    FORMATS,
    Options,
    analysis_errors,
    check_begun,
    note_edited,
    print_json,
    result,
)
from orchestrator.errors import UsageError, VbstudyError

if TYPE_CHECKING:
    from analysis.load.design import Plan
    from analysis.load.study import View
    from analysis.results.model import Analysis

_OUTPUT = click.option("--output", type=click.Path(path_type=Path), help="The folder of the report.",
                       show_default="report/ in the study")  # fmt: skip
_ALLOW_MIXED = click.option(
    "--allow-mixed", is_flag=True, help="Accept runs of one condition from different hardware."
)


@click.command()
@click.option("--table", "--tables", "names", metavar="NAME,NAME,...|all", default="", show_default=False,
              help="Print these tables in place of the summary.")  # fmt: skip
@click.option("--list-tables", is_flag=True, help="List the tables, and the question that each answers.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="Output format.")
@_OUTPUT
@click.option("--against", metavar="NAME", default="", show_default=False,
              help="Compare with published numbers; issre21: Xiao et al. 2021.")  # fmt: skip
@_ALLOW_MIXED
@click.pass_obj
def analyze(
    options: Options,
    names: str,
    list_tables: bool,
    form: str,
    output: Path | None,
    against: str,
    allow_mixed: bool,
) -> None:
    """Print the result on one screen and write the report."""
    from analysis.results.questions import QUESTIONS

    form = "json" if options.as_json else form
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if list_tables:
        _list_tables(options)
        return
    if form == "csv" and (len(wanted) > 1 or wanted == ["all"]):
        raise UsageError(
            f"--table {names}: CSV is one table a call; the report's folder tables/ has all of them"
        )
    if odd := next((name for name in wanted if name not in {"all", *QUESTIONS}), None):
        raise UsageError(f"--table: there is no table {odd!r}; `vbstudy analyze --list-tables` lists all")
    analysis, page = _write(options, output, against, allow_mixed)
    from analysis.results import printing  # a second or more, as `_write` takes: not before a refusal

    if wanted or form != "table":
        note_edited(options, analysis.study.edited)
    console = printing.console_for(sys.stdout)
    if not wanted and form == "table":
        from analysis.report.screen import screen

        console.print(screen(analysis, options.program))
        if against:
            tables = printing.chosen(analysis, ["against"])
            click.echo(printing.render_tables(tables, printing.Format.TABLE, console))
        click.echo(f"report: {page}")
        return
    if not wanted or (wanted == ["all"] and form != "table"):
        text = printing.render(analysis, printing.Format(form))
    else:
        every = wanted == ["all"]
        with analysis_errors():
            tables = printing.all_tables(analysis) if every else printing.chosen(analysis, wanted)
        text = printing.render_tables(tables, printing.Format(form), console)
    if console.is_terminal and text.count("\n") >= console.height:
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)
    options.reporter()(f"report: {page}")


def _list_tables(options: Options) -> None:
    from analysis.results.printing import console_for
    from analysis.results.questions import QUESTIONS

    if options.as_json:
        print_json(QUESTIONS)
        return
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, question in QUESTIONS.items():
        grid.add_row(name, question)
    console_for(sys.stdout).print(grid)
    options.reporter()("print some with: vbstudy analyze --table NAME,NAME")


@click.command()
@click.option("--live", is_flag=True, help="Serve the report on this machine, updated while a sweep runs.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="The port of --live.",
              show_default="any that is free")  # fmt: skip
@_OUTPUT
@_ALLOW_MIXED
@click.pass_obj
def report(options: Options, live: bool, port: int | None, output: Path | None, allow_mixed: bool) -> None:
    """Write the report and print its path, or serve it live."""
    if live and output is not None:
        raise UsageError("--live serves the report and writes no file; it takes no --output")
    if not live and port is not None:
        raise UsageError("--port needs --live")
    if live:
        _serve(options, port or 0, allow_mixed)
        return
    _, page = _write(options, output, "", allow_mixed)
    result(options, {"report": str(page)}, str(page))


def _write(options: Options, output: Path | None, against: str, allow_mixed: bool) -> tuple[Analysis, Path]:
    """Analyses the study and writes the report; the path of its page."""
    from orchestrator.study.edited import edited

    store, views = options.store(), _views(options)
    target = output or store.report
    if output is None and not os.access(store.directory, os.W_OK):
        raise UsageError(f"{store.directory}: you may not write to it; name a folder: --output FOLDER")
    plan = _plan(options)
    check_begun(options)
    from analysis.pipeline import analyze
    from analysis.report.report import write_report

    with analysis_errors(target):
        analysis = analyze(
            store.directory, views, against=against, allow_mixed=allow_mixed, edited=edited(store), plan=plan
        )
        return analysis, write_report(analysis, target)


def _views(options: Options) -> tuple[View, ...]:
    """Those that the study evaluates. Raises UsageError where there is no study."""
    from orchestrator.forecast.model import views
    from orchestrator.study.schema import ModelSelection

    store = options.store()
    without_file = store.runs.exists() and not store.study_file.exists()
    selection = ModelSelection.BOTH if without_file else options.study().model_selection
    from analysis.load.study import View  # pandas with it, which takes a second

    return tuple(map(View, views(selection)))


def _plan(options: Options) -> Plan:
    """What the study file plans, where there is one, and whether a sweep can begin."""
    from analysis.load.design import Plan
    from orchestrator.study.plan import conditions, planned
    from orchestrator.sweep.failures import missing
    from orchestrator.sweep.status import instead_of_sweep

    store = options.store()
    study = options.study() if store.study_file.exists() else None
    instead = instead_of_sweep(store, missing(study, store) if study else ())
    if study is None:
        return Plan(instead=instead)
    return Plan(
        runs={spec.set_id: planned(study, spec.variant) for spec in conditions(study)}, instead=instead
    )


def _serve(options: Options, port: int, allow_mixed: bool) -> None:
    from analysis.pipeline import analyze
    from analysis.report.page import waiting_page
    from analysis.report.progress import Unfinished
    from analysis.report.report import write_report
    from orchestrator.store.store import now
    from orchestrator.study.edited import edited
    from orchestrator.sweep import live_report
    from orchestrator.sweep.watch import Watched, Watcher

    store, views = options.store(), _views(options)
    watcher = Watcher(options.study(), store)

    def unfinished(moment: Watched, version: str) -> Unfinished:
        sets = {each.set_id: (each.done, each.planned) for each in moment.sets}
        return Unfinished(sets=sets, sweeping=moment.alive, version=version, at=now())

    def waiting(live: Unfinished, why: str) -> bytes:
        return waiting_page(store.directory.resolve().name, live, why).encode()

    def build(moment: Watched, version: str, folder: Path) -> bytes:
        live = unfinished(moment, version)
        try:
            with analysis_errors(folder):
                analysis = analyze(
                    store.directory, views, allow_mixed=allow_mixed, edited=edited(store), plan=_plan(options)
                )
                return write_report(analysis, folder, live).read_bytes()
        except VbstudyError as error:  # mostly that no run is done yet; the next page may be one
            early = live.sweeping and not live.done
            why = "No run is done yet; results appear here after the first." if early else error.message
            return waiting(live, why)

    with live_report.serving(port) as server:
        page = waiting(unfinished(watcher.look(), "0"), "The first page is being made.")
        server.site = live_report.Site(page=page, version="0", files={})
        text = f"{server.url}\nreachable from this machine only; Ctrl-C ends"
        result(options, {"url": server.url}, text)
        try:
            live_report.keep_building(server, watcher, build)
        except KeyboardInterrupt:
            return  # the way to end it
