"""What is below Vagrant, asked directly: Vagrant cannot tell how many CPUs a machine really has, hold it
to cores, or remove what it lost sight of when it was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.errors import GuestError
from orchestrator.providers import machines

TIMEOUT_S = 60
OFF_TIMEOUT_S = 30.0


class Hypervisor(Protocol):
    """`machine` is the name it has with the hypervisor."""

    def check(self, plugins: set[str]) -> list[str]:
        """What is missing and how to get it."""

    def vcpus(self, machine: str) -> int:
        """How many virtual CPUs the running machine has."""

    def accelerator(self, machine: str) -> str:
        """What runs it, in one word."""

    def pin(self, machine: str, cores: Sequence[int]) -> None:
        """Holds the running machine to these cores; verified. Raises GuestError."""

    def processes(self, machine: str) -> list[int]:
        """Those that are the running machine."""

    def switch_off(self, machine: str) -> None:
        """Does nothing when it is off or not there."""

    def remove(self, machine: str) -> None:
        """Switches it off and removes it with its disks, as far as it is there."""


class Libvirt:
    def __init__(self) -> None:
        self._uri = os.environ.get("LIBVIRT_DEFAULT_URI") or "qemu:///system"

    def check(self, plugins: set[str]) -> list[str]:
        problems = []
        if "vagrant-libvirt" not in plugins:
            problems.append(
                "Vagrant has no vagrant-libvirt: apt install vagrant-libvirt, "
                "or vagrant plugin install vagrant-libvirt"
            )
        if shutil.which("virsh") is None:
            return [*problems, "there is no virsh: apt install libvirt-clients libvirt-daemon-system"]
        done = self._virsh("version")
        if done.returncode != 0:
            problems.append(
                f"libvirt does not answer at {self._uri}: {_last(done)}; start libvirtd, join group libvirt"
            )
        return problems

    def vcpus(self, machine: str) -> int:
        return int(self._ask("vcpucount", machine, "--current", "--live"))

    def accelerator(self, machine: str) -> str:
        found = re.search(r"<domain [^>]*type='(\w+)'", self._ask("dumpxml", machine))
        return {"qemu": "tcg"}.get(found[1], found[1]) if found else "unknown"

    def pin(self, machine: str, cores: Sequence[int]) -> None:
        """Each virtual CPU gets a core of its own, as far as there are; the rest shares all of them."""
        count = self.vcpus(machine)
        self._ask("emulatorpin", machine, ",".join(map(str, cores)), "--live")
        wanted = [cores[index % len(cores)] for index in range(count)]
        for index, core in enumerate(wanted):
            self._ask("vcpupin", machine, str(index), str(core), "--live")
        held = parse_vcpuinfo(self._ask("vcpuinfo", machine))
        for index, core in enumerate(wanted):
            if held.get(index) != {core}:
                raise GuestError(f"{machine}: virtual CPU {index} cannot be held to core {core}")

    def processes(self, machine: str) -> list[int]:
        return machines.processes(lambda words: any(w.split(",")[0] == f"guest={machine}" for w in words))

    def switch_off(self, machine: str) -> None:
        if self._state(machine) not in ("", "shut off"):
            self._ask("destroy", machine)

    def remove(self, machine: str) -> None:
        self.switch_off(machine)
        if self._state(machine):
            self._ask("undefine", machine)
        disk = f"{machine}.img"  # so called by vagrant-libvirt
        for pool in self._ask("pool-list", "--name").split():
            if disk in self._ask("vol-list", pool).split():
                self._ask("vol-delete", disk, "--pool", pool)

    def _state(self, machine: str) -> str:
        """Its state in libvirt's words; nothing when there is no such machine."""
        if machine not in self._ask("list", "--all", "--name").split():
            return ""
        return self._ask("domstate", machine).strip()

    def _ask(self, *arguments: str) -> str:
        done = self._virsh(*arguments)
        if done.returncode != 0:
            raise GuestError(f"`virsh {' '.join(arguments)}` failed: {_last(done)}")
        return done.stdout

    def _virsh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(["virsh", "-q", "-c", self._uri, *arguments])


def parse_vcpuinfo(text: str) -> dict[int, set[int]]:
    """The cores of each virtual CPU's thread, from the operating system: `y` for a core that it may use."""
    found: dict[int, set[int]] = {}
    index = -1
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "VCPU":
            index = int(value)
        elif key == "CPU Affinity":
            found[index] = {core for core, sign in enumerate(value.strip()) if sign == "y"}
    return found


class VirtualBox:
    """VirtualBox cannot hold virtual CPUs to cores, so the whole process of the machine is."""

    def check(self, plugins: set[str]) -> list[str]:  # noqa: ARG002
        if shutil.which("VBoxManage") is None:
            return ["there is no VBoxManage: install VirtualBox (https://www.virtualbox.org)"]
        done = self._run("list", "vms")
        return [] if done.returncode == 0 else [f"VirtualBox does not answer: {_last(done)}"]

    def vcpus(self, machine: str) -> int:
        return int(self._settings(machine)["cpus"])

    def accelerator(self, machine: str) -> str:  # noqa: ARG002
        return "virtualbox"

    def pin(self, machine: str, cores: Sequence[int]) -> None:
        processes = self.processes(machine)
        if not processes:
            raise GuestError(f"{machine}: has no process to hold to its cores; is it running?")
        for pid in processes:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # the thread ended meanwhile
                    os.sched_setaffinity(int(thread.name), cores)
                    if os.sched_getaffinity(int(thread.name)) != set(cores):
                        raise GuestError(f"{machine}: cannot be held to its cores {list(cores)}")

    def processes(self, machine: str) -> list[int]:
        return headless(machine, self._settings(machine)["UUID"])

    def switch_off(self, machine: str) -> None:
        if not self._exists(machine) or self._is_off(machine):
            return
        self._ask("controlvm", machine, "poweroff")
        deadline = time.monotonic() + OFF_TIMEOUT_S
        while not self._is_off(machine):  # and its session stays locked for a moment
            if time.monotonic() > deadline:
                raise GuestError(f"{machine}: does not switch off")
            time.sleep(0.2)

    def remove(self, machine: str) -> None:
        if self._exists(machine):
            self.switch_off(machine)
            self._ask("unregistervm", machine, "--delete")

    def _exists(self, machine: str) -> bool:
        return f'"{machine}" ' in self._ask("list", "vms")

    def _is_off(self, machine: str) -> bool:
        settings = self._settings(machine)
        off = settings.get("VMState") in ("poweroff", "aborted", "saved")
        return off and not headless(machine, settings["UUID"])

    def _settings(self, machine: str) -> dict[str, str]:
        return parse_showvminfo(self._ask("showvminfo", machine, "--machinereadable"))

    def _ask(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode != 0:
            raise GuestError(f"`VBoxManage {' '.join(arguments)}` failed: {_last(done)}")
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(["VBoxManage", *arguments])


def parse_showvminfo(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip('"'): value.strip('"') for key, sign, value in pairs if sign}


def headless(machine: str, uuid: str) -> list[int]:
    """The processes of a VirtualBox machine, which have its name or number in their command line."""
    return machines.processes(lambda words: "--startvm" in words and bool({machine, uuid} & set(words)))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise GuestError(f"there is no {command[0]}; install it") from None
    except subprocess.TimeoutExpired:
        raise GuestError(f"`{' '.join(command)}` was not done within {TIMEOUT_S} s") from None


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("error: ") if lines else f"status {done.returncode}"


HYPERVISORS: dict[str, type[Libvirt] | type[VirtualBox]] = {"libvirt": Libvirt, "virtualbox": VirtualBox}
