"""The processes that run machines, as this machine's kernel shows them."""

import subprocess
import sys
from pathlib import Path

from orchestrator.providers.virtualbox import host

# As a VirtualBox that ends: the first thread, by which the kernel knows the command line, is gone, another
# still has the disk.
ENDING = """
import ctypes, sys, threading
disk = open(sys.argv[1])
libc = ctypes.CDLL(None)
libc.prctl(15, b"VBoxHeadless", 0, 0, 0)
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
libc.syscall(60, 0)
"""


def test_a_process_that_ends_counts_until_it_has_closed_the_disk_of_its_machine(tmp_path):
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        folder.mkdir()
        (folder / "disk.vdi").touch()
    command = [sys.executable, "-c", ENDING, str(ours / "disk.vdi")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        while Path(f"/proc/{process.pid}/cmdline").read_bytes():
            pass
        try:
            assert host.processes_of("vm", ours) == [process.pid]
            assert host.processes_of("vm", other) == []
        finally:
            process.kill()
    assert host.processes_of("vm", ours) == []


def test_a_process_of_another_machine_that_has_our_disk_open_is_not_ours(tmp_path):
    disk = tmp_path / "disk.vdi"
    disk.touch()
    program = "import sys; disk = open(sys.argv[-1]); print(flush=True); input()"
    argv = ["VBoxHeadless", "-c", program, "--comment", "clone", "--startvm", "1-2", str(disk)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, executable=sys.executable, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        try:
            assert host.processes_of("vm", tmp_path) == []
            assert host.processes_of("clone", tmp_path) == [process.pid]
        finally:
            process.kill()
