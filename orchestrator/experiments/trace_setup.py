"""Which two trainings `vbstudy trace` compares."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from guest.machine import seeds
from guest.records.run import Framework, RunRecord, RunSpec, ThreadSpec, Variant
from orchestrator.errors import UsageError
from orchestrator.experiments.trace import TraceScope
from orchestrator.store.integrity import DamagedRunError, read_record
from orchestrator.store.store import Store
from orchestrator.study.messages import did_you_mean
from orchestrator.study.plan import first_runs
from orchestrator.study.schema import Study


def specs_for(
    study: Study, counts: Sequence[int], workload: str | None, framework: Framework | None, variant: Variant
) -> tuple[RunSpec, RunSpec]:
    """The same training on two CPU counts, with equal seeds. Raises UsageError."""
    if len(counts) != 2:
        raise UsageError(f"--cpus names {len(counts)} counts; name two, for example 1,4")
    if not variant.seeds_fixed:
        raise UsageError(f"--variant {variant}: leaves seeds free; fixed-seed and control can be traced")
    chosen = [spec.workload for spec in first_runs(study, workload)]
    wanted = next((w for w in chosen if framework in (None, w.framework)), chosen[0])
    if wanted.project is not None:
        if framework is not None or variant is not Variant.FIXED_SEED:
            raise UsageError(f"{wanted.name}: --framework and --variant are for networks; this is a project")
    elif framework is not None:
        wanted = dataclasses.replace(wanted, framework=framework)
    drawn = seeds.draw(study.factor_seeds(variant))
    first, second = (
        RunSpec(
            study_id=study.name,
            workload=wanted,
            variant=variant,
            threads=ThreadSpec(cpus=count, intra_op=count, inter_op=count),
            repetition=1,
            seeds=drawn,
            isa=study.isa,
            cpu_model=study.cpu_models[0],
        )
        for count in counts
    )
    return first, second


def find_run(store: Store, name: str) -> RunRecord:
    """A stored run, by its id or its folder. Raises UsageError."""
    for folder in (store.runs / name, Path(name)):
        if folder.is_dir():
            try:
                found = read_record(folder)
            except DamagedRunError as error:
                raise UsageError(f"{folder}: cannot be traced: {error}") from None
            if found.spec.workload.project:
                by = f"vbstudy trace --cpus 1,2 --workload {found.spec.workload.name}"
                raise UsageError(f"{folder}: is of a project, which is traced by its thread counts: {by}")
            return found
    known = [record.spec.run_id for record in store.records()]
    hint = did_you_mean(name, known) or (
        f"; there is {known[0]}, for example"
        if known
        else "; there are none (of a program: vbstudy trace -- python train.py)"
    )
    raise UsageError(f"{name}: is neither the id nor the folder of a stored run{hint}")


def specs_of(a: RunRecord, b: RunRecord) -> tuple[RunSpec, RunSpec]:
    """The two runs' specs, with the seeds that they used. Raises UsageError unless they are one training on
    different threads."""
    names = f"{a.spec.run_id} and {b.spec.run_id}"
    x, y = a.spec, b.spec
    for what, one, other in (
        ("workloads", x.workload, y.workload),
        ("variants", x.variant, y.variant),
        ("instruction sets (isa)", x.isa, y.isa),
        ("seeds", a.result.seeds_used, b.result.seeds_used),
    ):
        if one != other:
            raise UsageError(f"cannot trace {names}: their {what} differ")
    if (x.threads, x.cpu_model) == (y.threads, y.cpu_model):
        raise UsageError(f"{names} have the same threads; name two runs with different thread counts")
    used = a.result.seeds_used
    return dataclasses.replace(x, seeds=used), dataclasses.replace(y, seeds=used)


def scope_for(a: RunRecord, b: RunRecord, steps: int) -> TraceScope:
    """The runs' own step hashes bracket the step; those before it need not be looked at again."""
    after = equal_up_to(a, b)
    return TraceScope(
        steps=max(steps, after + 1),
        after=after,
        stored=(a.result.step_hashes, b.result.step_hashes),
        run_ids=(a.spec.run_id, b.spec.run_id),
    )


def equal_up_to(a: RunRecord, b: RunRecord) -> int:
    """The last recorded step before the first recorded difference; 0 when the first one differs."""
    one, other = a.result.step_hashes, b.result.step_hashes
    common = sorted(map(int, one.keys() & other.keys()))
    return max(itertools.takewhile(lambda step: one[str(step)] == other[str(step)], common), default=0)
