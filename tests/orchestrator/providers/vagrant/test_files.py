"""The folder `vagrant/`: where it is found, and that it says what the rest says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.providers.vagrant.command import files
from orchestrator.study import schema
from orchestrator.study.providers import VagrantTable

REPOSITORY = Path(__file__).parents[4]
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


def test_machines_made_by_hand_get_the_locked_versions():
    locked = (REPOSITORY / "requirements.lock").read_text().splitlines()
    pins = [line for line in (files() / "requirements.txt").read_text().splitlines() if line[:1] != "#"]
    assert len(pins) == 3
    assert set(pins) <= set(locked)


@pytest.mark.parametrize("script", ["provision.sh", "box/build", "box/boot", "box/dhcp", "box/initrd-init"])
def test_the_scripts_are_sound_shell(script):
    done = subprocess.run(["sh", "-n", files() / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
