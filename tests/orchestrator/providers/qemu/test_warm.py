"""Workers that wait to be attached to, behind a real sshd."""

import os
import sys

import pytest

from orchestrator.errors import GuestError
from orchestrator.providers.qemu import warm
from orchestrator.store.store import Store
from orchestrator.transport.keys import StudyKeys
from tests import sshd
from tests.processes import ends

pytestmark = pytest.mark.needs("sshd")

PROGRAM = """
import os, sys
print("hello", os.environ["KNOB"], os.getpid(), flush=True)
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
sys.stderr.write("over")
sys.exit(3)
"""
ECHO = [sys.executable, "-c", PROGRAM]
ENV = {"KNOB": "7"}


@pytest.fixture
def connection(tmp_path):
    with sshd.running(tmp_path / "sshd") as server:
        target = server.target(StudyKeys.of(Store(tmp_path)))
        opened = warm.WarmConnection(target, str(tmp_path / "guest"), sys.executable)
        yield opened
        opened.close()


@pytest.fixture
def waiting(connection):
    folder = warm.launch(connection, ECHO, ENV)
    connection.workers = (folder,)
    return connection


def hello(stream) -> int:
    words = stream.receive(120).split()
    assert words[:2] == [b"hello", b"7"]
    return int(words[2])


def test_a_waiting_worker_is_attached_to_with_what_it_has_said(waiting):
    stream = waiting.open(ECHO, ENV)
    pid = hello(stream)
    for word in ("one", "two"):
        stream.send(word)
        assert stream.receive(120) == word.upper().encode() + b"\n"
    stream.kill()
    assert ends(pid)  # the end of the connection is the end of its input


def test_how_a_worker_ended_and_its_last_words_come_through(waiting):
    stream = waiting.open(ECHO, ENV)
    hello(stream)
    stream._channel.shutdown_write()
    assert stream.receive(120) == b""
    assert stream.how_it_ended() == "exit status 3"
    assert stream.stderr() == "over"


def test_a_worker_that_is_killed_is_noticed_at_once(waiting):
    stream = waiting.open(ECHO, ENV)
    os.kill(hello(stream), 9)
    assert stream.receive(120) == b""
    assert stream.how_it_ended() == "killed by SIGKILL"


def test_another_environment_and_a_second_time_get_a_worker_of_their_own(waiting):
    first = hello(waiting.open(ECHO, ENV))
    again = hello(waiting.open(ECHO, ENV))
    other = waiting.open(ECHO, {"KNOB": "8"}).receive(120).split()
    assert other[1] == b"8"
    assert len({first, again, int(other[2])}) == 3


def test_a_worker_that_cannot_start_is_told_with_its_last_words(connection):
    with pytest.raises(GuestError, match="did not start: no such luck"):
        warm.launch(connection, [sys.executable, "-c", "raise SystemExit('no such luck')"], ENV)
