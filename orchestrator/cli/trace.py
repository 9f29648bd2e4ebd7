"""The commands that find why models differ: trace and probe."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    FORMATS,
    PROGRAM,
    SEED,
    TIMEOUT,
    WORDS,
    Options,
    ProgramCommand,
    counts,
    note_misplaced,
    print_json,
    result,
    running,
    show,
)
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.experiments.trace_program import ProgramTrace

DEFAULT_STEPS = 100
DTYPES = ("float32", "float64", "bfloat16")
WHAT = {
    "operation": "an operation gives unequal outputs from equal inputs",
    "sequence": "the sides run different operations from equal inputs: what the program does depends on the "
    "{factor}",
    "unlocated": "the inputs of an operation differ, and no traced operation made them: they come from "
    "outside the frameworks, or from another thread or process, such as a DataLoader worker",
    "unrepeatable": "the program does not repeat itself on the same {factor}",
}
NOT_ALL = "an operation differs, and not all of its inputs can be compared"


@click.command(cls=ProgramCommand)
@click.argument("runs", nargs=-1, type=WORDS, metavar="[RUN_A RUN_B | -- PROGRAM ...]")
@click.option("--cpus", "--threads", "cpus", callback=counts, metavar="N,M",
              help="The two CPU counts to compare.")  # fmt: skip
@click.option("--workload", metavar="NAME", help="A workload of the study.", show_default="the first")
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), show_default="the workload's",
              help="The framework to train the workload with.")  # fmt: skip
@click.option("--variant", type=click.Choice(["fixed-seed", "control", "exact"]), show_default="fixed-seed",
              help="The variant in which the workload is trained.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=DEFAULT_STEPS, metavar="N",
              help="The most training steps to compare.")  # fmt: skip
@SEED
@click.option("--hold", multiple=True, metavar="OPERATION",
              help="Run this operation on one thread on both sides, to find the next difference; may be "
              "repeated.")  # fmt: skip
@click.option("--vary", metavar="FACTOR", show_default="threads",
              help="What to vary of a program: isa, workers, hash or env:NAME=a,b.")  # fmt: skip
@click.option("--replay", is_flag=True,
              help="Record the random numbers of a first run of the program, replay them in the "
              "others.")  # fmt: skip
@TIMEOUT
@click.pass_context
def trace(
    context: click.Context,
    runs: tuple[str, ...],
    cpus: tuple[int, ...] | None,
    workload: str | None,
    framework: str | None,
    variant: str | None,
    steps: int,
    seed: int | None,
    hold: tuple[str, ...],
    vary: str | None,
    replay: bool,
    timeout_s: float | None,
) -> None:
    """Find the first operation whose result differs between two thread counts.

    \b
        vbstudy trace -- python train.py    a PyTorch, TensorFlow or JAX program
        vbstudy trace --cpus 1,4            a workload of the study
        vbstudy trace RUN_A RUN_B           two stored runs, by id or folder

    Reports the first operation whose inputs are equal and whose outputs are not, and how the difference
    grows from there. Traces of workloads and stored runs are kept in trace/. Exits with 0 whatever is
    found, with 1 when a program fails, with 2 when it has no operation that can be traced."""
    options: Options = context.obj
    if PROGRAM in context.meta:
        if runs or workload or framework or variant:
            raise UsageError("runs, --workload, --framework and --variant cannot be combined with a program")
        if replay and seed is not None:
            raise UsageError("--seed and --replay: choose one")
        seeds = None if replay else 1 if seed is None else seed
        _trace_program(options, context.meta[PROGRAM], cpus, seeds, steps, hold, vary, timeout_s)
        return
    if seed is not None or hold or vary or replay or timeout_s is not None:
        told = "--seed, --hold, --vary, --replay and --timeout"
        raise UsageError(f"{told} need a program, as in -- python train.py")
    from analysis.diagnosis import trace_figures, traces
    from guest.records.codec import to_json
    from guest.records.run import Framework, Variant
    from guest.records.trace import Outcome
    from orchestrator.experiments import trace as tracing
    from orchestrator.experiments import trace_project, trace_setup

    if bool(runs) == (cpus is not None):
        raise UsageError("name two CPU counts (--cpus 1,4), or two stored runs, or a program (-- COMMAND)")
    store = options.store()
    study = options.study_or_default()
    scope = tracing.TraceScope(steps=steps)
    if cpus is not None:
        chosen = trace_setup.specs_for(
            study,
            cpus,
            workload,
            Framework(framework) if framework else None,
            Variant(variant or "fixed-seed"),
        )
    else:
        if len(runs) != 2:
            raise UsageError(f"two runs are compared; {len(runs)} named")
        if workload or framework or variant:
            raise UsageError("--workload, --framework and --variant go with --cpus; stored runs have theirs")
        a, b = (trace_setup.find_run(store, run) for run in runs)
        chosen = trace_setup.specs_of(a, b)
        scope = trace_setup.scope_for(a, b, steps)
    report = options.reporter("trace: ")
    if cpus is not None and not store.study_file.exists():
        report(f"there is no study in {store.directory}: a workload of the default study is traced")
    with store.lock("vbstudy trace"):
        if chosen[0].workload.project is None:
            found = tracing.work(study, store, chosen, scope, trace_figures.write, report)
        else:
            found = trace_project.work(study, store, chosen, steps, trace_figures.write, report)
    if options.as_json:
        print_json(to_json(found))
    else:
        from analysis.results.printing import print_tables

        show("\n".join(traces.summary(found)))
        if found.origins:
            print_tables([traces.origins_table(found)], sys.stdout)
        if found.outcome is not Outcome.EQUAL:
            options.show_next("vbstudy harden")
    report(f"kept in {store.traces / found.trace_id}")


def _trace_program(
    options: Options,
    program: tuple[str, ...],
    cpus: tuple[int, ...] | None,
    seed: int | None,
    steps: int,
    hold: tuple[str, ...],
    vary: str | None,
    timeout_s: float | None,
) -> None:
    from guest.records.codec import to_json
    from orchestrator.experiments import trace_program
    from orchestrator.experiments.trace_pair import Ask
    from orchestrator.programs import conditions

    factor = conditions.vary(vary or "threads", cpus)
    if len(factor.conditions) != 2:
        told = f"--vary {vary}" if vary else f"--cpus {','.join(map(str, cpus or ()))}"
        raise UsageError(f"{told}: two are compared, and these are {len(factor.conditions)}")
    ask = Ask(
        argv=program,
        folder=options.store().directory.resolve(),
        factor=factor,
        seed=seed,
        steps=steps,
        hold=hold,
        timeout_s=timeout_s,
    )
    note_misplaced(options, program)
    with running(options, "traces of programs are not kept", "trace: ") as say:
        found = trace_program.work(ask, say)
    result(
        options,
        to_json(found),
        "\n".join(_program_summary(found, cpus or (), vary or "threads", options.directory)),
    )


@click.command()
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), default="torch",
              help="The framework whose operations are probed.")  # fmt: skip
@click.option("--threads", "--cpus", "threads", callback=counts, metavar="N,N,...", default="1,2,4,8",
              help="Thread counts; the others are compared with the first.")  # fmt: skip
@click.option(
    "--operation", metavar="PATTERN", default="*", help="Only operations of this name, such as 'conv*'."
)
@click.option("--dtypes", metavar="T,T,...", help=f"Types among {', '.join(DTYPES)}.",
              show_default="all; with --quick float32")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=2, max=100), metavar="N",
              help="Runs of each operation, size, type and thread count.",
              show_default="5, quick 3")  # fmt: skip
@click.option("--quick", is_flag=True, help="Two sizes and one type: about a minute.")
@click.option("--output", type=click.Path(path_type=Path), show_default="probe/ in the study",
              help="The folder of the results.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="Output format.")
@click.pass_obj
def probe(
    options: Options,
    framework: str,
    threads: tuple[int, ...],
    operation: str,
    dtypes: str | None,
    runs: int | None,
    quick: bool,
    output: Path | None,
    form: str,
) -> None:
    """Find the operations whose bits depend on the thread count.

    Every operation of the registry, forward and backward, over sizes, types and thread counts: does it give
    the same bits on every thread count, and does it repeat from run to run?"""
    from analysis.diagnosis import probe_figures, probes
    from analysis.results.printing import Format, render_tables
    from guest.records.codec import seal
    from guest.records.run import Framework
    from orchestrator.experiments import probe as probing
    from orchestrator.study.messages import did_you_mean

    store = options.store()
    if len(threads) < 2:
        raise UsageError(f"--threads {threads[0]}: at least two thread counts are compared")
    if dtypes is None:
        dtypes = "float32" if quick else ",".join(DTYPES)
    types = tuple(dict.fromkeys(name.strip() for name in dtypes.split(",")))
    if wrong := [name for name in types if name not in DTYPES]:
        hint = did_you_mean(wrong[0], DTYPES)
        raise UsageError(f"--dtypes {dtypes}: {wrong[0]!r} is none of {', '.join(DTYPES)}{hint}")
    ask = probing.Ask(
        framework=Framework(framework),
        python=probing.interpreter(options.study() if store.study_file.exists() else None),
        threads=threads,
        pattern=operation,
        dtypes=types,
        quick=quick,
        runs=runs or (3 if quick else 5),
    )
    report = options.reporter("probe: ")
    with contextlib.nullcontext() if output else store.lock("vbstudy probe"):
        found = probing.work(ask, store, output or store.probe, probe_figures.write, report)
    if options.as_json or form == "json":
        click.echo(seal(found), nl=False)
    else:
        click.echo(render_tables([probes.table(found)], Format(form)))
        if form == "table":
            click.echo("\n".join(probes.summary(found)))
    report(f"kept in {output or store.probe}")


def _program_summary(found: ProgramTrace, cpus: tuple[int, ...], vary: str, folder: Path) -> list[str]:
    """The finding in a sentence, the operation, how the difference grows, and what to do next, with what was
    given."""
    from analysis.diagnosis.traces import governed, percent
    from guest.records.printable import counted
    from guest.records.trace import Outcome
    from orchestrator.experiments.trace_program import BY_ITSELF, UNKNOWN
    from orchestrator.programs.conditions import CURE_NEEDS_SEED, INSTRUCTION_SET, THREADS, given

    program = shlex.join(found.command)
    options = given(cpus, found.seed)
    harden = f"vbstudy harden{options} -- {program}"
    by_threads = found.factor == THREADS
    one, other = found.threads
    sides = f"on {one} and {counted(other, 'thread')}" if by_threads else f"with {' and '.join(found.sides)}"
    pair = f"{program} {sides}, {'replayed' if found.seed is None else f'seed {found.seed}'}"
    held = f", with {', '.join(found.hold)} on one thread" if found.hold else ""
    compared = f"{found.operations:,} operations"
    if found.steps:
        compared += f" in {counted(found.steps, 'optimizer step')}"
    if found.outcome is Outcome.EQUAL:
        return [
            f"{pair}{held}: equal to the last bit in all {compared}",
            *(f"note: {note}" for note in found.notes),
        ]
    where = f"step {found.step}, after {found.operations:,} equal operations"
    unknown = found.outcome is Outcome.UNLOCATED and UNKNOWN in found.notes
    what = NOT_ALL if unknown else WHAT[found.outcome].format(factor=found.factor)
    lines = [f"{pair}{held}: {what} ({where})"]
    origin = found.origin
    if origin is None:
        labels = (found.unrepeatable, found.unrepeatable) if found.unrepeatable else found.sides
        lines += [f"  {label}: {each}" for label, each in zip(labels, found.at, strict=bool(found.at))]
        lines += [f"note: {note}" for note in found.notes]
        if found.unrepeatable:
            cured = by_threads and found.unrepeatable != found.sides[0]  # the fewest threads do repeat
            if cured and BY_ITSELF in found.notes:
                return [*lines, "", f"next: {CURE_NEEDS_SEED if found.seed is None else harden}"]
            drawn = "random numbers" if found.seed is None else "seeds"
            lines += ["", f"next: both runs had the same {drawn}; what may not repeat"]
            lines.append(f"  vbstudy scan {shlex.quote(str(folder))}")
            if found.seed is not None:
                lines.append(f"  vbstudy trace --replay{given(cpus, None, vary)} -- {program}")
                lines += [f"  {harden}"] * cured
        return lines
    differing = f"{origin.differing:,} of {origin.elements:,} elements differ"
    ulp = "" if origin.max_ulp is None else f", by up to {origin.max_ulp:,} ULP"
    rows = {
        "operation": f"{origin.op}, {origin.phase}",
        "module": origin.module,
        "line": f"{origin.source}: {origin.text}" if origin.source else "",
        "inputs": ", ".join(origin.inputs),
        "outputs": ", ".join(origin.outputs),
        "difference": differing + ulp,
    }
    lines += [f"  {name:<11}{value}" for name, value in rows.items() if value]
    if by_threads:
        lines.append(f"  {governed(origin)}")
    for each in found.growth:
        share = each.differing / each.elements
        lines.append(
            f"  after step {each.step}: {percent(share)} of {each.elements:,} weights differ, "
            f"|a-b| / |a| = {each.relative_l2:.1e}"
        )
    if found.growth and not any(each.differing for each in found.growth):
        lines.append(
            "  these are the weights of the optimizer; what differs is not among them, or does not reach them"
        )
    lines += [f"note: {note}" for note in found.notes]
    if not by_threads:
        cured = found.factor == INSTRUCTION_SET and found.framework == "torch" and found.seed is not None
        return [*lines, "", f"next: vbstudy try --exact --vary isa{options} -- {program}"] if cured else lines
    if found.framework != "torch":
        cure = CURE_NEEDS_SEED if found.seed is None else harden
        return [*lines, "", f"next: {cure}"]
    held_next = " ".join(f"--hold {op}" for op in (*found.hold, origin.op))
    if found.seed is None:
        again = f"  vbstudy trace {held_next} --replay{options} -- {program}"
        return [*lines, "", f"next: the next difference; {CURE_NEEDS_SEED}", again]
    return [
        *lines,
        "",
        "next: the cheapest cure that is proved, and the next difference",
        f"  {harden}",
        f"  vbstudy trace {held_next}{options} -- {program}",
    ]
