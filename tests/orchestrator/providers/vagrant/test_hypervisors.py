"""What hypervisors say; scripts stand in for them. The real libvirt is in `tests/vagrant`."""

import os
import subprocess
import sys

import pytest

from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.providers.vagrant.hypervisors import (
    HYPERVISORS,
    Libvirt,
    VirtualBox,
    parse_showvminfo,
    parse_vcpuinfo,
)
from orchestrator.providers.virtualbox import host
from orchestrator.study.providers import VagrantTable

VCPUINFO = """\
VCPU:           0
CPU:            0
State:          running
CPU time:       9.4s
CPU Affinity:   y-

VCPU:           1
CPU:            1
State:          running
CPU time:       8.1s
CPU Affinity:   yy
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script on PATH; returns what its calls were."""

    def make(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\ncd {tmp_path}\necho "$*" >> calls\n{script}\n')
        file.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return make


def test_the_study_file_knows_the_same_hypervisors():
    assert set(VagrantTable.model_fields["hypervisor"].annotation.__args__) == set(HYPERVISORS)


def test_the_cores_of_virtual_cpus_are_read_from_libvirt():
    assert parse_vcpuinfo(VCPUINFO) == {0: {0}, 1: {0, 1}}


def test_a_virtual_cpu_that_libvirt_does_not_hold_is_told(program):
    table = VCPUINFO.replace("\n", "\\n")
    program("virsh", f"case $* in *vcpucount*) echo 2 ;; *vcpuinfo*) printf '{table}' ;; esac")
    with pytest.raises(GuestError, match="vm: virtual CPU 1 cannot be held to core 1"):
        Libvirt().pin("vm", (0, 1))


def test_libvirt_that_does_not_answer_is_told_with_its_cure(program):
    program("virsh", "echo 'error: Failed to connect socket' >&2; exit 1")
    plugin, daemon = Libvirt().check(set())
    assert "apt install vagrant-libvirt" in plugin
    assert "Failed to connect socket; start libvirtd, join group libvirt" in daemon
    assert len(Libvirt().check({"vagrant-libvirt"})) == 1


def test_removing_what_libvirt_does_not_have_asks_and_changes_nothing(program, tmp_path):
    program("virsh", "case $* in *pool-list*) echo default ;; esac")
    Libvirt().remove("vm")
    calls = (tmp_path / "calls").read_text()
    assert "vol-list default" in calls
    assert not [word for word in ("destroy", "undefine", "vol-delete") if word in calls]


def test_a_disk_without_a_machine_is_removed(program, tmp_path):
    program(
        "virsh",
        """
case "$*" in
*pool-list*) printf 'default\\nmy disks\\n\\n' ;;
*"vol-list my disks") printf ' a vm.img   /a b/a vm.img\\n vm.img     /a b/vm.img\\n' ;;
*"vol-list default") echo ' not vm.img   /images/not vm.img' ;;
*vol-list*) exit 1 ;;
esac""",
    )
    Libvirt().remove("vm")
    deleted = [line for line in (tmp_path / "calls").read_text().splitlines() if "vol-delete" in line]
    assert [line.partition("vol-delete ")[2] for line in deleted] == ["vm.img --pool my disks"]


def test_the_settings_of_a_virtualbox_machine_are_read():
    text = 'name="vm"\nUUID="1-2"\ncpus=4\nVMState="running"\n"GUI/x"="a=b"\n\nnonsense\n'
    assert parse_showvminfo(text) == {
        "name": "vm", "UUID": "1-2", "cpus": "4", "VMState": "running", "GUI/x": "a=b",
    }  # fmt: skip


DRIVERLESS = """\
WARNING: The vboxdrv kernel module is not loaded. Either there is no module
         available for the current kernel (6.1.0-28-amd64) or it failed to
         load. Please recompile the kernel module and install it by
7.2.22_Debianr175245"""


@pytest.mark.parametrize(
    ("vagrant", "virtualbox", "expected"),
    [
        ("2.3.4", DRIVERLESS, "Vagrant 2.3.4 does not know VirtualBox 7.2.22: install Vagrant 2.4.9"),
        ("2.3.4", "7.2.4r170995", ", or VirtualBox 7.0, which this one knows"),
        ("2.4.1", "7.1.0r164728", "install Vagrant 2.4.2 or later"),
        ("2.2.19", "7.0.20_Ubuntur163906", "install Vagrant 2.3.2 or later"),
        ("2.4.9", "7.2.4r170995", ""),
        ("2.3.4", "7.0.26r168464", ""),
        ("2.2.19", "6.1.50_Ubuntur161033", ""),
        ("2.4.9", "7.3.0r180000", ""),  # nobody knows yet; Vagrant itself says so when it does not
        ("2.4.9", "segmentation fault", "`VBoxManage --version` reports no version: 'segmentation fault'"),
    ],
)
def test_a_vagrant_that_is_too_old_for_virtualbox_is_told_with_the_one_to_install(
    program, vagrant, virtualbox, expected
):
    program("vagrant", f"echo Vagrant {vagrant}")
    program("VBoxManage", f"[ \"$1\" = list ] || cat <<'END'\n{virtualbox}\nEND")
    found = VirtualBox().check(set())
    assert len(found) == bool(expected)
    assert all(expected in problem and "\n" not in problem for problem in found)


def test_virtualbox_is_asked_for_the_cpus_that_a_machine_has(program):
    program("VBoxManage", "echo 'cpus=4'")
    assert VirtualBox().vcpus("vm") == 4


def test_a_virtualbox_machine_is_switched_off_and_removed_with_its_disks(program, tmp_path):
    script = """
case $1 in
list) [ -e gone ] || echo '"vm" {1-2}' ;;
showvminfo)
    echo 'UUID="1-2"'; echo 'CfgFile="/x/vm.vbox"'
    [ -e off ] && echo 'VMState="poweroff"' || echo 'VMState="running"' ;;
controlvm) touch off ;;
unregistervm) touch gone ;;
esac"""
    program("VBoxManage", script)
    VirtualBox().remove("vm")
    VirtualBox().remove("vm")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if call.split()[0] in ("controlvm", "unregistervm")] == [
        "controlvm vm poweroff",
        "unregistervm vm --delete",
    ]


