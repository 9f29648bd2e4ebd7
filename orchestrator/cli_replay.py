"""The commands record and replay. As thin as those of `cli`."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli_options import CommandFailed, Options, print_json
from orchestrator.errors import StoreError, UsageError

LEVELS = ("auto", "library", "python")
PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(context_settings=PROGRAM)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The recording to write.")
@click.option("--level", type=click.Choice(LEVELS), default="auto",
              help="A preloaded library, or Python alone [default: auto].")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite a recording that is there.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def record(options: Options, output: Path, level: str, force: bool, command: tuple[str, ...]) -> None:
    """Run a program and keep the random numbers that it draws.

    \b
        vbstudy record --output run.rec -- python train.py --epochs 3

    Nothing in the program is changed. Ends with the program's own exit code."""
    from orchestrator import replaying

    if output.exists() and not force:
        raise UsageError(f"{output}: exists already; give another name, or overwrite it with --force")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output}: {output.absolute().parent} is not a folder")
    chosen, why = replaying.choose_level(level)
    try:
        made, ended = replaying.record(command, output, chosen)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be written: {error.strerror}") from None
    said = replaying.remarks(ended, chosen, why)
    data = replaying.as_json(made.header, len(made.draws), made.size_bytes, said)
    _tell(options, data, f"recorded {len(made.draws)} draws ({made.size_bytes} bytes) in {output}", said)
    if ended.status != 0:
        raise CommandFailed(ended.status)


@click.command(context_settings=PROGRAM)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def replay(options: Options, file: Path, command: tuple[str, ...]) -> None:
    """Run a program with the random numbers of a recording.

    \b
        vbstudy replay run.rec -- python train.py --epochs 3

    Ends with the program's own exit code, or with 5 when it asks for other numbers than were recorded."""
    if command[0] == "--":  # click leaves the one behind FILE where it is
        command = command[1:]
    if not command:
        raise UsageError("which program? vbstudy replay FILE -- PROGRAM ARGUMENTS")
    from guest.records import RecordError
    from guest.replay import recording
    from orchestrator import replaying

    if not file.exists():
        raise UsageError(f"{file}: there is no such recording; `vbstudy record --output {file}` makes one")
    try:
        recorded = recording.read(file)
    except RecordError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror}") from None
    try:
        done = replaying.replay(recorded, command)
    except RecordError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be written: {error.strerror}") from None
    said = replaying.remarks(done.ended, recorded.header.level, "")
    if done.idle:
        said.append(f"recorded processes that did not run this time: {', '.join(done.idle)}")
    data = replaying.as_json(recorded.header, done.draws, recorded.size_bytes, said)
    _tell(options, data, f"replayed {done.draws} draws of {file}", said)
    if done.ended.status != 0:
        raise CommandFailed(done.ended.status)


def _tell(options: Options, data: object, text: str, said: list[str]) -> None:
    """On stderr: stdout is the program's."""
    if options.as_json:
        print_json(data)
        return
    console = options.stderr()
    for line in (f"vbstudy: {text}", *(f"note: {each}" for each in said)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def add_to(group: click.Group) -> None:
    """Registers the commands of this module."""
    for command in (record, replay):
        group.add_command(command)
