"""A machine that Vagrant makes under a real VirtualBox, through vbstudy and by hand. Run by
`.ci/run vagrant-virtualbox`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.inventory import read_inventory
from orchestrator.providers.vagrant.command import files
from orchestrator.store.store import Store
from orchestrator.transport.keys import StudyKeys
from tests.vagrant import boxes, test_vagrant
from tests.vagrant.test_vagrant import vbstudy
from tests.virtualbox import kit

pytestmark = pytest.mark.needs("vagrant_virtualbox")

PATIENCE_S = 4500
STUDY = test_vagrant.STUDY.replace("libvirt", "virtualbox").replace(
    "memory_mib = 512\n", f"memory_mib = 512\nboot_timeout_s = {PATIENCE_S}\n"
)


def vagrant(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        ["vagrant", *arguments],
        cwd=files(),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def box():
    """A Vagrant that knows the box, and a VirtualBox that it takes for one that it knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAGRANT_HOME", str(kit.folder() / "vagrant"))
        patch.setenv("VAGRANT_CHECKPOINT_DISABLE", "1")
        patch.setenv("PATH", f"{Path(__file__).parent / 'host'}:{os.environ['PATH']}")
        vagrant("box", "add", "--force", "--name", boxes.NAME, str(kit.folder() / "debian.box"))
        yield


@pytest.fixture
def study(tmp_path):
    return test_vagrant.write(tmp_path, STUDY)


def test_a_guest_is_provisioned_started_again_and_destroyed(study, capfd):
    before = kit.machines()
    try:
        assert vbstudy(study, "provision") == 0
        (guest,) = read_inventory(study / "guests.json").guests
        machine = guest.observed.details["machine"]
        assert (guest.observed.provider_cpus, guest.observed.guest_cpus) == (1, 1)
        assert guest.observed.details["hypervisor"] == "virtualbox"
        assert kit.info(machine)["VMState"] == "poweroff"
        capfd.readouterr()
        assert vbstudy(study, "ssh", "cpus-1", "cat", "/home/vagrant/.ssh/authorized_keys") == 0
        assert capfd.readouterr().out == StudyKeys.of(Store(study)).client().public + "\n"
        assert kit.info(machine)["VMState"] == "poweroff"
        (known,) = json.loads((study / "guests/cpus-1/machines.json").read_text())
        assert kit.info(machine)["memory"] == str(known["memory_mib"])
    finally:
        assert vbstudy(study, "destroy") == 0
    assert kit.machines() == before
    assert not (study / "guests").exists()


def test_machines_are_made_by_hand_entered_halted_and_destroyed(study):
    before = kit.machines()
    by_hand = {"VBSTUDY_STUDY": str(study), "VAGRANT_DOTFILE_PATH": str(study / "dot")}
    try:
        vagrant("up", "cpus-1", "--no-provision", **by_hand)
        (machine,) = set(kit.machines()) - set(before)
        assert kit.info(machine)["VMState"] == "running"
        assert vagrant("ssh", "cpus-1", "-c", "nproc", **by_hand).strip() == "1"
        vagrant("halt", "cpus-1", **by_hand)
        assert kit.info(machine)["VMState"] == "poweroff"
    finally:
        vagrant("destroy", "--force", **by_hand)
    assert kit.machines() == before
