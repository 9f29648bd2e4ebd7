"""`vbstudy trace --workload NAME` of a project of the user's: the program of the study's snapshot, traced on
this machine as `vbstudy trace -- COMMAND` does, and kept as a trace of the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from guest.machine import fingerprint, seeds
from guest.projects import environment, prepare
from guest.records.run import RunSpec
from guest.records.trace import Side, Trace
from orchestrator.errors import UsageError
from orchestrator.experiments import trace_program
from orchestrator.experiments.trace_pair import Ask
from orchestrator.experiments.trace_program import ProgramTrace
from orchestrator.files import temporary_folder
from orchestrator.programs import conditions
from orchestrator.store.store import Store, now
from orchestrator.study import snapshots
from orchestrator.study.schema import Study
from orchestrator.text import Say

HERE = "this machine"


def work(
    study: Study,
    store: Store,
    specs: Sequence[RunSpec],
    steps: int,
    write: Callable[[Trace, Path], None],
    say: Say,
) -> Trace:
    """Traces, and publishes what was found as `trace/<id>/`. The caller holds the study's lock. Raises
    UsageError for requirements that cannot be installed, and what `trace_program.work` raises."""
    workload, project = specs[0].workload, specs[0].workload.project
    assert project is not None  # noqa: S101  (or it would be traced step by step)
    store.clear_incoming()
    snapshots.prepare(study, store)
    files = snapshots.files(next(each for each in study.projects if each.name == workload.name), store)
    with temporary_folder("vbstudy-trace-") as scratch:
        folder = prepare.unpack(files, scratch / prepare.WORK)
        try:
            environments = scratch / "environments"
            python, _ = environment.interpreter(folder, project, files, environments)
        except environment.RequirementsError as error:
            raise UsageError(f"{workload.name}: {error}") from None
        ask = Ask(
            argv=tuple(prepare.resolve(project.command, python)),
            folder=folder,
            factor=conditions.vary("threads", [spec.threads.cpus for spec in specs]),
            seed=seeds.draw(specs[0].seeds).initialisation or 0,
            steps=steps,
            hold=(),
            timeout_s=project.timeout_s,
        )
        found = trace_program.work(ask, say)
    trace_id = store.new_trace_id(workload.name, [spec.threads.label for spec in specs])
    with store.new_trace(trace_id) as folder:
        trace = _trace(trace_id, study, store, specs, found, files.tree_sha256)
        write(trace, folder)
    return trace


def _trace(
    trace_id: str,
    study: Study,
    store: Store,
    specs: Sequence[RunSpec],
    found: ProgramTrace,
    tree_sha256: str,
) -> Trace:
    notes = [f"{side}: {each}" for side, each in zip(found.sides, found.at, strict=False)]
    if found.unrepeatable:
        notes = [f"with {found.unrepeatable} the program does not repeat itself", *found.at]
    if store.guests_file.exists() and study.provider.kind != "local":
        notes.append("traced on this machine, not in the guests")
    seen = fingerprint.machine() | {"framework": {"name": found.framework}}
    return Trace(
        trace_id=trace_id,
        created_at=now(),
        workload=specs[0].workload,
        variant=specs[0].variant,
        sides=tuple(Side(guest=HERE, threads=spec.threads, run_id="", environment=seen) for spec in specs),
        outcome=found.outcome,
        steps=found.steps,
        step=found.step,
        differs="" if found.step is None else "operations",
        operations=found.operations + bool(found.origin),
        origins=(found.origin,) if found.origin else (),
        unknown=(found.origin.op,) if found.origin and not found.origin.setting else (),
        growth=found.growth,
        notes=(*notes, *found.notes),
        tree_sha256=tree_sha256,
    )
