"""The commands for programs that belong to no study: try, record and replay."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import CommandFailed, Options, print_json, result
from orchestrator.errors import EXIT_INTERRUPTED, StoreError, UsageError

if TYPE_CHECKING:
    from orchestrator.programs.try_runs import Report

LEVEL_NAMES = {"bitwise": "weights", "predictions": "predictions", "metric": "metrics"}
LEVELS = ("auto", "library", "python")
PROGRAM = {"allow_interspersed_args": False}  # what follows belongs to the user
NOTHING_SEEN = {
    "bitwise": "no model file seen: have the program write one, or call vbstudy.report.weights(model)",
    "predictions": "no prediction file seen: have the program write one, or call "
    "vbstudy.report.predictions(...)",
    "metric": "no number with a name was printed or logged, as in `accuracy: 0.93`",
}


@click.command("try", context_settings=PROGRAM)
@click.option("--cpus", metavar="N,N,...", help="Thread counts.",
              show_default="1 and the host's cores, at least 2")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=2), default=2, metavar="N",
              help="Runs on each thread count.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, help="The seed of all generators.")
@click.option(
    "--replay", is_flag=True, help="Set no seed: record what the first run draws, replay it in the others."
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="For one run.", show_default="none")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def try_(
    options: Options,
    cpus: str | None,
    runs: int,
    seed: int,
    replay: bool,
    timeout_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Run a program on two thread counts, twice each, and report whether the thread count matters.

    \b
        vbstudy try -- python train.py --epochs 1

    Nothing is declared or edited. The program runs in copies of the folder (-C), with its generators
    seeded from outside. Printed numbers that have a name and the model and prediction files that it writes
    are compared. Exits with 0 whatever the answer is, with 1 when the program fails."""
    from orchestrator.cores.leases import host_cores
    from orchestrator.programs import try_runs
    from orchestrator.study.schema import parse_counts

    counts = parse_counts(cpus) if cpus is not None else (1, max(2, len(host_cores())))
    if len(counts) < 2:
        raise UsageError(f"--cpus {cpus}: two thread counts are needed, as in --cpus 1,4")
    folder = options.store().directory.resolve()
    given = None if replay else seed
    try:
        report = try_runs.run(command, folder, counts, runs, given, timeout_s, options.reporter())
    except KeyboardInterrupt:
        click.echo("vbstudy: stopped; results of `try` are not kept", err=True)
        raise CommandFailed(EXIT_INTERRUPTED) from None
    result(options, dataclasses.asdict(report), summary_text(report))


def summary_text(report: Report) -> str:
    """The report for a person."""
    program = shlex.join(report.command)
    numbers = "random numbers of the first run" if report.seed is None else f"seed {report.seed}"
    lines = [
        _answer(report),
        "",
        f"{program}: {_listed(report.threads)} threads, {report.repetitions} times each, {numbers}",
    ]
    for verdict in report.verdicts:
        unseen = verdict.answer == "nothing seen"
        answer = NOTHING_SEEN[verdict.level] if unseen else verdict.answer.upper()
        lines += ["", f"{verdict.level:<12} {answer}"]
        lines += [f"{'':<12} {line}" for line in verdict.evidence]
        if verdict.level == "metric" and not verdict.evidence and report.last_lines:
            lines.append(f"{'':<12} the last lines of its output:")
            lines += [f"{'':<12}   {line}" for line in report.last_lines]
    times = ", ".join(f"{count}: {seconds:.1f} s" for count, seconds in report.wall_s.items())
    lines += ["", f"seconds a run (mean of {report.repetitions}): {times}"]
    if report.oversubscribed:
        lines.append(f"more threads than cores at {_listed(report.oversubscribed)}: these times are invalid")
    for one in report.overrides:
        lines.append(f"the program sets itself: {one.what} = {one.value} ({one.where or 'a library'})")
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines + _next(report))


def _answer(report: Report) -> str:
    """The answer over all levels, in a sentence."""
    matters, same, unclear = (
        " and ".join(LEVEL_NAMES[v.level] for v in report.verdicts if v.answer == answer)
        for answer in ("thread count matters", "same on all thread counts", "inconclusive")
    )
    found = [
        f"it changes the {matters}" if matters else "",
        f"the {same} are the same" if same else "",
        f"whether it changes the {unclear} is inconclusive" if unclear else "",
    ]
    if not any(found):
        return "Nothing was seen that could be compared."
    answer = "The thread count matters" if matters else "The thread count was not seen to matter"
    return f"{answer}: {', '.join(filter(None, found))}."


def _next(report: Report) -> list[str]:
    answers = {verdict.answer for verdict in report.verdicts}
    if "thread count matters" in answers:
        return ["", f"next, with PyTorch: vbstudy exact -- {shlex.join(report.command)}"]
    if "inconclusive" in answers and report.seed is not None:
        why = "the seed does not reach every generator, or the program is not repeatable"
        return ["", why, f"next: vbstudy try --replay -- {shlex.join(report.command)}"]
    return []


def _listed(counts: tuple[int, ...]) -> str:
    *first, last = map(str, counts)
    return f"{', '.join(first)} and {last}" if first else last


@click.command(context_settings=PROGRAM)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The recording to write.")
@click.option("--level", type=click.Choice(LEVELS), default="auto",
              help="A preloaded library, or Python alone.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing recording.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def record(options: Options, output: Path, level: str, force: bool, command: tuple[str, ...]) -> None:
    """Run a program and record the random numbers that it draws.

    \b
        vbstudy record --output run.rec -- python train.py --epochs 3

    The program is not changed. Exits with the program's own exit code."""
    from orchestrator.programs import replay as replaying

    if output.exists() and not force:
        raise UsageError(f"{output}: exists already; give another name, or overwrite it with --force")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output}: {output.absolute().parent} is not a folder")
    chosen, why = replaying.choose_level(level)
    try:
        made, ended = replaying.record(command, output, chosen)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be written: {error.strerror}") from None
    notes = replaying.remarks(ended, chosen, why)
    data = replaying.as_json(made, notes)
    text = f"recorded {len(made.draws)} draws ({made.size_bytes} bytes) in {output}"
    _print_on_stderr(options, data, text, notes)
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

    Exits with the program's own exit code, or with 5 when it asks for other numbers than were recorded."""
    if command[0] == "--":  # click leaves the one behind FILE where it is
        command = command[1:]
    if not command:
        raise UsageError("no program is named: vbstudy replay FILE -- PROGRAM ARGUMENTS")
    from guest.records.codec import RecordError
    from guest.replay import recording
    from orchestrator.programs import replay as replaying

    if not file.exists():
        raise UsageError(f"{file}: no such recording; `vbstudy record --output {file}` makes one")
    try:
        recorded = recording.read(file)
    except RecordError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror}") from None
    try:
        ended, idle = replaying.replay(recorded, command)
    except RecordError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be written: {error.strerror}") from None
    notes = replaying.remarks(ended, recorded.header.level, "")
    if idle:
        notes.append(f"recorded processes that did not run this time: {', '.join(idle)}")
    text = f"replayed {len(recorded.draws)} draws of {file}"
    _print_on_stderr(options, replaying.as_json(recorded, notes), text, notes)
    if ended.status != 0:
        raise CommandFailed(ended.status)


def _print_on_stderr(options: Options, data: object, text: str, notes: list[str]) -> None:
    """stdout is the program's; JSON alone goes there."""
    if options.as_json:
        print_json(data)
        return
    for line in (f"vbstudy: {text}", *(f"note: {each}" for each in notes)):
        options.reporter()(line)
