"""The commands that say why models differ: trace and probe. As thin as those of `cli`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from orchestrator.cli_options import Options
from orchestrator.errors import UsageError

DEFAULT_STEPS = 100
DTYPES = ("float32", "float64", "bfloat16")
FORMATS = ("table", "json", "markdown", "latex", "csv")


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN_A RUN_B]")
@click.option("--cpus", metavar="N,M", help="The two CPU counts that are compared.")
@click.option("--workload", metavar="NAME", help="A workload of the study [default: its first].")
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), help="[default: the workload's]")
@click.option("--variant", type=click.Choice(["fixed-seed", "control"]), help="[default: fixed-seed]")
@click.option("--steps", type=click.IntRange(min=1), default=DEFAULT_STEPS, metavar="N",
              help=f"Training steps to compare at most [default: {DEFAULT_STEPS}].")  # fmt: skip
@click.pass_obj
def trace(
    options: Options,
    runs: tuple[str, ...],
    cpus: str | None,
    workload: str | None,
    framework: str | None,
    variant: str | None,
    steps: int,
) -> None:
    """Find the operation where two thread counts part.

    \b
        vbstudy trace --cpus 1,4        a workload of the study, trained on both
        vbstudy trace RUN_A RUN_B       two stored runs, by id or folder, done again

    The first step whose weights or gradients differ, in it the first operation whose inputs are equal
    and whose output is not, and how the difference grows from there. Kept in trace/."""
    from analysis import traces
    from guest.records import Framework, Variant, to_json
    from orchestrator import study as study_
    from orchestrator import trace_setup, tracing

    if bool(runs) == (cpus is not None):
        raise UsageError("name two CPU counts (--cpus 1,4), or two stored runs")
    store = options.store()
    study = options.study_or_default()
    plan = tracing.Plan(steps=steps)
    if cpus is not None:
        chosen = trace_setup.specs_for(
            study,
            study_.parse_counts(cpus),
            workload,
            Framework(framework) if framework else None,
            Variant(variant or "fixed-seed"),
        )
    else:
        if len(runs) != 2:
            raise UsageError(f"{len(runs)} runs are named; two are compared")
        if workload or framework or variant:
            raise UsageError("--workload, --framework and --variant go with --cpus; stored runs have theirs")
        a, b = (trace_setup.find_run(store, run) for run in runs)
        chosen = trace_setup.specs_of(a, b)
        plan = trace_setup.plan_for(a, b, steps)
    console = options.stderr()

    def say(text: str) -> None:
        console.print(f"trace: {text}", highlight=False, soft_wrap=True)

    with store.lock("vbstudy trace"):
        found = tracing.work(study, store, chosen, plan, traces.apart, traces.write, say)
    if options.as_json:
        click.echo(json.dumps(to_json(found), indent=1))
    else:
        from analysis.printing import console_for, table_text

        if found.origins:
            console_for(sys.stdout).print(table_text(traces.origins_table(found)))
        click.echo("\n".join(traces.summary(found)))
    console.print(f"trace: kept in {store.traces / found.trace_id}", highlight=False, soft_wrap=True)


@click.command()
@click.option(
    "--framework", type=click.Choice(["torch", "tensorflow"]), default="torch", help="[default: torch]"
)
@click.option("--threads", "--cpus", "threads", metavar="N,N,...", default="1,2,4,8",
              help="The others are compared with the first [default: 1,2,4,8].")  # fmt: skip
@click.option("--operation", metavar="PATTERN", default="*", help="Only those, for example 'conv*'.")
@click.option(
    "--dtypes", metavar="T,T,...", help=f"Of {', '.join(DTYPES)} [default: all; with --quick float32]."
)
@click.option(
    "--runs", type=click.IntRange(min=2), metavar="N", help="Runs a cell [default: 5; with --quick 3]."
)
@click.option("--quick", is_flag=True, help="Two sizes and one type: about a minute.")
@click.option("--output", type=click.Path(path_type=Path), help="[default: probe/ in the study's folder]")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="[default: table]")
@click.pass_obj
def probe(
    options: Options,
    framework: str,
    threads: str,
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
    from analysis import probes
    from analysis.printing import Format, render_table
    from guest.probe_records import encode
    from guest.records import Framework
    from orchestrator import probing
    from orchestrator import study as study_
    from orchestrator.study_messages import did_you_mean

    store = options.store()
    counts = study_.parse_counts(threads, "--threads")
    if len(counts) < 2:
        raise UsageError(f"--threads {threads}: at least two thread counts are compared")
    if dtypes is None:
        dtypes = "float32" if quick else ",".join(DTYPES)
    types = tuple(dict.fromkeys(name.strip() for name in dtypes.split(",")))
    if wrong := [name for name in types if name not in DTYPES]:
        hint = did_you_mean(wrong[0], DTYPES)
        raise UsageError(f"--dtypes {dtypes}: {wrong[0]!r} is none of {', '.join(DTYPES)}{hint}")
    ask = probing.Ask(
        framework=Framework(framework),
        python=probing.interpreter(options.study() if store.study_file.exists() else None),
        threads=counts,
        pattern=operation,
        dtypes=types,
        quick=quick,
        runs=runs or (3 if quick else 5),
    )
    console = options.stderr()

    def say(text: str) -> None:
        console.print(f"probe: {text}", highlight=False, soft_wrap=True)

    found = probing.work(ask, store, output or store.probe, probes.numbers, probes.write, say)
    if options.as_json or form == "json":
        click.echo(encode(found), nl=False)
    else:
        click.echo(render_table(probes.table(found), Format(form)))
        if form == "table":
            click.echo("\n".join(probes.summary(found)))
    console.print(f"probe: kept in {output or store.probe}", highlight=False, soft_wrap=True)


def add_to(group: click.Group) -> None:
    """Registers the commands of this module."""
    for command in (trace, probe):
        group.add_command(command)
