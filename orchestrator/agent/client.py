"""A client of the agent: its start, its greeting, the request to it and its next message. Messages are parsed
and checked here; what they mean is the caller's."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from guest.records.run import SCHEMA_VERSION, Message
from orchestrator.agent.frameworks import lacking
from orchestrator.agent.protocol import parse_message
from orchestrator.errors import GuestError, PrerequisiteError, ProtocolError
from orchestrator.transport.connection import Connection

START_TIMEOUT_S = 600.0


class AgentClient:
    """One process of the agent. `where` names its guest in errors."""

    def __init__(
        self,
        connection: Connection,
        agent: str,
        command: Sequence[str],
        env: Mapping[str, str],
        where: str = "the guest",
    ) -> None:
        """Starts `command` of the agent. `greeting` has to be called before the first request."""
        self._where, self._python = where, connection.python
        self._stream = connection.open([connection.python, agent, *command], env)

    def greeting(self) -> None:
        """Waits until the agent is ready. Raises PrerequisiteError when it cannot import what it needs."""
        message = self.next(time.monotonic() + START_TIMEOUT_S, "")
        if message is None:
            raise self._failed(f"the agent was not ready after {START_TIMEOUT_S:.0f} s")
        if message.kind == "error":
            why = str(message.body.get("message"))
            raise PrerequisiteError(
                f"{self._where}: {lacking(why, self._python) or f'the agent cannot start: {why}'}",
                evidence=self._stream.stderr(),
            )
        version = message.body.get("schema_version")  # point: agent ready
        if message.kind != "hello" or version != SCHEMA_VERSION:
            got = message.kind if message.kind != "hello" else f"hello with schema {version!r:.80}"
            expected = "hello" if message.kind != "hello" else f"schema {SCHEMA_VERSION}"
            raise ProtocolError(
                f"{self._where}: protocol error: expected {expected}, got {got}",
                evidence=self._stream.stderr(),
            )

    def send(self, request: Mapping[str, Any]) -> None:
        self._stream.send(json.dumps(request))

    def answer(self, silent_s: float, timeout_s: float, run_id: str) -> Message:
        """The `done` or `error` that ends a request. Raises GuestError after `silent_s` without a message,
        and after `timeout_s` in all."""
        deadline = time.monotonic() + timeout_s
        while True:
            message = self.next(min(deadline, time.monotonic() + silent_s), run_id)
            if time.monotonic() >= deadline:
                raise self._failed(f"the agent did not answer within {timeout_s:g} s, which limits any task")
            if message is None:
                raise self._failed(f"the agent sent nothing for {silent_s:g} s")
            if message.kind in ("done", "error"):
                return message

    def next(self, deadline: float, run_id: str) -> Message | None:
        """The next message, None when there is none by `deadline`. Raises GuestError when the agent has
        ended, ProtocolError for what is no message of this run."""
        line = self._stream.receive(deadline - time.monotonic())
        if line is None:
            return None
        if line == b"":
            raise self._failed(f"the agent ended unexpectedly: {self._stream.how_it_ended()}")
        message = parse_message(line)
        if message.run_id != run_id:
            raise ProtocolError(
                f"{self._where}: protocol error: expected a message of run {run_id!r}, "
                f"got one of {message.run_id!r:.200}"
            )
        return message

    def kill(self) -> None:
        self._stream.kill()

    def _failed(self, text: str) -> GuestError:
        return GuestError(f"{self._where}: {text}", evidence=self._stream.stderr())
