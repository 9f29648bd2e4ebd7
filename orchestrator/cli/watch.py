"""The command watch."""

from __future__ import annotations

import contextlib
import time

import click

from orchestrator.cli.options import Options, print_json, stdout

FILE_WIDTH = 120  # a pipe has none, and a narrower table cuts its words


@click.command()
@click.option("--once", is_flag=True, help="Print one moment and end; so it is without a terminal.")
@click.option("--every", "every_s", type=click.FloatRange(0.2), default=1.0, metavar="S",
              help="Seconds between two frames.")  # fmt: skip
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
    console = stdout()
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    if once or not console.is_terminal:
        console.print(render(watcher.look()))
        return
    # On a screen of its own, which is taken away in the end: the terminal is as it was before.
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(render(watcher.look(), console.height), refresh=True)
            time.sleep(every_s)
