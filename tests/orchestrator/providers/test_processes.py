"""Processes of guests, from their beginning to their end."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import GuestError
from orchestrator.inventory import GUEST_MARK
from orchestrator.providers import processes
from tests.processes import ends

# Its first thread ends, as that of a process under way to its end may be the first to do.
ENDING = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_program_of_another_architecture_is_an_error_that_names_it(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(100))
    program.chmod(0o755)
    with pytest.raises(GuestError, match="program: cannot be started: Exec format error"):
        processes.run([str(program)], 60)


MARK = f"guest=of-test-{os.getpid()}"  # nobody else's, if the suite runs twice on a machine


def find(folder: Path | None = None) -> list[int]:
    return processes.matching(lambda words: MARK in words, folder)


def test_a_process_that_is_ending_counts_until_its_last_thread_has_left_its_folder(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ENDING, MARK], cwd=tmp_path) as process:
        try:
            deadline = time.monotonic() + 120
            while ") Z " not in Path(f"/proc/{process.pid}/stat").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert find() == []
            assert find(tmp_path) == [process.pid]
            assert find(tmp_path / "other") == []
        finally:
            process.kill()
    assert find(tmp_path) == []


@pytest.fixture
def process():
    """It has its command line when the test begins: a process that was just started has none for a moment."""
    code = "print('here', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout.readline() == b"here\n"
        yield started
        started.kill()


def test_a_process_may_end_by_itself_before_it_is_killed(process):
    waiting = threading.Thread(target=processes.end, args=(find, "guest one", 120))
    waiting.start()
    process.stdin.write(b"\n")
    process.stdin.close()
    waiting.join(120)
    assert not waiting.is_alive()
    assert find() == []
    assert process.wait() == 0


def test_a_process_that_does_not_end_by_itself_is_killed(process):
    processes.end(find, "guest one", 0.1)
    assert find() == []
    assert process.wait() == -signal.SIGKILL


def test_a_process_that_cannot_be_killed_is_an_error_that_names_it(process, monkeypatch):
    monkeypatch.setattr(processes, "KILL_TIMEOUT_S", 0.1)
    with pytest.raises(GuestError, match=f"guest one: process {process.pid} does not end, although it was"):
        processes.end(lambda: [process.pid], "guest one")


def test_what_a_marked_process_started_is_found_without_its_environment():
    code = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n"
        "print(child.pid, flush=True); input()"
    )
    name = f"of-test-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {GUEST_MARK: name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            child = int(process.stdout.readline())
            assert processes.marked_with_descendants(name) == [process.pid, child]
            processes.end(partial(processes.marked_with_descendants, name), "guest one")
            assert ends(child)
        finally:
            process.kill()
