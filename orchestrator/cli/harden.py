"""The command harden."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    KEPT,
    PROGRAM,
    SEED,
    TIMEOUT,
    Options,
    ProgramCommand,
    counts,
    note_misplaced,
    print_json,
    result,
    running,
    show,
)
from orchestrator.errors import UnmetError, UsageError

if TYPE_CHECKING:
    from guest.records.harden import Hardening
    from guest.records.run import Tier


@click.command(cls=ProgramCommand)
@click.option("--cpus", "--threads", "cpus", callback=counts, metavar="N,N,...",
              help="The CPU counts to compare.",
              show_default="the study's; for a program 1 and the host's cores, at least 2")  # fmt: skip
@click.option("--workload", metavar="NAME", help="A workload of the study.", show_default="each")
@click.option("--runs", type=click.IntRange(min=1), default=3, metavar="N",
              help="Trainings with each tier on each CPU count; for a program 2 or more.")  # fmt: skip
@click.option("--tiers", "names", metavar="T,T,...", help="Tiers by number or name.",
              show_default="all, 0-5")  # fmt: skip
@SEED
@TIMEOUT
@click.pass_context
def harden(
    context: click.Context,
    cpus: tuple[int, ...] | None,
    workload: str | None,
    runs: int,
    names: str | None,
    seed: int | None,
    timeout_s: float | None,
) -> None:
    """Find the cheapest way to the same model on any thread count.

    \b
        vbstudy harden -- python train.py     a program, as it is
        vbstudy harden                        the workloads of the study; without
                                              one, of the default study

    \b
    Trains with each of these tiers on each CPU count:
        0 seeds             fixed seeds alone: the default, the reference
        1 switches          the framework's deterministic switches
        2 environment       MKL's strict mode (Intel CPUs), oneDNN off
        3 logical-threads   as many threads as the largest CPU count
        4 exact             exact mode
        5 one-thread        one thread

    A tier is proved when the weights, the logits and the weights at recorded training steps are bitwise
    equal in all trainings; for a program, when all that `vbstudy try` compares is the same. Prints the
    command, or the lines to paste, of the cheapest proved tier. Exits with 0 when a tier is proved for each
    workload, else with 1. It can be stopped at any time; running it again resumes."""
    options: Options = context.obj
    if PROGRAM in context.meta:
        if workload:
            raise UsageError("--workload cannot be combined with a program")
        _harden_program(options, context.meta[PROGRAM], cpus, runs, _tiers(names), seed, timeout_s)
        return
    if seed is not None or timeout_s is not None:
        raise UsageError("--seed and --timeout need a program, as in -- python train.py")
    from analysis.diagnosis.hardening import hardening_tables, judge
    from analysis.results.printing import print_tables
    from guest.records.codec import to_json
    from guest.records.run import Tier
    from orchestrator.agent import archive
    from orchestrator.experiments import harden as hardening
    from orchestrator.study import snapshots
    from orchestrator.study.plan import first_runs

    store, study = options.store(), options.study_or_default()
    tiers = _tiers(names)
    report = options.reporter("harden: ")
    found: list[Hardening] = []
    with store.lock("vbstudy harden"):
        agent = archive.build()
        snapshots.prepare(study, store)
        planned = first_runs(study, workload)
        why = {base.workload.name: hardening.unsuitable(base.workload) for base in planned}
        told = [f"{name}: {reason}" for name, reason in why.items() if reason]
        if len(told) == len(planned):
            raise UsageError("; ".join(told))
        for line in told:
            report(f"left out: {line}")
        suitable = [each for each in planned if not why[each.workload.name]]
        if not store.study_file.exists():
            most = len(suitable) * len(cpus or study.cpus) * len({Tier.SEEDS, *tiers}) * runs
            report(
                f"there is no study in {store.directory}: the default study is hardened, {most} trainings at "
                "most; `vbstudy init` writes it, Ctrl-C stops"
            )
        for base in suitable:
            begun = hardening.begin(study, store, base, cpus or study.cpus, tiers, runs, agent, report)
            measured = judge(hardening.measure(study, store, begun, agent, report))
            store.hardenings.write(measured.workload.name, measured)
            found.append(measured)
    if options.as_json:
        print_json([to_json(each) for each in found])
    else:
        for each in found:
            show("\n".join(hardening.told(each)))
        print_tables(list(hardening_tables(found).values()), sys.stdout)
        options.show_next("vbstudy analyze")
    unproved = [each.workload.name for each in found if not each.cheapest]
    if unproved:
        raise UnmetError(f"no tier is proved to give equal models of {', '.join(unproved)}")


def _harden_program(
    options: Options,
    command: tuple[str, ...],
    cpus: tuple[int, ...] | None,
    runs: int,
    asked: tuple[Tier, ...],
    seed: int | None,
    timeout_s: float | None,
) -> None:
    from guest.records.codec import to_json
    from orchestrator.programs import conditions, harden_program, try_runs

    if runs < 2:
        raise UsageError("--runs 1: a program is run twice or more with each tier")
    ask = try_runs.Ask(
        argv=command,
        folder=options.store().directory.resolve(),
        repetitions=runs,
        seed=1 if seed is None else seed,
        timeout_s=timeout_s,
    )
    note_misplaced(options, command)
    with running(options, KEPT) as say:
        found = harden_program.run(ask, conditions.thread_counts(cpus), asked, say)
    result(options, to_json(found), harden_program.text(found))
    if not found.cheapest:
        raise UnmetError(f"no tier is proved to make all runs of {shlex.join(command)} agree")


def _tiers(names: str | None) -> tuple[Tier, ...]:
    from guest.machine.tiers import TIERS

    if names is None:
        return tuple(TIERS)
    known = {str(info.number): tier for tier, info in TIERS.items()} | {tier.value: tier for tier in TIERS}
    wanted = [name.strip() for name in names.split(",")]
    wrong = next((name for name in wanted if name not in known), None)
    if wrong is not None:
        there = ", ".join(f"{info.number} {tier}" for tier, info in TIERS.items())
        raise UsageError(f"--tiers {names}: {wrong!r} is none of {there}")
    return tuple(dict.fromkeys(known[name] for name in wanted))
