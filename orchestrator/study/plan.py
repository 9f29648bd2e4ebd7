"""study -> run specs. Pure: the same study gives the same list in the same order.

Runs are planned in blocks: block r has repetition r of every condition. Within a block, guests come in an
order drawn from the study's seed, and so do the conditions of each guest. So thread counts are interleaved in
time, and a machine that gets warmer or busier meets all of them alike; a guest is needed once a block."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from guest.records.run import (
    Framework,
    Metric,
    MetricSource,
    Optimizer,
    ProjectSpec,
    RunOrder,
    RunSpec,
    Seeds,
    ThreadSpec,
    Variant,
    WorkloadSpec,
)
from orchestrator.errors import UsageError
from orchestrator.inventory import guest_for
from orchestrator.study.messages import did_you_mean
from orchestrator.study.networks import WorkloadTable
from orchestrator.study.projects import ProjectTable
from orchestrator.study.schema import Study


def plan(study: Study, repetitions: int | None = None) -> list[RunSpec]:
    """All runs of a study in the order in which they are to start, block by block. More repetitions add
    blocks, and leave the earlier ones as they are. Raises UsageError for more than can be planned."""
    wanted = repetitions or study.repetitions
    try:
        study.require_end(wanted)
    except ValueError as error:
        raise UsageError(f"--runs {wanted}: {error}") from None
    return [
        spec for number in range(1, wanted + 1) for spec in _in_drawn_order(study.seed, block(study, number))
    ]


def conditions(study: Study) -> list[RunSpec]:
    """The first run of each condition, in the order of the study file."""
    return block(study, 1)


def planned(study: Study, variant: Variant, repetitions: int | None = None) -> int:
    """Runs of each condition of that variant, of so many that are asked for."""
    wanted = repetitions or study.repetitions
    return min(wanted, study.repetitions_at_most.get(variant, wanted))


def run_order(study: Study, spec: RunSpec) -> RunOrder | None:
    """When the study plans this run. None for a run that it does not plan."""
    order = [each.set_id for each in _in_drawn_order(study.seed, block(study, spec.repetition))]
    if spec.set_id not in order:
        return None
    return RunOrder(block=spec.repetition, position=order.index(spec.set_id) + 1, of=len(order))


def block(study: Study, repetition: int) -> list[RunSpec]:
    """Repetition `repetition` of every condition that has so many, in the order of the study file."""
    workloads = [(_workload(table, study.metrics), _variants(study, table)) for table in study.workload]
    seeds = {variant: study.factor_seeds(variant, repetition) for variant in study.variants}
    return [
        RunSpec(
            study_id=study.name,
            workload=workload,
            variant=variant,
            threads=threads,
            repetition=repetition,
            seeds=Seeds() if workload.replays else seeds[variant],
            isa=study.isa,
            cpu_model=cpu_model,
        )
        for workload, variants in workloads
        for variant in variants
        if repetition <= planned(study, variant, repetition)
        for cpu_model in study.cpu_models
        for threads in _threads(study)
    ]


def _in_drawn_order(seed: int, block: list[RunSpec]) -> list[RunSpec]:
    """Each guest, each environment in it and each condition draws a number, which depends on its name, the
    block and the seed alone: the conditions of a study that gets more of them keep their order. Runs that can
    share a warm worker follow one another, for a worker takes longer to start than a short run does."""

    def drawn(spec: RunSpec, name: str) -> bytes:
        return hashlib.sha256(f"{seed}/{spec.repetition}/{name}".encode()).digest()

    def environment(spec: RunSpec) -> str:
        return f"{spec.workload.framework}/{spec.variant}/{spec.threads.label}"

    names = (guest_for, environment, lambda spec: spec.set_id)
    return sorted(block, key=lambda spec: tuple(drawn(spec, name(spec)) for name in names))


def program_spec(
    name: str, threads: ThreadSpec, seed: int | None, framework: Framework | None = None
) -> RunSpec:
    """No run of a study: a program on so many threads, as `guest.machine.threads` makes an environment for
    it."""
    return RunSpec(
        study_id=name,
        workload=_program(name, framework),
        variant=Variant.FIXED_SEED,
        threads=threads,
        repetition=1,
        seeds=Seeds(initialisation=seed, data_order=seed, augmentation=seed, dropout=seed),
    )


def _program(name: str, framework: Framework | None = None) -> WorkloadSpec:
    """What is no network of ours: nothing is known of its training."""
    return WorkloadSpec(
        name=name,
        framework=framework,
        model="",
        dataset="",
        epochs=0,
        batch_size=0,
        learning_rate=0.0,
        optimizer=Optimizer.SGD,
        metrics=(),
    )


def first_runs(study: Study, name: str | None) -> list[RunSpec]:
    """The first planned run of each workload, or of the named one. Raises UsageError."""
    planned = {spec.workload.name: spec for spec in reversed(conditions(study))}
    if name is not None and name not in planned:
        hint = did_you_mean(name, planned)
        raise UsageError(f"--workload {name}: the study has {', '.join(planned)}{hint}")
    return [planned[table.name] for table in study.workload] if name is None else [planned[name]]


def _threads(study: Study) -> Iterator[ThreadSpec]:
    """cpus, crossed with threads and inter-op threads where the study names them. Combinations
    that come out equal (4 cpus x 4 threads beside the default) are planned once."""
    seen = set()
    for cpus in study.cpus:
        for intra_op in study.threads or (cpus,):
            for inter_op in study.inter_op_threads or (intra_op,):
                spec = ThreadSpec(cpus=cpus, intra_op=intra_op, inter_op=inter_op)
                if spec not in seen:
                    seen.add(spec)
                    yield spec


def _variants(study: Study, table: WorkloadTable | ProjectTable) -> tuple[Variant, ...]:
    """Those of a workload, in the study's order."""
    own = table.variants if isinstance(table, WorkloadTable) else None
    return tuple(variant for variant in study.variants if own is None or variant in own)


def _workload(table: WorkloadTable | ProjectTable, study_metrics: tuple[Metric, ...]) -> WorkloadSpec:
    if isinstance(table, ProjectTable):
        return _project(table)
    values = {name: getattr(table, name) for name in WorkloadTable.model_fields if name != "variants"}
    return WorkloadSpec(**values | {"metrics": table.metrics or study_metrics})


def _project(table: ProjectTable) -> WorkloadSpec:
    return dataclasses.replace(
        _program(table.name),
        project=ProjectSpec(
            source=table.location,
            commit=table.commit,
            command=table.command,
            requirements=table.requirements or "",
            metrics=tuple(
                MetricSource(name=name, pattern=m.pattern or "", file=m.file or "", key=m.key or "")
                for name, m in table.metrics.items()
            ),
            predictions=table.artifacts.predictions or "",
            weights=table.artifacts.weights or "",
            timeout_s=table.timeout_s,
            disk_limit_mib=table.disk_limit_mib,
            random=table.random,
            framework=table.framework,
        ),
    )


def condition(set_id: str) -> dict[str, str]:
    """The columns that name a condition."""
    return dict(zip(("workload", "variant", "setting"), set_id.split("/", 2), strict=True))
