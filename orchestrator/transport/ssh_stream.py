"""A command that runs behind SSH: lines in, lines out."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import paramiko

from guest.machine.signals import how_ended
from guest.records.pace import paced
from orchestrator.errors import GuestError
from orchestrator.transport.connection import LAST_WORDS_S, PIPE_BYTES, Completed, ReadStream, read_all

SEND_TIMEOUT_S = 60.0
FAILURES = (OSError, EOFError, paramiko.SSHException)


class SshStream(ReadStream):
    """A running command behind SSH."""

    def __init__(self, channel: Any, target: str, kill: Any) -> None:
        self._channel = channel
        self._target = target
        self._kill = kill
        channel.settimeout(None)  # silence is judged by the reader of the lines
        super().__init__(_pieces(channel.recv), _pieces(channel.recv_stderr))

    def __str__(self) -> str:
        return self._target

    def is_open(self) -> bool:
        """Whether it may still run."""
        return not (self._channel.closed or self._channel.exit_status_ready())

    def send(self, line: str) -> None:
        transport = self._channel.get_transport()
        try:
            with paced(transport.close, SEND_TIMEOUT_S):  # a server may leave its window shut
                self._channel.sendall(line.encode() + b"\n")
        except TimeoutError as error:
            raise GuestError(f"{self._target}: takes no request: {error}") from None
        except FAILURES:
            raise GuestError("the agent has ended", evidence=self.stderr()) from None

    def complete(self, name: str, timeout_s: float) -> Completed:
        """Everything it prints until it ends. Raises GuestError when that takes too long."""
        try:
            self._channel.shutdown_write()
        except FAILURES:
            lost = f"{self._target}: {name}: {self.how_it_ended()}"
            raise GuestError(lost, evidence=self.stderr()) from None
        deadline = time.monotonic() + timeout_s
        output = read_all(self, name, timeout_s)
        if not self._channel.status_event.wait(max(deadline - time.monotonic(), 1)):
            raise GuestError(f"{name} did not end within {timeout_s:.0f} s")
        if self._channel.exit_status < 0:
            raise GuestError(f"{self._target}: {name}: {self.how_it_ended()}", evidence=self.stderr())
        return Completed(
            status=self._channel.exit_status,
            stdout=output.decode(errors="replace"),
            stderr=self.stderr(),
        )

    def kill(self) -> None:
        if self._killed.is_set():
            return
        self._killed.set()
        self._lines.close()
        if not self._channel.exit_status_ready():
            self._kill()
        with contextlib.suppress(*FAILURES):  # of a connection that is lost
            self._channel.close()

    def how_it_ended(self) -> str:
        ended = self._channel.status_event.wait(LAST_WORDS_S)
        status = self._channel.exit_status
        if ended and status >= 0:
            number = status - 128
            return how_ended(-number if number in signal.valid_signals() else status)
        transport = self._channel.get_transport()
        if ended:
            transport.join(LAST_WORDS_S)  # it closes its channels before it says that it has ended itself
        if not transport.is_active():
            return f"the connection to {self._target} was lost"
        return "killed by a signal" if ended else "it closed its output and still runs"


def _pieces(read: Any) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # closed by us
        while piece := read(PIPE_BYTES):
            yield bytes(piece)
