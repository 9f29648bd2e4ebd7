"""What the provider and its machines do before any QEMU runs."""

import dataclasses
import json
import platform
from pathlib import Path

import pytest

from guest.machine import fingerprint
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.inventory import guest_spec
from orchestrator.providers.qemu import machine as machines
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


def test_a_host_on_which_no_image_can_be_built_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    (problem,) = qemu.QemuProvider(schema.parse(STUDY), Store(tmp_path), print).check()
    assert "builds its image on x86-64, and this machine is aarch64" in problem


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


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """Its guest `cpus-1` has a seed, and its image is built."""
    monkeypatch.setattr(qemu, "_which", lambda program: __file__)
    said = []
    made = qemu.QemuProvider(schema.parse(STUDY), Store(tmp_path), said.append)
    made.said, made._prepared = said, (IMAGE, "tcg", "")
    monkeypatch.setattr(made, "create", lambda guest: None)
    folder = tmp_path / "guests" / "cpus-1"
    folder.mkdir(parents=True)
    (folder / "seed.img").write_bytes(b"seed")
    return made


@pytest.mark.parametrize("changed", ["flags", "kernel"])
def test_a_snapshot_fits_another_cpu_or_kernel_below_under_emulation_alone(provider, monkeypatch, changed):
    def hardware(accelerator):
        provider._prepared = IMAGE, accelerator, ""
        return provider._hardware(guest_spec(1))

    before = {accelerator: hardware(accelerator) for accelerator in ("kvm", "tcg")}
    assert before["kvm"] == hardware("kvm")
    if changed == "flags":
        cpu = fingerprint.cpu()
        monkeypatch.setattr(fingerprint, "cpu", lambda: cpu | {"flags": [*cpu["flags"], "another"]})
    else:
        monkeypatch.setattr(platform, "release", lambda: "7.0")
    assert before["kvm"] != hardware("kvm")
    assert before["tcg"] == hardware("tcg")


def keep_snapshot(machine, hardware, workers):
    kept = {"hardware": dataclasses.asdict(hardware), "workers": workers}
    machine._snapshot.write_text(json.dumps(kept))
    machine.overlay.touch()


def test_a_guest_that_is_stopped_while_it_resumes_keeps_its_snapshot_and_does_not_boot(provider, monkeypatch):
    guest, starts = guest_spec(1), []
    machine = provider._machine(guest)
    keep_snapshot(machine, provider._hardware(guest), ["old"])

    def boot(guest, hardware, cores, *, resume=False):
        starts.append("resumed" if resume else "cold")
        provider.stop(guest)
        raise GuestError("its machine ended")

    monkeypatch.setattr(provider, "_boot", boot)
    for _ in range(2):
        with pytest.raises(GuestError, match="its machine ended"):
            provider.start(guest, (0,))
    assert starts == ["resumed", "resumed"]
    assert provider.said == []


def test_two_machines_that_end_at_once_are_both_stopped(tmp_path, monkeypatch):
    """The other one's thread forgets a process between two steps of this one's."""
    first, second = (QemuMachine(tmp_path / name) for name in ("a", "b"))

    class Ended:
        polled = False

        def poll(self):
            if not self.polled:
                self.polled = True
                second.kill()
            return 0

    monkeypatch.setattr(machines, "_children", {Ended()})
    first.kill()
    assert not machines._children


def test_a_guest_whose_snapshot_cannot_be_resumed_boots_once_and_takes_another_one(provider, monkeypatch):
    guest, starts, broken = guest_spec(1), [], True
    machine = provider._machine(guest)

    class Connection:
        workers = ()

    def boot(guest, hardware, cores, *, resume=False):
        starts.append("resumed" if resume else "cold")
        if resume and broken:
            raise GuestError("QEMU does not start: no snapshot 'warm'")
        if not resume:
            machine._snapshot.unlink()
        return Connection()

    def take(guest, machine, hardware, connection):
        keep_snapshot(machine, hardware, ["fresh"])
        return ("fresh",)

    monkeypatch.setattr(provider, "_boot", boot)
    monkeypatch.setattr(provider, "_take_snapshot", take)
    keep_snapshot(machine, provider._hardware(guest), ["old"])
    assert provider.start(guest, (0,)).workers == ("fresh",)
    assert starts == ["resumed", "cold"]
    assert provider.said == [
        "guest cpus-1: boots, its snapshot cannot be resumed: QEMU does not start: no snapshot 'warm'"
    ]
    broken = False
    assert provider.start(guest, (0,)).workers == ("fresh",)
    assert starts == ["resumed", "cold", "resumed"]
