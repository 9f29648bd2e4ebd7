"""The command `exact`: a program that nobody edited, with exact mode on."""

from __future__ import annotations

import os
from typing import get_args

import click

from orchestrator.cli.options import Options
from orchestrator.errors import UsageError
from vbstudy.exact.registry import Level


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--threads", type=click.IntRange(min=1), metavar="N",
              help="Threads of torch and of numpy's libraries.", show_default="its own")  # fmt: skip
@click.option("--strict", is_flag=True, help="An operation that is not at the level is an error.")
@click.option("--level", type=click.Choice(get_args(Level)), default="machine",
              help="What bits may depend on: nothing but the inputs, or also the CPU and torch.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def exact(
    options: Options, threads: int | None, strict: bool, level: Level, command: tuple[str, ...]
) -> None:
    """Run a program with exact mode on: the same bits on any number of threads.

    \b
        vbstudy exact -- python train.py --epochs 3

    The program is not changed, runs in its folder (-C), and gets exact mode when it imports torch;
    TensorFlow gets pools of a fixed size. Python processes that it starts have it, too. With -v,
    one line on stderr at the end. Exits with the program's own exit code."""
    from vbstudy.exact import launch

    try:
        os.chdir(options.directory)
        launch.run(command, threads=threads, strict=strict, level=level, verbose=options.verbose)
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from None
