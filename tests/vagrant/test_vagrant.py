"""Real machines that Vagrant makes under libvirt: looked into, killed half-made, removed. Run by
`.ci/run vagrant`, which also says why: Vagrant, libvirt and a network of its own are needed."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.inventory import GUEST_MARK, GuestSpec, host_name, read_inventory
from orchestrator.providers import make
from orchestrator.providers.vagrant.command import Vagrant, files
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.transport.keys import StudyKeys, key_pair
from orchestrator.transport.ssh import SshConnection
from tests.orchestrator.sweep.test_pipeline import start
from tests.processes import wait_until
from tests.vagrant import boxes

pytestmark = pytest.mark.needs("vagrant")

STUDY = f"""
name = "vagrant"
cpus = [1]

[provider]
kind = "vagrant"
hypervisor = "libvirt"
box = "{boxes.NAME}"
memory_mib = 512
python = "/usr/bin/python3"

[[workload]]
model = "lenet1"
dataset = "digits"
"""
ONE = GuestSpec(name="cpus-1", cpus=1)
TWO = GuestSpec(name="cpus-2", cpus=2)


@pytest.fixture(scope="module", autouse=True)
def home():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAGRANT_HOME", str(boxes.home()))
        patch.setenv("VAGRANT_CHECKPOINT_DISABLE", "1")
        yield


def write(directory: Path, text: str = STUDY) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "study.toml").write_text(text)
    return directory


def provider_of(directory: Path):
    return make(schema.load(directory / "study.toml"), Store(directory))


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), *arguments])


def virsh(*arguments: str) -> str:
    command = ["virsh", "-q", "-c", "qemu:///system", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def names(directory: Path) -> list[str]:
    """What stands in the name of all that belongs to the study's guests."""
    return [host_name(directory / "guests" / spec.name) for spec in (ONE, TWO)]


def machines(directory: Path) -> list[str]:
    found = virsh("list", "--all", "--name").split()
    return [machine for machine in found if machine.startswith(tuple(names(directory)))]


def disks(directory: Path) -> list[str]:
    if "default" not in virsh("pool-list", "--name").split():
        return []
    found = [line.split()[0] for line in virsh("vol-list", "default").splitlines() if line]
    return [disk for disk in found if disk.startswith(tuple(names(directory)))]


def processes(directory: Path) -> list[str]:
    """Machines, and Vagrants at work."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (folder / "environ").read_bytes().decode(errors="replace")
            ours = any(
                f"guest={name}" in words or f"{GUEST_MARK}={name}" in environment for name in names(directory)
            )
            found += [words] if ours else []
    return found


def left(directory: Path) -> list[str]:
    return machines(directory) + disks(directory) + processes(directory)


@contextlib.contextmanager
def destroyed(directory: Path):
    try:
        yield directory
    finally:
        assert vbstudy(directory, "-q", "destroy") == 0
        assert left(directory) == []
        assert not (directory / "guests").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A running guest with two CPUs, for the tests that only look at it."""
    with destroyed(write(tmp_path_factory.mktemp("made"))) as directory:
        provider = provider_of(directory)
        connection = provider.start(TWO, host_cores()[:2])
        yield directory, provider, connection
        connection.close()


def shell(connection, script: str) -> str:
    done = connection.run(["sh", "-c", script], {}, 60)
    assert done.status == 0, done
    return done.stdout


# ---- the Vagrantfile ------------------------------------------------------------------------


