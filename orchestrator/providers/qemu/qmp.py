"""QEMU's control socket: JSON lines, one answer to each command."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import GuestError

TIMEOUT_S = 120.0  # QEMU greets once it has read its snapshot, from a disk that may be slow


class Qmp:
    """A connection in command mode."""

    def __init__(self, channel: socket.socket, lines: BinaryIO, name: str) -> None:
        self._channel = channel
        self._lines = lines
        self._name = name
        try:
            self._read()  # the greeting
        except OSError as error:  # it ended between the two
            raise GuestError(f"{name}: QEMU does not greet: {error}") from None
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """The command's answer. Raises GuestError with QEMU's own words."""
        try:
            self._channel.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            while True:
                message = self._read()
                if "return" in message:
                    return message["return"]
                if "error" in message:
                    raise GuestError(f"{self._name}: QEMU refuses {command}: {message['error'].get('desc')}")
        except OSError as error:  # events in between are of no interest
            raise GuestError(f"{self._name}: QEMU does not answer to {command}: {error}") from None

    def monitor(self, line: str) -> str:
        """A command of the human monitor, which alone can save and load snapshots of the kind used
        here. What it prints is a complaint."""
        return str(self.execute("human-monitor-command", **{"command-line": line})).strip()

    def _read(self) -> Any:
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise GuestError(f"{self._name}: QEMU closed its control socket")
        return json.loads(line)


@contextlib.contextmanager
def connect(
    path: Path, name: str, timeout_s: float = TIMEOUT_S, alive: Callable[[], bool] = lambda: True
) -> Iterator[Qmp]:
    """Raises GuestError when nobody answers, at once when QEMU is not `alive` any more. The socket is
    reached through its folder's descriptor, because a socket's path may have 107 bytes only and a study
    may lie deeper."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise GuestError(f"{name}: is not running") from None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(timeout_s)
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    channel.connect(f"/proc/self/fd/{folder}/{path.name}")
                    break
                except (FileNotFoundError, ConnectionRefusedError):
                    if time.monotonic() > deadline or not alive():
                        raise GuestError(f"{name}: QEMU opens no control socket") from None
                    time.sleep(0.02)
            with channel.makefile("rb") as lines:
                yield Qmp(channel, lines, name)
    finally:
        os.close(folder)
