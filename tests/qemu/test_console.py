"""A real QEMU whose guest prints without end."""

import subprocess
import sys
import time

import pytest

from orchestrator.providers.machines import tail
from orchestrator.providers.qemu.image import Image
from orchestrator.providers.qemu.machine import QemuHardware, QemuMachine

pytestmark = pytest.mark.needs("qemu")

MOST = 100_000
LINE = b"flood\r\n"
# Boots from BIOS, at 7c00: sends the line that follows it to the serial port, for ever.
PROGRAM = bytes.fromhex(
    "31c0 8ed8 fc"  # ds = 0
    "be1f7c"  # 7c05: si = the line
    "ac 84c0 74f8"  # 7c08: its next character; at its end, the line again
    "88c4 bafd03 ec a820 74fb"  # waits until the port is ready
    "88e0 baf803 ee ebe9"  # sends it; on to 7c08
)
BOOT_SECTOR = (PROGRAM + LINE + b"\0").ljust(510, b"\0") + b"\x55\xaa"
# What starts it is killed as soon as it runs.
START = """
import os, signal, sys
from pathlib import Path
from orchestrator.providers.qemu import console
from tests.qemu.test_console import HARDWARE, MOST, image, machine_in
console.MOST_BYTES = MOST
folder = Path(sys.argv[1])
machine_in(folder).start(HARDWARE, image(folder), sorted(os.sched_getaffinity(0))[:1], resume=False)
os.kill(os.getpid(), signal.SIGKILL)
"""
HARDWARE = QemuHardware(
    cpus=1, memory_mib=64, cpu_model="max", accelerator="tcg", image="", workers="", seed="", qemu="", host=""
)


def image(folder):
    return Image(boot=None, root=folder / "root.img", root_format="raw", libraries=None, identity="")


def machine_in(folder):
    return QemuMachine(folder / "guest")


@pytest.fixture
def machine(tmp_path):
    made = machine_in(tmp_path)
    made.folder.mkdir()
    (tmp_path / "root.img").write_bytes(BOOT_SECTOR.ljust(1 << 20, b"\0"))
    made.seed.write_bytes(bytes(1 << 20))
    made.new_overlay(image(tmp_path))
    yield made
    made.remove()


def test_a_guest_that_prints_without_end_fills_no_disk_also_when_who_started_it_is_killed(machine, tmp_path):
    started = subprocess.run([sys.executable, "-c", START, str(tmp_path)], capture_output=True, check=False)
    assert started.returncode == -9, started.stderr
    logs, deadline = set(), time.monotonic() + 120
    while len(logs) < 4:  # each is another file
        assert time.monotonic() < deadline, "the guest does not print"
        seen = machine.console.stat()
        assert seen.st_size <= MOST
        logs.add(seen.st_ino)
    assert len(machine.processes()) == 1
    machine.stop()
    assert machine.is_over()
    assert MOST // 2 <= machine.console.stat().st_size <= MOST
    assert tail(machine.console).splitlines()[-2] == "flood"
    assert sorted(path.name for path in machine.folder.iterdir()) == [
        "console.log",
        "qemu.log",
        "root.qcow2",
        "seed.img",
    ]
