"""The commands that look at a study while it is swept: watch, and the report, live or not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli_options import Options, print_json, result, stdout
from orchestrator.errors import UsageError, VbstudyError

if TYPE_CHECKING:
    from orchestrator.watch import Watcher

FILE_WIDTH = 120  # a pipe has none, and a narrower table cuts its words


@click.command()
@click.option("--once", is_flag=True, help="Print one moment and end; so it is without a terminal.")
@click.option("--every", "every_s", type=click.FloatRange(0.2), default=1.0, metavar="S",
              help="Seconds between two looks [default: 1].")  # fmt: skip
@click.pass_obj
def watch(options: Options, once: bool, every_s: float) -> None:
    """Show guests, running runs, sets filling up, failures, time left. Ctrl-C ends.

    Beside a running sweep, or after it; on any machine that sees the study's folder."""
    from orchestrator.watch import Watcher, as_json
    from orchestrator.watch_view import render

    watcher = Watcher(options.study(), options.store())
    if options.as_json:
        print_json(as_json(watcher.look()))
        return
    console = stdout()
    if once or not console.is_terminal:
        if not console.is_terminal:
            console.width = max(console.width, FILE_WIDTH)
        console.print(render(watcher.look()))
        return
    _keep_showing(watcher, every_s)


def _keep_showing(watcher: Watcher, every_s: float) -> None:
    """On a screen of its own, which is taken away in the end: the terminal is as it was before."""
    from rich.live import Live

    from orchestrator.watch_view import render

    console = stdout()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(render(watcher.look(), console.height), refresh=True)
                time.sleep(every_s)
    except KeyboardInterrupt:
        return  # the way to end it


@click.command()
@click.option("--live", is_flag=True, help="Serve it on this machine, up to date while a sweep runs.")
@click.option("--port", type=click.IntRange(0, 65535), default=None, metavar="N",
              help="The port of --live [default: 0, any that is free].")  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where the report goes [default: report/ in the study]."
)
@click.option("--allow-mixed", is_flag=True, help="Take unlike hardware within a set.")
@click.pass_obj
def report(options: Options, live: bool, port: int | None, output: Path | None, allow_mixed: bool) -> None:
    """Write the report and print its path; or serve a live one. Ctrl-C ends that."""
    from orchestrator import analysing

    if live and output is not None:
        raise UsageError("--live serves the report and leaves no file; it takes no --output")
    if not live and port is not None:
        raise UsageError("--port is the port of --live")
    if live:
        _serve(options, port or 0, allow_mixed)
        return
    from analysis.pipeline import analyze
    from analysis.report import write_report

    store, views = options.store(), analysing.views(options)
    target = output or store.report
    with analysing.errors(target):
        paths = write_report(analyze(store.directory, views, allow_mixed=allow_mixed), target)
    result(options, {"report": str(paths.page)}, str(paths.page))


def _serve(options: Options, port: int, allow_mixed: bool) -> None:
    from analysis.page import waiting_page
    from analysis.pipeline import analyze
    from analysis.report import write_report
    from analysis.unfinished import Unfinished
    from orchestrator import analysing, live_report
    from orchestrator.store import now
    from orchestrator.watch import Watcher

    store, views = options.store(), analysing.views(options)
    watcher = Watcher(options.study(), store)
    name = store.directory.resolve().name

    def build(moment: live_report.Moment, version: str, at: str, folder: Path) -> bytes:
        live = Unfinished(sets=moment.sets, sweeping=moment.sweeping, version=version, at=at)
        try:
            with analysing.errors(folder):
                analysis = analyze(store.directory, views, allow_mixed=allow_mixed)
                return write_report(analysis, folder, live).page.read_bytes()
        except VbstudyError as error:  # mostly that no run is done yet; the next page may be one
            early = live.sweeping and not live.done
            why = (
                "No run is done yet; what is known after the first will stand here."
                if early
                else error.message
            )
            return waiting_page(name, live, why).encode()

    with live_report.serving(port) as server:
        moment = live_report.Moment.of(watcher.look())
        first = Unfinished(sets=moment.sets, sweeping=moment.sweeping, version="0", at=now())
        page = waiting_page(name, first, "The first page is being made.").encode()
        server.site = live_report.Site(page=page, version="0", files={})
        text = f"{server.url}\nfor this machine alone; Ctrl-C ends"
        result(options, {"url": server.url}, text)
        try:
            live_report.keep_building(server, watcher, build)
        except KeyboardInterrupt:
            return  # the way to end it
