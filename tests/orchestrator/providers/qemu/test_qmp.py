from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import GuestError
from orchestrator.providers.qemu.qmp import connect

GREETING = b'{"QMP": {}}\n'


def called(path: Path, answer: Callable[[socket.socket], object]) -> None:
    """What listens at the socket is given to `answer` once somebody calls, and closed."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        with listening:
            select.select([listening], [], [])
            answer(listening)

    threading.Thread(target=serve, daemon=True).start()


@pytest.mark.parametrize(
    "said", [b"", GREETING[:5], GREETING], ids=["no word", "half a line", "the greeting"]
)
def test_a_qemu_that_ends_after_is_a_guest_error(tmp_path: Path, said: bytes) -> None:
    def hang_up(listening: socket.socket) -> None:
        with listening.accept()[0] as channel:
            channel.sendall(said)

    called(tmp_path / "control", hang_up)
    with pytest.raises(GuestError, match="node1: QEMU "), connect(tmp_path / "control", "node1"):
        pass


def test_a_qemu_that_ends_before_it_takes_the_call_is_a_guest_error(tmp_path: Path) -> None:
    called(tmp_path / "control", lambda listening: None)
    with (
        pytest.raises(GuestError, match="node1: QEMU does not greet: .*reset"),
        connect(tmp_path / "control", "node1"),
    ):
        pass
