"""The wait for a machine's sshd."""

import socket
import threading
import time

import pytest

from orchestrator.errors import GuestError
from orchestrator.inventory import GuestSpec
from orchestrator.providers import machines

ONE = GuestSpec(name="cpus-1", cpus=1)
ANSWER_S = 1.5


@pytest.fixture
def slow_sshd():
    """Greets each connection, as an emulated guest does, after a while."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while not ended.is_set():
                channel, _ = listening.accept()
                with channel:
                    if not ended.wait(ANSWER_S):
                        channel.send(b"SSH-2.0-slow\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        ended.set()
        socket.create_connection(listening.getsockname()).close()
        thread.join(120)


def test_a_guest_that_boots_slowly_gets_more_time_to_answer_a_probe(slow_sshd, tmp_path):
    began = time.perf_counter() - 200
    machines.wait_for_sshd(ONE, slow_sshd, tmp_path / "console.log", str, began=began, timeout_s=400)


def test_a_machine_that_ended_is_an_error_with_the_last_line_of_its_console(tmp_path):
    console = tmp_path / "console.log"
    console.write_text("booting\npanic\n\n")
    with pytest.raises(
        GuestError,
        match="guest cpus-1: is gone, and did not answer on port 22 within .* its console: 'panic'",
    ) as raised:
        machines.wait_for_sshd(
            ONE, machines.free_port(), console, lambda: "is gone", began=time.perf_counter(), timeout_s=100
        )
    assert raised.value.evidence == "booting\npanic\n\n"
