"""The worker between two runs: what it takes for the end of its orchestrator, and what not."""

import os
import time

import pytest

from guest import agent
from guest.agent import DONE, MessageWriter, Warm, Worker
from guest.records.run import Framework, RunRequest
from tests import factories


@pytest.fixture
def stdin(monkeypatch):
    """The write end of a pipe that stands for the worker's stdin."""
    reading, writing = os.pipe()
    with open(reading) as pipe, open(writing, "wb", buffering=0) as end:
        monkeypatch.setattr("sys.stdin", pipe)
        yield end


def fork(tmp_path, monkeypatch, ends_after_s):
    def answered_but_still_ending(*_):
        time.sleep(ends_after_s)
        return DONE

    monkeypatch.setattr(agent, "execute", answered_but_still_ending)
    writer = MessageWriter(os.open(os.devnull, os.O_WRONLY))
    worker = Worker(Framework.TORCH, writer, RunRequest, answered_but_still_ending)
    return worker._fork(RunRequest(spec=factories.spec(), visible_cpus=1), tmp_path, Warm(0.0))


def test_a_request_that_comes_before_the_last_run_has_ended_is_waited_with(tmp_path, monkeypatch, stdin):
    stdin.write(b"the next request\n")
    assert fork(tmp_path, monkeypatch, ends_after_s=0.3) is True


def test_a_run_ends_with_its_orchestrator(tmp_path, monkeypatch, stdin):
    stdin.close()
    began = time.monotonic()
    assert fork(tmp_path, monkeypatch, ends_after_s=6000) is False
    assert time.monotonic() - began < 600
