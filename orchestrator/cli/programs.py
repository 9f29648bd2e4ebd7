"""The commands for programs that belong to no study: try, exact, record and replay."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import get_args

import click

from guest.records.codec import to_json
from orchestrator.cli.options import (
    TIMEOUT,
    WORDS,
    CommandFailed,
    FiniteRange,
    Options,
    counts,
    note_misplaced,
    print_json,
    result,
    running,
)
from orchestrator.errors import StoreError, UnmetError, UsageError
from orchestrator.files import require_writable
from vbstudy.exact.registry import Level

LEVELS = ("auto", "library", "python")
PROGRAM = {"allow_interspersed_args": False}  # what follows belongs to the user
CHECKED = ("bitwise", "predictions", "metric")  # LEVELS of try_verdicts, too heavy to import for --help


@click.command("try", context_settings=PROGRAM)
@click.option("--cpus", "--threads", "cpus", callback=counts, metavar="N,N,...",
              help="The thread counts to compare.",
              show_default="1 and the host's cores, at least 2")  # fmt: skip
@click.option("--vary", default="threads", metavar="FACTOR", show_default=True,
              help="What to vary: threads, isa (AVX-512 or AVX2), workers (of DataLoaders), hash "
              "(Python's hash seed) or env:NAME=VALUE,VALUE.")  # fmt: skip
@click.option("--which", is_flag=True,
              help="Find the thread pool that matters: each in turn has its "
              "threads, the others one.")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=2), metavar="N", show_default="2, with --exact 3",
              help="Runs under each condition.")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=1, metavar="N", help="The seed of all generators."
)
@click.option("--replay", is_flag=True, help="Set no seed; replay the random numbers of the first run.")
@click.option(
    "--exact", is_flag=True, help="Also run in exact mode: do all runs then agree, and at what cost?"
)
@click.option("--check", is_flag=True,
              help="Exit with 1 unless everything compared is the same; with --exact, in the runs in exact "
              "mode.")  # fmt: skip
@click.option("--level", type=click.Choice(CHECKED), show_default="bitwise",
              help="What --check requires to be equal: all, predictions and metrics, or "
              "metrics alone.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write hashes, numbers and environment to FILE, for --against on another "
              "machine.")  # fmt: skip
@click.option("--against", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Compare with what --save wrote on another machine.")  # fmt: skip
@TIMEOUT
@click.option("--disk-limit", "disk_gib", type=FiniteRange(0.001, 1e6), default=10.0, metavar="GIB",
              help="The most GiB that one run may write, from 0.001.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=WORDS)
@click.pass_obj
def try_(
    options: Options,
    cpus: tuple[int, ...] | None,
    vary: str,
    which: bool,
    runs: int | None,
    seed: int,
    replay: bool,
    exact: bool,
    check: bool,
    level: str | None,
    save: Path | None,
    against: Path | None,
    timeout_s: float | None,
    disk_gib: float,
    command: tuple[str, ...],
) -> None:
    """Run a program on two thread counts, twice each, and report whether the thread count matters.

    \b
        vbstudy try -- python train.py --epochs 1
        vbstudy try --exact -- python train.py    does exact mode cure it?
        vbstudy try --check -- python train.py    for CI: status 1 if it matters

    The program needs no edit. It runs in copies of the folder (-C), and its random generators are seeded
    from outside. The comparison covers all files that it writes there, models and predictions that Python
    writes elsewhere (arrays where the format is known, else bytes), named numbers that it prints, logs or
    writes, and its output. Exits with 0 whatever the answer is, unless --check is given; with 1 when the
    program fails."""
    from orchestrator.programs import (
        conditions,
        folders,
        try_report,
        try_runs,
        try_saved,
        try_study,
        try_which,
    )
    from orchestrator.programs.try_verdicts import LEVELS, Answer, first_shown, overall

    if level and not check:
        raise UsageError(f"--level {level} needs --check")
    if which and (exact or check or save or against or vary != "threads"):
        raise UsageError("--which cannot be combined with --vary, --exact, --check, --save or --against")
    if exact and replay:
        raise UsageError("--exact and --replay: choose one")
    factor = conditions.vary(vary, cpus)
    if save is not None:
        if not save.absolute().parent.is_dir():
            raise UsageError(f"{save}: {save.absolute().parent} is not a folder")
        require_writable(save)
    there = try_saved.read(against) if against is not None else None
    if there is not None:  # before an hour of runs
        try_saved.common(there, [condition.label for condition in factor.conditions])
    ask = try_runs.Ask(
        argv=command,
        folder=options.store().directory.resolve(),
        repetitions=runs or (3 if exact else 2),
        seed=None if replay else seed,
        timeout_s=timeout_s,
        disk_bytes=int(disk_gib * 2**30),
    )
    note_misplaced(options, command)
    not_kept = "results of `try` are not kept"
    links = folders.notes_of_links(ask.folder)
    if which:
        with running(options, not_kept) as say:
            found = try_which.run(ask, max(c.threads for c in factor.conditions), say)
        found = dataclasses.replace(found, notes=(*links, *found.notes))
        result(options, to_json(found), try_which.text(found))
        return
    with running(options, not_kept) as say:
        report, seen = try_report.run(ask, factor, exact, say)
    report = dataclasses.replace(report, notes=(*links, *report.notes))
    varied = [condition.threads for condition in factor.conditions]
    try_study.note(report, ask.folder, varied, seen.noticed, seen.trials[0].lines)
    data, text = to_json(report), try_report.text(report, cpus or (), vary)
    own = report.exact.verdicts if report.exact else report.verdicts  # none where exact mode was not measured
    if there is not None and against is not None:
        compared = try_saved.compare(there, try_saved.saved(command, factor.name, ask.seed, seen))
        data |= {"against": to_json(compared)}
        text = f"{try_saved.text(compared, against)}\n\n{text}"
        labels = [label for label in compared.verdicts if not exact or label.endswith(try_report.EXACT)]
        judged = [compared.verdicts[label] for label in labels if own]
    else:
        judged = [own]
    result(options, data, text)
    if save is not None:
        try_saved.write(save, try_saved.saved(command, factor.name, ask.seed, seen))
    level = level or "bitwise"
    answers = {overall(verdicts, LEVELS[LEVELS.index(level) :]) for verdicts in judged}
    if check and try_report.unvaried(report):
        raise UnmetError("--check: the thread count was not varied: the program sets its own")
    if check and answers != {Answer.SAME}:
        why = {
            Answer.MATTERS: "not everything that was compared is the same",
            Answer.INCONCLUSIVE: "runs differ within one condition, so the comparison is inconclusive",
            Answer.ABSENT: "nothing was seen that could be compared",
        }[first_shown(answers - {Answer.SAME})]
        raise UnmetError(f"--check: {'in exact mode ' if exact else ''}at level {level} {why}")


@click.command(context_settings=PROGRAM)
@click.option("--threads", type=click.IntRange(min=1), metavar="N",
              help="Threads of torch and of numpy's libraries.", show_default="its own")  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at an operation that --level does not cover.")
@click.option("--level", type=click.Choice(get_args(Level)), default="machine",
              help="threads: the bits still depend on the CPU and torch's version; machine: in float32 they "
                   "do not, except in linear algebra, FFT and other operations that --strict "
                   "refuses.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=WORDS)
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

    if not command[0]:
        raise UsageError("the name of the program is empty: write -- python train.py")
    try:
        os.chdir(options.folder())
        launch.run(command, threads=threads, strict=strict, level=level, verbose=options.verbose)
    except OSError as error:
        from guest.projects.command import not_started

        raise UsageError(f"{command[0]}: {not_started(command[0], Path(), error)}") from None


@click.command(context_settings=PROGRAM)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The recording to write.")
@click.option("--level", type=click.Choice(LEVELS), default="auto",
              help="What records: a preloaded library (all random bytes), Python alone, or the "
              "first that works.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing recording.")
@click.argument("command", nargs=-1, required=True, type=WORDS)
@click.pass_obj
def record(options: Options, output: Path, level: str, force: bool, command: tuple[str, ...]) -> None:
    """Run a program and record the random numbers that it draws.

    \b
        vbstudy record --output run.rec -- python train.py --epochs 3

    The program is not changed, and runs in its folder (-C); the path of the recording is relative to the
    current folder. Exits with the program's own exit code."""
    from orchestrator.programs import replay as replaying

    path = output.absolute()
    if output.exists() and not force:
        raise UsageError(f"{output}: exists already; give another name, or overwrite it with --force")
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{output}: {path.parent} is not a folder")
    require_writable(output)
    chosen, why = replaying.choose_level(level)
    try:
        with contextlib.chdir(options.folder()):
            made, ended = replaying.record(command, path, chosen)
    except OSError as error:
        raise StoreError(f"{error.filename or output}: cannot be written: {error.strerror}") from None
    notes = replaying.remarks(ended, chosen, why)
    data = replaying.as_json(made, notes)
    text = f"recorded {len(made.draws)} draws ({made.size_bytes} bytes) in {output}"
    _end(options, data, text, notes, ended.status)


