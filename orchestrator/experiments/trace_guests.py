"""The two sides of a trace: an agent in each guest, which does tasks, and the files that they leave."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from guest.machine import threads
from guest.records import bounded
from guest.records.codec import RecordError, from_json, to_json
from guest.records.run import Message, RunRequest, RunSpec
from guest.records.trace import OPERATIONS, TENSORS, Task, TraceAnswer, TraceRequest
from orchestrator.agent import archive
from orchestrator.agent.client import AgentClient
from orchestrator.cores.leases import CoreLeases
from orchestrator.errors import GuestError, ProtocolError, UsageError, says_full
from orchestrator.guests import temporary
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, guest_for, guest_spec
from orchestrator.providers import Provider, cores_of, machine_of
from orchestrator.store.integrity import DamagedRunError, check_artifact
from orchestrator.store.store import Store
from orchestrator.study.schema import Study
from orchestrator.text import Say

FILES = {Task.OPERATIONS: {OPERATIONS}, Task.TENSORS: {TENSORS}, Task.WEIGHTS: {TENSORS}}


@dataclass(slots=True)
class TraceGuest:
    """Asks one agent, which forks a process for each task. `close` ends it; the session stays."""

    session: Session
    agent: str
    guest: str
    spec: RunSpec
    _worker: AgentClient | None = field(default=None, init=False)

    def ask(
        self, into: Path, task: Task, steps: tuple[int, ...], operations: tuple[int, ...] = ()
    ) -> TraceAnswer:
        """The answer; the task's files are in `into`, checked. Raises GuestError when the task fails."""
        executor = self.session.executor()
        context, connection = executor.context, executor.connection
        request = TraceRequest(
            run=RunRequest(
                spec=self.spec,
                visible_cpus=context.visible_cpus,
                data_folders=context.data_folders,
                heartbeat_s=context.engine.heartbeat_s,
            ),
            task=task,
            steps=steps,
            operations=operations,
        )
        out = f"out/{uuid.uuid4().hex}"
        worker = self._worker = self._worker or self._start()
        try:
            worker.send({"request": to_json(request), "out": out})
            limits = context.engine.lost_after_s, context.engine.timeout_s
            answer = self._checked(worker.answer(*limits, self.spec.run_id), task)
            for name, artifact in answer.artifacts.items():
                connection.get(f"{out}/{name}", into / name, artifact.size_bytes)
                try:
                    check_artifact(into / name, artifact)
                except DamagedRunError as error:
                    raise ProtocolError(f"guest {self.guest}: {error}") from None
        finally:
            connection.remove(out)
        return answer

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker = None

    def _start(self) -> AgentClient:
        executor = self.session.executor()
        executor.prepare(self.spec)
        env = threads.environment(self.spec, cpu_vendor=executor.context.cpu_vendor)
        command = ["trace", "--framework", self.spec.workload.network_framework]
        client = AgentClient(executor.connection, self.agent, command, env, f"guest {self.guest}")
        client.greeting()
        return client

    def _checked(self, answer: Message, task: Task) -> TraceAnswer:
        if answer.kind == "error":
            kind, text = answer.body.get("kind"), answer.body.get("message")
            if kind == "NoSuchStepError":
                raise UsageError(f"{self.spec.workload.name}: {text}")
            evidence = str(answer.body.get("traceback", ""))
            full = says_full(str(text))
            why = "its disk is full; make room there and trace again" if full else f"{kind}: {text}"
            raise GuestError(f"guest {self.guest}: {why}", evidence=evidence)
        try:
            found = from_json(TraceAnswer, answer.body.get("result"), "done.result")
        except RecordError as error:
            raise ProtocolError(f"guest {self.guest}: the agent's answer is malformed: {error}") from None
        if set(found.artifacts) != FILES.get(task, set()):
            raise ProtocolError(
                f"guest {self.guest}: sent {', '.join(found.artifacts) or 'nothing'} for {task}"
            )
        for name, artifact in found.artifacts.items():
            if not 0 <= artifact.size_bytes <= bounded.ARTIFACT.bytes:
                raise ProtocolError(f"guest {self.guest}: says {name} has {artifact.size_bytes} bytes")
        return found


@contextlib.contextmanager
def sides(study: Study, store: Store, specs: Sequence[RunSpec], say: Say) -> Iterator[list[TraceGuest]]:
    """An agent in the guest of each spec; one guest has one session. Local guests that are not there are
    made, and removed in the end. Raises UsageError for other guests that are not there."""
    agent = archive.build()
    opened: dict[str, Session] = {}
    wanted = [guest_spec(spec.threads.cpus, spec.cpu_model) for spec in specs]
    with (
        temporary.guests(study, store, wanted, say, stand_in=False) as (provider, guests),
        contextlib.ExitStack() as stack,
    ):
        mine = [guests[guest_for(spec)] for spec in specs]
        cores = _leased(mine, provider, stack, say)
        working = []
        for spec, guest in zip(specs, mine, strict=True):
            name = guest.spec.name
            if name not in opened:
                own = cores[guest.observed.machine][: guest.spec.cpus]
                opened[name] = session = Session(study, store, provider, guest, own, agent)
                stack.callback(session.close)
            side = TraceGuest(opened[name], agent.name, name, spec)
            stack.callback(side.close)
            working.append(side)
        yield working


def _leased(
    guests: Sequence[Guest], provider: Provider, stack: contextlib.ExitStack, say: Say
) -> dict[str, tuple[int, ...]]:
    """By machine the cores that its guests share: only one side works at a time."""
    found: dict[str, tuple[int, ...]] = {}
    for guest in sorted(guests, key=lambda guest: -guest.spec.cpus):
        machine = guest.observed.machine
        if machine not in found:
            leases = CoreLeases(cores_of(provider, guest), machine_of(provider, guest.spec), waiting=say)
            lease = leases.wait_for(guest.spec.name, guest.spec.cpus)
            found[machine] = stack.enter_context(lease).cores
    return found
