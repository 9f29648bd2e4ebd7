"""What is below Vagrant, asked directly: Vagrant cannot report how many CPUs a machine really has, hold it
to cores, or remove what it lost sight of when it was killed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import GuestError
from orchestrator.providers import processes
from orchestrator.providers.vagrant.command import version as vagrant_version
from orchestrator.providers.vagrant.command import version_in
from orchestrator.providers.virtualbox import host

TIMEOUT_S = 60
OFF_TIMEOUT_S = 30.0
# Vagrant stops at a VirtualBox that is newer than itself; its changelog says which release added which.
FIRST_VAGRANT_FOR: dict[tuple[int, ...], tuple[int, ...]] = {
    (7, 0): (2, 3, 2),
    (7, 1): (2, 4, 2),
    (7, 2): (2, 4, 9),
}


class Libvirt:
    """A hypervisor; `VirtualBox` has the same methods. `machine` is the name it has with the hypervisor."""

    def __init__(self) -> None:
        self._uri = os.environ.get("LIBVIRT_DEFAULT_URI") or "qemu:///system"

    def check(self, plugins: set[str]) -> list[str]:
        """What is missing and how to get it."""
        problems = []
        if "vagrant-libvirt" not in plugins:
            problems.append(
                "Vagrant has no vagrant-libvirt: apt install vagrant-libvirt, "
                "or vagrant plugin install vagrant-libvirt"
            )
        if shutil.which("virsh") is None:
            return [*problems, "there is no virsh: apt install libvirt-clients libvirt-daemon-system"]
        try:
            self._command("version", failure=f"libvirt does not answer at {self._uri}")
        except GuestError as error:
            problems.append(f"{error.message}; start libvirtd, join group libvirt")
        return problems

    def vcpus(self, machine: str) -> int:
        """How many virtual CPUs the running machine has."""
        return int(self._command("vcpucount", machine, "--current", "--live"))

    def accelerator(self, machine: str) -> str:
        """What runs it, in one word."""
        found = re.search(r"<domain [^>]*type='(\w+)'", self._command("dumpxml", machine))
        return {"qemu": "tcg"}.get(found[1], found[1]) if found else "unknown"

    def pin(self, machine: str, cores: Sequence[int]) -> None:
        """Each virtual CPU gets a core of its own, as far as there are; the rest shares all of
        them; verified. Raises GuestError."""
        count = self.vcpus(machine)
        self._command("emulatorpin", machine, ",".join(map(str, cores)), "--live")
        wanted = [cores[index % len(cores)] for index in range(count)]
        for index, core in enumerate(wanted):
            self._command("vcpupin", machine, str(index), str(core), "--live")
        held = parse_vcpuinfo(self._command("vcpuinfo", machine))
        for index, core in enumerate(wanted):
            if held.get(index) != {core}:
                raise GuestError(f"{machine}: virtual CPU {index} cannot be held to core {core}")

    def processes(self, machine: str) -> list[int]:
        """Those that are the running machine, as libvirt's own user."""
        return processes.matching(
            lambda words: any(word.split(",")[0] == f"guest={machine}" for word in words), of_all_users=True
        )

    def switch_off(self, machine: str) -> None:
        """Does nothing when it is off or not there."""
        if self._state(machine) not in ("", "shut off"):
            self._command("destroy", machine)

    def remove(self, machine: str) -> None:
        """Switches it off and removes it with its disks, as far as it is there."""
        self.switch_off(machine)
        if self._state(machine):
            self._command("undefine", machine)
        disk = f"{machine}.img"  # so called by vagrant-libvirt
        for pool in _lines(self._command("pool-list", "--name")):
            if disk in (line.split()[0] for line in _lines(self._command("vol-list", pool))):
                self._command("vol-delete", disk, "--pool", pool)

    def _state(self, machine: str) -> str:
        """Its state in libvirt's words; nothing when there is no such machine."""
        if machine not in _lines(self._command("list", "--all", "--name")):
            return ""
        return self._command("domstate", machine).strip()

    def _command(self, *arguments: str, failure: str = "") -> str:
        command = ["virsh", "-q", "-c", self._uri, *arguments]
        failure = failure or f"`virsh {' '.join(arguments)}` failed"
        return processes.output(command, failure, TIMEOUT_S, _environment())


