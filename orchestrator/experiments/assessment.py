"""Measures the models of finished runs under noise and attack: what is missing, in one guest, on one thread,
so that only the models differ. Results lie beside the runs, which are never edited."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from guest.datasets import datasets
from guest.machine import threads
from guest.records.codec import RecordError, from_json, to_json
from guest.records.robustness import NOISE_SEED, STRENGTHS, ModelFile, Robustness, RobustnessRequest
from guest.records.run import WEIGHTS, Framework, Message, RunRecord, ThreadSpec
from guest.training.perturbation import not_applicable
from orchestrator.agent import archive
from orchestrator.agent.client import AgentClient
from orchestrator.agent.executor import Executor
from orchestrator.errors import ProtocolError, StoreError
from orchestrator.guests.session import alone
from orchestrator.inventory import Inventory
from orchestrator.providers import Provider
from orchestrator.store.store import Store
from orchestrator.study.plan import program_spec
from orchestrator.study.schema import Study
from orchestrator.text import Say, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A model to be measured, and the models that its adversarial examples are tried on."""

    record: RunRecord
    targets: tuple[RunRecord, ...]

    @property
    def framework(self) -> Framework:
        return self.record.spec.workload.network_framework


@dataclass(slots=True, kw_only=True)
class Measured:
    """What was done: models measured now, before, without anything to perturb, and not to be measured."""

    now: int = 0
    before: int = 0
    not_applicable: int = 0
    failed: list[str] = field(default_factory=list)


def assessments(records: Sequence[RunRecord]) -> list[Assessment]:
    """A run's targets are the same repetition at every other thread setting, and the next repetition at
    its own (after the last the first) that was asked for with the same seeds: how far examples transfer
    without a change of threads."""
    experiments: dict[tuple[Any, ...], dict[tuple[str, int], RunRecord]] = {}
    for record in records:
        spec = record.spec
        if spec.workload.project is not None:
            continue  # its network cannot be rebuilt from its weights
        runs = experiments.setdefault((spec.workload, spec.variant, spec.cpu_model), {})
        runs[spec.threads.label, spec.repetition] = record
    found = []
    for runs in experiments.values():
        for (label, repetition), record in runs.items():
            across = [r for (other, n), r in runs.items() if n == repetition and other != label]
            seeds = record.spec.seeds
            own = sorted(n for (other, n), r in runs.items() if other == label and r.spec.seeds == seeds)
            following = own[(own.index(repetition) + 1) % len(own)]
            within = [runs[label, following]] if following != repetition else []
            found.append(Assessment(record=record, targets=(*within, *across)))
    return found


def is_current(stored: Robustness | None, task: Assessment) -> bool:
    """Whether a stored result is of this model and these targets, by their weights."""
    if stored is None or stored.weights != task.record.result.hashes.weights or stored.seed != NOISE_SEED:
        return False
    if stored.not_applicable:
        return True
    asked = {(t.spec.run_id, t.result.hashes.weights) for t in task.targets}
    return tuple(p.strength for p in stored.noise) == STRENGTHS and asked == {
        (t.run_id, t.weights) for t in stored.transfer
    }


def measure(study: Study, store: Store, provider: Provider, inventory: Inventory, say: Say) -> Measured:
    """Measures every finished run that has no current result. The caller holds the study's lock."""
    done = Measured()
    missing = []
    for task in assessments(list(store.records())):
        reason = not_applicable(datasets.info(task.record.spec.workload.dataset))
        if is_current(_stored(store, task.record.spec.run_id), task):
            done.before += not reason
            done.not_applicable += bool(reason)
        elif reason:
            store.robustness.write(task.record.spec.run_id, _nothing(task.record, reason))
            done.not_applicable += 1
        else:
            missing.append(task)
    if missing:
        say(f"robustness: {len(missing)} models to measure")
        guest, agent = min(inventory.guests, key=lambda g: g.spec.cpus), archive.build()
        with alone(study, store, provider, guest, agent, say) as session:
            executor = session.executor()
            for framework in dict.fromkeys(task.framework for task in missing):
                mine = [task for task in missing if task.framework is framework]
                _work_through(store, executor, agent.name, mine, done, say)
            executor.connection.remove("models")
    return done


def _stored(store: Store, run_id: str) -> Robustness | None:
    """None for a damaged file, too: the model is measured again."""
    try:
        return store.robustness.read(run_id)
    except StoreError:
        return None


def _nothing(record: RunRecord, reason: str) -> Robustness:
    return Robustness(
        run_id=record.spec.run_id,
        weights=record.result.hashes.weights,
        seed=NOISE_SEED,
        samples=0,
        noise=(),
        fgsm=(),
        transfer=(),
        not_applicable=reason,
    )


def _work_through(
    store: Store, executor: Executor, agent: str, mine: Sequence[Assessment], done: Measured, say: Say
) -> None:
    """One process measures all models of a framework."""
    mine = sorted(mine, key=lambda task: task.record.spec.workload.name)
    worker = _start(executor, agent, mine[0])
    brought: set[str] = set()
    for task in mine:
        spec = task.record.spec
        for record in (task.record, *task.targets):
            if record.result.hashes.weights not in brought:
                brought.add(record.result.hashes.weights)
                executor.connection.put(store.folder(record.spec) / WEIGHTS, _file(record).path)
        request = RobustnessRequest(
            workload=spec.workload,
            model=_file(task.record),
            targets=tuple(map(_file, task.targets)),
            data_folders=executor.context.data_folders,
        )
        engine = executor.context.engine
        worker.send({"request": to_json(request), "heartbeat_s": engine.heartbeat_s})
        answer = worker.answer(engine.lost_after_s, engine.timeout_s, spec.run_id)
        if answer.kind == "error":
            done.failed.append(spec.run_id)
            say(f"robustness of {spec.run_id} failed: {plain(str(answer.body.get('message')))}")
            continue
        store.robustness.write(spec.run_id, _checked(answer, request))
        done.now += 1
        say(f"robustness of {spec.run_id} measured")
    worker.kill()


def _file(record: RunRecord) -> ModelFile:
    weights = record.result.hashes.weights
    return ModelFile(run_id=record.spec.run_id, path=f"models/{weights}.safetensors", weights=weights)


def _start(executor: Executor, agent: str, task: Assessment) -> AgentClient:
    """The agent, in the environment that is the same for the models of all variants and threads."""
    spec = program_spec("assess", ThreadSpec(cpus=1, intra_op=1, inter_op=1), 0, task.framework)
    spec = dataclasses.replace(spec, isa=task.record.spec.isa)
    env = threads.environment(spec, cpu_vendor=executor.context.cpu_vendor)
    client = AgentClient(executor.connection, agent, ["assess", "--framework", task.framework], env)
    client.greeting()
    return client


def _checked(answer: Message, request: RobustnessRequest) -> Robustness:
    try:
        result = from_json(Robustness, answer.body.get("result"), "done.result")
    except RecordError as error:
        raise ProtocolError(f"{answer.run_id}: the agent's result is malformed: {error}") from None
    if (result.run_id, result.weights) != (request.model.run_id, request.model.weights):
        raise ProtocolError(f"{answer.run_id}: the agent answered for another model")
    return result
