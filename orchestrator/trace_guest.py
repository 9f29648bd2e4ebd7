"""One side of a trace: an agent in a guest that does tasks, and the files they leave."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

from guest import threads
from guest.records import SCHEMA_VERSION, Message, RecordError, RunRequest, RunSpec, from_json, to_json
from guest.trace_records import OPERATIONS, TENSORS, Task, TraceAnswer, TraceRequest
from orchestrator.connection import Stream
from orchestrator.errors import GuestError, PrerequisiteError, ProtocolError, UsageError, says_full
from orchestrator.executor import MAX_ARTIFACT_BYTES, WORKER_START_TIMEOUT_S
from orchestrator.protocol import parse_message
from orchestrator.session import Session
from orchestrator.store import DamagedRunError, check_artifact

FILES = {Task.OPERATIONS: {OPERATIONS}, Task.TENSORS: {TENSORS}, Task.WEIGHTS: {TENSORS}}


class TraceGuest:
    """Asks one agent, which forks a process for each task. `close` ends it; the session stays."""

    def __init__(self, session: Session, agent: str, guest: str, spec: RunSpec) -> None:
        self.guest = guest
        self.spec = spec
        self._session = session
        self._agent = agent
        self._worker: Stream | None = None

    def ask(
        self, into: Path, task: Task, steps: tuple[int, ...], operations: tuple[int, ...] = ()
    ) -> TraceAnswer:
        """The answer; the task's files are in `into`, checked. Raises GuestError when the task fails."""
        executor = self._session.executor()
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
            worker.send(json.dumps({"request": to_json(request), "out": out}))
            answer = self._checked(self._answer(worker, context.engine.lost_after_s, self.spec.run_id), task)
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

    def _start(self) -> Stream:
        executor = self._session.executor()
        env = threads.environment(self.spec, cpu_vendor=executor.context.cpu_vendor)
        framework, connection = self.spec.workload.network_framework, executor.connection
        worker = connection.open([connection.python, self._agent, "trace", "--framework", framework], env)
        hello = self._answer(worker, WORKER_START_TIMEOUT_S, "")
        if hello.kind == "error":
            raise PrerequisiteError(
                f"guest {self.guest} cannot import {framework}: {hello.body.get('message')}",
                evidence=worker.stderr(),
            )
        if hello.kind != "hello" or hello.body.get("schema_version") != SCHEMA_VERSION:
            raise ProtocolError(f"the agent said {hello.kind} where hello was due", evidence=worker.stderr())
        return worker

    def _answer(self, worker: Stream, silent_s: float, run_id: str) -> Message:
        """The last message of what was asked."""
        deadline = time.monotonic() + silent_s
        while True:
            line = worker.receive(deadline - time.monotonic())
            if line is None:
                raise GuestError(
                    f"guest {self.guest}: the agent was silent for {silent_s:g} s", evidence=worker.stderr()
                )
            if line == b"":
                raise GuestError(
                    f"guest {self.guest}: the agent ended unasked: {worker.how_it_ended()}",
                    evidence=worker.stderr(),
                )
            message = parse_message(line)
            if message.run_id != run_id:
                raise ProtocolError(f"the agent spoke of run {message.run_id!r} during {run_id!r}")
            if (
                message.kind == "done"
                or (not run_id and message.kind != "heartbeat")
                or message.kind == "error"
            ):
                return message
            deadline = time.monotonic() + silent_s

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
            if not 0 <= artifact.size_bytes <= MAX_ARTIFACT_BYTES:
                raise ProtocolError(f"guest {self.guest}: says {name} has {artifact.size_bytes} bytes")
        return found
