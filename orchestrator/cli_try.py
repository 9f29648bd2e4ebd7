"""The command `try`: does the thread count matter for this program?"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

import click

from orchestrator.cli_options import CommandFailed, Options, result
from orchestrator.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from orchestrator.trial_runs import Report


@click.command("try", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--cpus", metavar="N,N,...", help="Thread counts [default: 1 and the host's cores, at least 2]."
)
@click.option("--repetitions", type=click.IntRange(min=2), default=2, metavar="N",
              help="Runs on each thread count [default: 2].")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, help="Of all generators [default: 1].")
@click.option(
    "--replay", is_flag=True, help="Set no seed: record what the first run draws, replay it in the others."
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="For one run [default: none].")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def try_(
    options: Options,
    cpus: str | None,
    repetitions: int,
    seed: int,
    replay: bool,
    timeout_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Run a program on two thread counts, twice each, and say whether that matters.

    \b
        vbstudy try -- python train.py --epochs 1

    Nothing is declared or edited. The program runs in copies of the folder (-C), with its generators
    seeded from outside; printed numbers that have a name, and the model and prediction files that it writes,
    are compared. Ends with 0 whatever the answer is, with 1 when the program fails."""
    from orchestrator import trial_runs
    from orchestrator.scheduler import host_cores
    from orchestrator.study import parse_counts

    counts = parse_counts(cpus) if cpus is not None else (1, max(2, len(host_cores())))
    if len(counts) < 2:
        raise UsageError(f"--cpus {cpus}: two thread counts are needed, as in --cpus 1,4")
    folder = options.store().directory.resolve()
    console = options.stderr()

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    wanted = None if replay else seed
    try:
        report = trial_runs.run(command, folder, counts, repetitions, wanted, timeout_s, say)
    except KeyboardInterrupt:
        click.echo("vbstudy: stopped; of a trial nothing is kept", err=True)
        raise CommandFailed(EXIT_INTERRUPTED) from None
    result(options, dataclasses.asdict(report), told(report))


def told(report: Report) -> str:
    """The report for a person."""
    program = shlex.join(report.command)
    numbers = "random numbers of the first run" if report.seed is None else f"seed {report.seed}"
    lines = [f"{program}: {_listed(report.threads)} threads, {report.repetitions} times each, {numbers}"]
    for verdict in report.verdicts:
        answer = NOTHING[verdict.level] if verdict.answer == "nothing seen" else verdict.answer.upper()
        lines += ["", f"{verdict.level:<12} {answer}"]
        lines += [f"{'':<12} {line}" for line in verdict.evidence]
        if verdict.level == "metric" and not verdict.evidence and report.last_lines:
            lines.append(f"{'':<12} the end of what it printed:")
            lines += [f"{'':<12}   {line}" for line in report.last_lines]
    times = ", ".join(f"{count}: {seconds:.1f} s" for count, seconds in report.wall_s.items())
    lines += ["", f"seconds a run (mean of {report.repetitions}): {times}"]
    if report.oversubscribed:
        lines.append(f"more threads than cores at {_listed(report.oversubscribed)}: the times say nothing")
    for one in report.overrides:
        lines.append(f"the program sets itself: {one.what} = {one.value} ({one.where or 'a library'})")
    lines += [f"note: {note}" for note in report.notes]
    if report.seed is not None and any(v.answer == "cannot be told" for v in report.verdicts):
        lines.append(
            "a seed does not reach all that the program draws, or it does not repeat itself: try --replay"
        )
    return "\n".join(lines)


NOTHING = {
    "bitwise": "no model file seen: have it write one, or call guest.report.weights(model)",
    "predictions": "no prediction file seen: have it write one, or call guest.report.predictions(...)",
    "metric": "no number with a name was printed or logged, as in `accuracy: 0.93`",
}


def _listed(counts: tuple[int, ...]) -> str:
    *first, last = map(str, counts)
    return f"{', '.join(first)} and {last}" if first else last


def add_to(group: click.Group) -> None:
    """Registers the command of this module."""
    group.add_command(try_)