@click.command(context_settings=PROGRAM)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("command", nargs=-1, required=True, type=WORDS)
@click.pass_obj
def replay(options: Options, file: Path, command: tuple[str, ...]) -> None:
    """Run a program with the random numbers of a recording.

    \b
        vbstudy replay run.rec -- python train.py --epochs 3

    It runs in its folder (-C); FILE is relative to the current one. Exits with the program's own exit code,
    or with 5 when it asks for other numbers than were recorded."""
    if command[0] == "--":  # click leaves the one behind FILE where it is
        command = command[1:]
    if not command:
        raise UsageError("no program is named: vbstudy replay FILE -- PROGRAM ARGUMENTS")
    from guest.records.codec import RecordError
    from guest.replay import recording
    from orchestrator.programs import replay as replaying

    if not file.exists():
        raise UsageError(
            f"{file}: no such recording (name it before the program); "
            f"`vbstudy record --output {file} -- PROGRAM` makes one"
        )
    try:
        recorded = recording.read(file)
    except RecordError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror}") from None
    try:
        with contextlib.chdir(options.folder()):
            ended, idle = replaying.replay(recorded, command)
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be written: {error.strerror}") from None
    notes = replaying.remarks(ended, recorded.header.level, "") + idle
    text = f"replayed {len(recorded.draws)} draws of {file}"
    _end(options, replaying.as_json(recorded, notes), text, notes, ended.status)


def _end(options: Options, data: object, text: str, notes: list[str], status: int) -> None:
    """Passes the program's exit code on. stdout is the program's; JSON alone goes there."""
    if options.as_json:
        print_json(data)
    else:
        for line in (f"vbstudy: {text}", *(f"note: {each}" for each in notes)):
            options.reporter()(line)
    if status != 0:
        raise CommandFailed(status)
