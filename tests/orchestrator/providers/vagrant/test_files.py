"""The folder `vagrant/`: where it is found, and that it says what the rest says."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from orchestrator.errors import UsageError
from orchestrator.providers.vagrant.command import files
from orchestrator.study import schema
from orchestrator.study.providers import VagrantTable
from orchestrator.transport.keys import key_pair
from tests.sshd import sshd_path

VAGRANT = '[provider]\nkind = "vagrant"\n'
WORKLOAD = '[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


def test_the_vagrantfile_has_the_defaults_of_the_study_file():
    text = (files() / "Vagrantfile").read_text()
    table = re.search(r"DEFAULTS = \{(.*?)\}", text, re.DOTALL)[1]
    found = {key: value.strip("'") for key, value in re.findall(r"'(\w+)' => ([^,]+),", table)}
    model = VagrantTable(kind="vagrant")
    assert found == {key: str(getattr(model, key)).removesuffix(".0") for key in found}
    assert set(found) == {"box", "memory_mib", "boot_timeout_s"}
    counts = re.search(r"DEFAULT_CPUS = \[(.*?)\]", text)[1]
    assert tuple(map(int, counts.split(", "))) == schema.parse(WORKLOAD).cpus


@pytest.mark.parametrize("script", ["provision.sh", "box/build", "box/boot", "box/dhcp", "box/initrd-init"])
def test_the_scripts_are_sound_shell(script):
    done = subprocess.run(["sh", "-n", files() / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs("sshd")
def test_a_guest_made_from_a_box_is_opened_by_the_studys_key_alone(tmp_path):
    seed, etc, home = tmp_path / "seed", tmp_path / "ssh", tmp_path / "home"
    for folder in (etc, home):
        folder.mkdir()
    host = key_pair(seed / "ssh_host_ed25519_key")
    (seed / "ssh_host_ed25519_key.pub").write_text(host.public)
    (seed / "authorized_keys").write_text("the study's\n")
    script = (files() / "provision.sh").read_text().replace(' -o "$user" -g "$user"', "")
    for path, instead in (
        ("/etc/ssh", etc),
        ("/var/lib/vbstudy", tmp_path / "work"),
        ('$(getent passwd "$user" | cut -d: -f6)', home),
        ("/run/sshd.pid", tmp_path / "pid"),
    ):
        assert path in script
        script = script.replace(path, str(instead))
    with subprocess.Popen(["sleep", "600"]) as server:
        (tmp_path / "pid").write_text(str(server.pid))
        subprocess.run(["sh", "-c", script, "provision.sh", seed, "vagrant"], check=True)
        assert server.wait(60) == -signal.SIGHUP
    assert (home / ".ssh" / "authorized_keys").read_text() == "the study's\n"
    (etc / "sshd_config.d" / "50-cloud-init.conf").write_text("PasswordAuthentication yes\n")
    (etc / "sshd_config").write_text(
        f"Include {etc}/sshd_config.d/*.conf\nKbdInteractiveAuthentication yes\n"
    )
    command = [sshd_path(), "-T", "-f", etc / "sshd_config", "-h", etc / "ssh_host_ed25519_key"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"passwordauthentication no", "kbdinteractiveauthentication no"} <= set(settings)


def test_building_a_box_without_its_tools_says_what_to_install(tmp_path):
    for tool in ("dirname", "realpath"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    script = (files() / "box" / "build").read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", "")
    (tmp_path / "build").write_text(script)
    done = subprocess.run(
        ["/bin/sh", tmp_path / "build", "a.box"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 3
    assert "apt install mmdebstrap e2fsprogs fdisk" in done.stderr
    assert "a.box" not in os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('hypervisor = "hyperv"', "provider.hypervisor = 'hyperv': allowed are virtualbox, libvirt"),
        (
            'box = "http://somewhere/a.box"',
            "provider.box = 'http://somewhere/a.box': a box as `vagrant box list`",
        ),
        ("memory_mib = 100", "provider.memory_mib = 100: input should be greater than or equal to 512"),
        ("execution_cap_percent = 50", "provider.execution_cap_percent: unknown key; allowed are"),
        ("boot_timeout_s = 0", "provider.boot_timeout_s = 0: input should be greater than 0"),
        ("cpus = 2", "provider.cpus: unknown key; allowed are boot_timeout_s, box,"),
    ],
)
def test_mistakes_in_the_provider_table_are_told_with_line_and_key(line, expected):
    with pytest.raises(UsageError) as caught:
        schema.parse(VAGRANT + line + "\n" + WORKLOAD)
    assert caught.value.message.startswith(f"study.toml:3: {expected}")
