"""The commands that find why models differ: trace and probe."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import click

from orchestrator.cli.options import FORMATS, Options
from orchestrator.errors import UsageError

DEFAULT_STEPS = 100
DTYPES = ("float32", "float64", "bfloat16")


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN_A RUN_B]")
@click.option("--cpus", metavar="N,M", help="The two CPU counts to compare.")
@click.option("--workload", metavar="NAME", help="A workload of the study.", show_default="its first")
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), show_default="the workload's")
@click.option("--variant", type=click.Choice(["fixed-seed", "control"]), show_default="fixed-seed")
@click.option("--steps", type=click.IntRange(min=1), default=DEFAULT_STEPS, metavar="N",
              help="The most training steps to compare.")  # fmt: skip
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
    """Find the first operation whose result differs between two thread counts.

    \b
        vbstudy trace --cpus 1,4        a workload of the study, trained on both
        vbstudy trace RUN_A RUN_B       two stored runs, by id or folder, repeated

    The first step whose weights or gradients differ, in it the first operation whose inputs are equal
    and whose output is not, and how the difference grows from there. Kept in trace/."""
    from analysis.diagnosis import trace_figures, traces
    from guest.records.codec import to_json
    from guest.records.run import Framework, Variant
    from guest.records.trace import Outcome
    from orchestrator.experiments import trace as tracing
    from orchestrator.experiments import trace_setup
    from orchestrator.study import schema as study_

    if bool(runs) == (cpus is not None):
        raise UsageError("name two CPU counts (--cpus 1,4), or two stored runs")
    store = options.store()
    study = options.study_or_default()
    scope = tracing.TraceScope(steps=steps)
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
        scope = trace_setup.scope_for(a, b, steps)
    report = options.reporter("trace: ")
    with store.lock("vbstudy trace"):
        found = tracing.work(study, store, chosen, scope, traces.apart, trace_figures.write, report)
    if options.as_json:
        click.echo(json.dumps(to_json(found), indent=1))
    else:
        from analysis.results.printing import print_tables

        click.echo("\n".join(traces.summary(found)))
        if found.origins:
            print_tables([traces.origins_table(found)], sys.stdout)
        if found.outcome is not Outcome.EQUAL:
            click.echo("\nnext: vbstudy harden")
    report(f"kept in {store.traces / found.trace_id}")


@click.command()
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), default="torch")
@click.option("--threads", "--cpus", "threads", metavar="N,N,...", default="1,2,4,8",
              help="The others are compared with the first.")  # fmt: skip
@click.option("--operation", metavar="PATTERN", default="*", help="Only those, for example 'conv*'.")
@click.option(
    "--dtypes", metavar="T,T,...", help=f"Of {', '.join(DTYPES)}.", show_default="all; with --quick float32"
)
@click.option(
    "--runs",
    type=click.IntRange(min=2),
    metavar="N",
    help="Runs of each cell.",
    show_default="5, quick 3",
)
@click.option("--quick", is_flag=True, help="Two sizes and one type: about a minute.")
@click.option("--output", type=click.Path(path_type=Path), show_default="probe/ in the study")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="How to print.")
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
    from analysis.diagnosis import probe_figures, probes
    from analysis.results.printing import Format, render_tables
    from guest.records.codec import seal
    from guest.records.run import Framework
    from orchestrator.experiments import probe as probing
    from orchestrator.study import schema as study_
    from orchestrator.study.messages import did_you_mean

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
    report = options.reporter("probe: ")
    with contextlib.nullcontext() if output else store.lock("vbstudy probe"):
        found = probing.work(ask, store, output or store.probe, probes.numbers, probe_figures.write, report)
    if options.as_json or form == "json":
        click.echo(seal(found), nl=False)
    else:
        click.echo(render_tables([probes.table(found)], Format(form)))
        if form == "table":
            click.echo("\n".join(probes.summary(found)))
    report(f"kept in {output or store.probe}")
