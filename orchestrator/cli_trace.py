"""The commands that say why models differ: trace and probe. As thin as those of `cli`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli_options import Options
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.study import Study

DEFAULT_STEPS = 100


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
    study = _study(options, store)
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


def _study(options: Options, store: Store) -> Study:
    """The study's file, or the default study where there is none."""
    from orchestrator import study, study_template

    if store.study_file.exists():
        return options.study()
    return study.parse(study_template.template("study", (1, 2, 4, 8), study_template.default_dataset()))


def add_to(group: click.Group) -> None:
    """Registers the commands of this module."""
    for command in (trace,):
        group.add_command(command)