@pytest.mark.parametrize("state", ["poweroff", "aborted", "saved", "aborted-saved"])
def test_a_virtualbox_machine_that_does_not_run_is_not_switched_off(program, tmp_path, state):
    program(
        "VBoxManage",
        f"""
case $1 in
list) echo '"vm" {{1-2}}' ;;
showvminfo) echo 'UUID="1-2"'; echo 'CfgFile="/x/vm.vbox"'; echo 'VMState="{state}"' ;;
controlvm) echo 'error: Machine is not currently running' >&2; exit 1 ;;
esac""",
    )
    VirtualBox().switch_off("vm")
    assert "controlvm" not in (tmp_path / "calls").read_text()


def test_the_process_of_a_virtualbox_machine_is_held_to_its_cores(program, tmp_path):
    program("VBoxManage", "echo 'UUID=\"1-2\"'; echo 'CfgFile=\"/x/vm.vbox\"'")
    program = "import time; print(flush=True); time.sleep(1000)"
    argv = ["VBoxHeadless", "-c", program, "--comment", "vm", "--startvm", "1-2"]
    with subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # while a program is being loaded, the kernel tells no command line
        try:
            core = host_cores()[-1]
            VirtualBox().pin("vm", (core,))
            assert os.sched_getaffinity(process.pid) == {core}
            assert host.processes_of("vm", tmp_path, "1-2") == [process.pid]
            assert host.processes_of("other", tmp_path, "3-4") == []
        finally:
            process.kill()


def test_a_virtualbox_machine_without_a_process_is_told(program):
    program("VBoxManage", "echo 'UUID=\"9-9\"'; echo 'CfgFile=\"/x/vm.vbox\"'")
    with pytest.raises(GuestError, match="has no process to hold"):
        VirtualBox().pin("vm-that-is-not-there", (0,))


@pytest.mark.parametrize("hypervisor", HYPERVISORS.values())
def test_a_hypervisor_that_is_not_installed_is_told_with_where_to_get_it(hypervisor, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = hypervisor().check({"vagrant-libvirt"})
    assert "install" in problem


def test_the_process_of_a_libvirt_machine_is_found_by_its_name():
    program = "import time; print(flush=True); time.sleep(1000)"
    argv = ["qemu", "-c", program, "-name", "guest=vm,debug-threads=on"]
    with subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # while a program is being loaded, the kernel tells no command line
        try:
            assert Libvirt().processes("vm") == [process.pid]
            assert Libvirt().processes("v") == []
        finally:
            process.kill()