def _lines(text: str) -> list[str]:
    """What virsh lists, one a line: names may have spaces."""
    return [line.strip() for line in text.splitlines() if line.strip()]


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
    """VirtualBox cannot hold virtual CPUs to cores, so their threads are."""

    def check(self, plugins: set[str]) -> list[str]:  # noqa: ARG002
        if shutil.which("VBoxManage") is None:
            return ["there is no VBoxManage: install VirtualBox (https://www.virtualbox.org)"]
        try:
            self._command("list", "vms", failure="VirtualBox does not answer")
            there = version_in(self._command("--version"), "VBoxManage")
            problem = too_old(vagrant_version(), there)
        except GuestError as error:
            return [error.message]
        return [problem] if problem else []

    def vcpus(self, machine: str) -> int:
        return int(self._settings(machine)["cpus"])

    def accelerator(self, machine: str) -> str:  # noqa: ARG002
        return "virtualbox"

    def pin(self, machine: str, cores: Sequence[int]) -> None:
        found = self.processes(machine)
        if not found:
            raise GuestError(f"{machine}: has no process to hold to its cores; is it running?")
        for process in found:
            host.pin(process, cores, machine)

    def processes(self, machine: str) -> list[int]:
        return _processes(machine, self._settings(machine))

    def switch_off(self, machine: str) -> None:
        if not self._exists(machine):
            return
        settings = self._settings(machine)
        if settings.get("VMState") not in ("poweroff", "aborted", "saved", "aborted-saved"):
            self._command("controlvm", machine, "poweroff")
        processes.end(lambda: _processes(machine, settings), machine, OFF_TIMEOUT_S)

    def remove(self, machine: str) -> None:
        if self._exists(machine):
            self.switch_off(machine)
            self._command("unregistervm", machine, "--delete")

    def _exists(self, machine: str) -> bool:
        return f'"{machine}" ' in self._command("list", "vms")

    def _settings(self, machine: str) -> dict[str, str]:
        return parse_showvminfo(self._command("showvminfo", machine, "--machinereadable"))

    def _command(self, *arguments: str, failure: str = "") -> str:
        failure = failure or f"`VBoxManage {' '.join(arguments)}` failed"
        return processes.output(["VBoxManage", *arguments], failure, TIMEOUT_S, _environment())


def too_old(vagrant: tuple[int, ...], virtualbox: tuple[int, ...]) -> str:
    """What to install where this Vagrant refuses this VirtualBox; nothing where it does not."""
    needed = FIRST_VAGRANT_FOR.get(virtualbox[:2])
    if needed is None or vagrant >= needed:
        return ""
    known = [release for release, first in FIRST_VAGRANT_FOR.items() if vagrant >= first]
    older = f", or VirtualBox {_dotted(known[-1])}, which this one knows" if known else ""
    return (
        f"Vagrant {_dotted(vagrant)} does not know VirtualBox {_dotted(virtualbox)}: install Vagrant "
        f"{_dotted(needed)} or later from https://developer.hashicorp.com/vagrant/install{older}"
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _processes(machine: str, settings: dict[str, str]) -> list[int]:
    return host.processes_of(machine, Path(settings["CfgFile"]).parent, settings["UUID"])


def parse_showvminfo(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip('"'): value.strip('"') for key, sign, value in pairs if sign}


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}  # their words are read


Hypervisor = Libvirt | VirtualBox
HYPERVISORS: dict[str, type[Hypervisor]] = {"libvirt": Libvirt, "virtualbox": VirtualBox}
