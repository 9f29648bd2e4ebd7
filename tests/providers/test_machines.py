"""Processes of machines, from their beginning to their end."""

import subprocess
import sys
import time
from pathlib import Path

from orchestrator.providers import machines

# Its first thread ends, as that of a process under way to its end may be the first to do.
ENDING = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_process_that_is_ending_counts_until_its_last_thread_has_left_its_folder(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ENDING, "guest=one"], cwd=tmp_path) as process:
        try:
            deadline = time.monotonic() + 120
            while ") Z " not in Path(f"/proc/{process.pid}/stat").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert machines.processes(lambda words: "guest=one" in words) == []
            assert machines.processes(lambda words: "guest=one" in words, tmp_path) == [process.pid]
            assert machines.processes(lambda words: "guest=one" in words, tmp_path / "other") == []
        finally:
            process.kill()
    assert machines.processes(lambda words: "guest=one" in words, tmp_path) == []