def validate(folder: Path, hypervisor: str, directory: Path) -> subprocess.CompletedProcess:
    """With the study by hand. A script tells Vagrant a version of VirtualBox, where that is not installed."""
    tools = directory / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "VBoxManage").write_text("#!/bin/sh\necho 7.0.20r163906\n")
    (tools / "VBoxManage").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "VBSTUDY_STUDY": str(directory),
        "VAGRANT_DOTFILE_PATH": str(directory / "dot"),
        "VAGRANT_DEFAULT_PROVIDER": hypervisor,
    }
    command = ["vagrant", "validate"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("hypervisor", ["virtualbox", "libvirt"])
def test_the_vagrantfile_is_valid_for_both_hypervisors(hypervisor, tmp_path):
    write(tmp_path, STUDY.replace("libvirt", hypervisor))
    done = validate(files(), hypervisor, tmp_path)
    assert (done.returncode, done.stdout) == (0, "Vagrantfile validated successfully.\n"), done.stderr


@pytest.mark.parametrize("hypervisor", ["virtualbox", "libvirt"])
def test_a_wrong_setting_of_a_hypervisor_would_be_found(hypervisor, tmp_path):
    folder = tmp_path / "vagrant"
    shutil.copytree(files(), folder)
    text = (folder / "Vagrantfile").read_text()
    (folder / "Vagrantfile").write_text(text.replace(f"{hypervisor}.memory =", f"{hypervisor}.memroy ="))
    done = validate(folder, hypervisor, write(tmp_path, STUDY.replace("libvirt", hypervisor)))
    assert done.returncode != 0
    assert "memroy" in done.stderr + done.stdout


def test_a_study_that_cannot_be_read_is_told_by_the_vagrantfile(tmp_path):
    done = validate(files(), "libvirt", write(tmp_path, "cpus = [1,"))
    assert done.returncode != 0
    assert "study.toml" in done.stderr


def test_machines_are_made_by_hand_entered_and_destroyed(tmp_path):
    write(tmp_path)
    environment = {
        **os.environ,
        "VBSTUDY_STUDY": str(tmp_path),
        "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot"),
    }

    def vagrant(*arguments: str) -> str:
        done = subprocess.run(
            ["vagrant", *arguments], cwd=files(), env=environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done
        return done.stdout

    try:
        vagrant("up", "--no-provision")  # with it, a framework would be fetched
        assert "vagrant_cpus-1" in virsh("list", "--name").split()
        assert vagrant("ssh", "cpus-1", "-c", "nproc").strip() == "1"
    finally:
        vagrant("destroy", "--force")
    assert "vagrant_cpus-1" not in virsh("list", "--all", "--name") + virsh("vol-list", "default")


# ---- a machine ------------------------------------------------------------------------------


def test_a_machine_has_the_cpus_and_the_memory_that_were_asked_for(made):
    _, provider, connection = made
    seen = provider.observe(TWO, connection)
    assert seen.provider_cpus == seen.guest_cpus == 2
    assert seen.details["accelerator"] in ("tcg", "kvm")
    assert seen.start_s > 0
    assert 400 << 10 < int(shell(connection, "awk '/MemTotal/ {print $2}' /proc/meminfo")) < 512 << 10


def test_a_machine_with_another_count_of_cpus_than_asked_for_is_refused(made):
    _, provider, connection = made
    with pytest.raises(GuestError, match="3 CPUs were asked for, libvirt has 2, the guest sees 2"):
        provider.observe(GuestSpec(name="cpus-2", cpus=3), connection)


def test_each_virtual_cpu_is_held_to_a_core_of_its_own(made):
    (machine,) = machines(made[0])
    process = Path(f"/run/libvirt/qemu/{machine}.pid").read_text().strip()
    held = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
            if re.fullmatch(r"CPU \d+/(TCG|KVM)\n", (thread / "comm").read_text()):  # so QEMU names them
                held.append(os.sched_getaffinity(int(thread.name)))
    assert sorted(held, key=min) == [{core} for core in (host_cores() * 2)[:2]]


def test_the_studys_keys_are_the_only_ones(made):
    directory, _, connection = made
    keys = StudyKeys.of(Store(directory))
    assert shell(connection, "cat /home/vagrant/.ssh/authorized_keys") == keys.client().public + "\n"
    assert shell(connection, "cat /etc/ssh/ssh_host_ed25519_key.pub") == keys.host().public + "\n"
    assert shell(connection, "stat -c %a /home/vagrant/.ssh/authorized_keys") == "600\n"
    assert shell(connection, "sudo stat -c %a /etc/ssh/ssh_host_ed25519_key") == "600\n"
    assert shell(connection, "ls -A /home/vagrant/.vbstudy-seed 2>/dev/null | wc -l") == "0\n"
    for file in (directory / "guests" / "cpus-2" / "seed").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_machine_that_shows_another_host_key_is_refused(made, tmp_path):
    target = made[2].target
    other = StudyKeys(tmp_path, tmp_path / "known_hosts")
    other.pin(target.host, target.port, key_pair(tmp_path / "another").public)
    connection = SshConnection(dataclasses.replace(target, known_hosts=other.known_hosts), ".", "python3")
    with pytest.raises(GuestError, match="this may be another machine"):
        connection.connect()


def test_no_folder_of_the_host_is_in_a_machine(made):
    assert (
        shell(made[2], "ls -d /vagrant 2>/dev/null; mount | grep -cE 'nfs|9p|virtiofs|vboxsf' || :") == "0\n"
    )


def test_provisioning_what_is_there_already_does_nothing(made):
    """With an environment that stands there whole: no network, no pip."""
    _, _, connection = made
    connection.put(files() / "provision.sh", "provision.sh")
    script = (
        "sudo mkdir -p /opt/vbstudy seed"
        " && echo nothing==1 | sudo tee /opt/vbstudy/requirements.txt seed/requirements.txt"
        " && sudo sh provision.sh seed vagrant && ls /opt/vbstudy && sudo rm -rf /opt/vbstudy"
    )
    assert shell(connection, script).splitlines()[-1] == "requirements.txt"


@pytest.mark.needs("vagrant", long=True)
def test_an_environment_is_installed_from_wheels_without_a_network(made, tmp_path):
    """A package of one file stands for a framework."""
    _, _, connection = made
    (tmp_path / "proof.py").write_text("VALUE = 7\n")
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "proof"\nversion = "1.0"\n[tool.setuptools]\npy-modules = ["proof"]\n'
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*command, "--wheel-dir", tmp_path / "wheels", tmp_path], check=True, timeout=600)
    (wheel,) = (tmp_path / "wheels").iterdir()
    (tmp_path / "requirements.txt").write_text("proof==1.0\n")
    connection.put(wheel, f"with/wheels/{wheel.name}")
    connection.put(tmp_path / "requirements.txt", "with/requirements.txt")
    connection.put(files() / "provision.sh", "provision.sh")
    done = connection.run(["sudo", "sh", "provision.sh", "with", "vagrant"], {}, 1800)
    assert done.status == 0, done
    assert shell(connection, "/opt/vbstudy/bin/python -c 'import proof; print(proof.VALUE)'") == "7\n"
    shell(connection, "sudo rm -rf /opt/vbstudy")


