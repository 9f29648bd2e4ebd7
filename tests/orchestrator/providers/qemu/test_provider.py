"""What the provider and its machines do before any QEMU runs."""

from pathlib import Path

import pytest

from orchestrator.errors import PrerequisiteError
from orchestrator.inventory import guest_spec
from orchestrator.providers.qemu import provider as qemu
from orchestrator.providers.qemu.image import Image
from orchestrator.providers.qemu.machine import QemuMachine
from orchestrator.store.store import Store
from orchestrator.study import schema

IMAGE = Image(boot=None, root=Path("/a/root"), root_format="raw", libraries=None, identity="")
STUDY = '[provider]\nkind = "qemu"\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


@pytest.mark.parametrize(
    ("gone", "package"), [("qemu-system-x86_64", "qemu-system-x86"), ("qemu-img", "qemu-utils")]
)
def test_a_sweep_where_a_program_was_uninstalled_names_its_package(tmp_path, monkeypatch, gone, package):
    monkeypatch.setattr(qemu, "_which", lambda program: None if program == gone else f"/usr/bin/{program}")
    made = qemu.QemuProvider(schema.parse(STUDY), Store(tmp_path), print)
    made._prepared = IMAGE, "tcg", "its image was built before"
    with pytest.raises(PrerequisiteError, match=f"apt install {package}$"):
        made.start(guest_spec(1), (0,))


@pytest.mark.parametrize("study", ["-foo", "exp:1"])
def test_a_folder_that_qemu_would_take_for_something_else_is_named_from_the_root(
    tmp_path, monkeypatch, study
):
    folder = tmp_path / study / "guests" / "cpus-1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    machine, commands = QemuMachine(Path(study) / "guests" / "cpus-1"), []
    monkeypatch.setattr("orchestrator.providers.processes.output", lambda *asked: commands.append(asked[0]))
    machine.new_overlay(IMAGE)
    assert commands[0][-1] == str(folder / "root.qcow2")
    assert machine.name == QemuMachine(folder).name