# ---- faults ----------------------------------------------------------------------------------


def running(directory: Path) -> bool:
    return any("guest=vbstudy-" in words for words in processes(directory))


def test_what_a_killed_vbstudy_leaves_is_destroyed(tmp_path):
    """Vagrant goes on without it, until `destroy` ends it. Killed later, while the machine boots, it is in
    the test of a study that goes on."""
    with destroyed(write(tmp_path / "study")) as directory:
        process = start(directory, "-q", "provision")
        wait_until(lambda: disks(directory), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert any("vagrant" in words for words in processes(directory))
        assert disks(directory)


@pytest.mark.needs("vagrant", long=True)
def test_what_a_killed_vagrant_leaves_is_destroyed(tmp_path):
    with destroyed(write(tmp_path / "study")) as directory:
        process = start(directory, "-q", "provision")
        wait_until(lambda: running(directory), process)
        (vagrant,) = Vagrant(directory / "guests" / "cpus-1", "cpus-1", "libvirt")._processes()
        os.kill(vagrant, signal.SIGKILL)
        assert process.wait(600) == 4
        assert "`vagrant up` failed" in process.communicate()[1]
        assert disks(directory)


@pytest.mark.needs("vagrant", long=True)
def test_a_study_goes_on_after_vbstudy_was_killed_halfway(tmp_path, capsys):
    with destroyed(write(tmp_path / "study")) as directory:
        process = start(directory, "-q", "provision")
        wait_until(lambda: running(directory), process)
        time.sleep(3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert vbstudy(directory, "provision") == 0
        (guest,) = read_inventory(directory / "guests.json").guests
        assert guest.observed.details["machine"].endswith("cpus-1")
        assert vbstudy(directory, "ssh", "cpus-1", "sh", "-c", "test $(nproc) = 1 || exit 1; exit 7") == 7
        assert not running(directory)
        capsys.readouterr()
        assert vbstudy(directory, "logs", "cpus-1") == 0
        assert "$ vagrant up cpus-1 --no-provision" in capsys.readouterr().out
        # Its memory is another one now: it is made again.
        write(directory, STUDY.replace("512", "600"))
        provider_of(directory).create(ONE)
        assert left(directory) == []


def test_a_box_that_is_not_there_is_told_in_vagrants_words(tmp_path, capsys):
    with destroyed(write(tmp_path / "study", STUDY.replace(boxes.NAME, "nobody/nothing"))) as directory:
        assert vbstudy(directory, "provision") == 4
        assert (
            "guest cpus-1: `vagrant up` failed: The box 'nobody/nothing' could not be"
            in capsys.readouterr().err
        )


def test_machines_json_holds_no_secret(made):
    directory, _, _ = made
    text = (directory / "guests" / "cpus-2" / "machines.json").read_text()
    assert json.loads(text)[0]["cpus"] == 2
    assert "PRIVATE" not in text
