"""Machines under a real VirtualBox, most of them without waiting for what boots in them. Run by
`.ci/run virtualbox`."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, GuestSpec, Observation, host_name
from orchestrator.providers.virtualbox import api, host
from orchestrator.providers.virtualbox import machine as machines
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests.processes import wait_until
from tests.virtualbox import kit
from tests.virtualbox.kit import ONE, TWO, manage

pytestmark = pytest.mark.needs("virtualbox")


@pytest.fixture
def provider(tmp_path):
    with kit.study_in(tmp_path) as made:
        yield made


def name_of(directory: Path, guest=ONE) -> str:
    return host_name(directory / "guests" / guest.name)


# ---- how they are made -----------------------------------------------------------------------


def test_a_guest_is_a_linked_clone_with_the_settings_of_the_study(tmp_path):
    with kit.study_in(tmp_path, memory_mib=192, nested_paging=False) as provider:
        provider.create(TWO)
        seen = kit.info(name_of(tmp_path, TWO))
        assert (seen["cpus"], seen["memory"]) == ("2", "192")
        assert (seen["nestedpaging"], seen["ioapic"]) == ("off", "on")
        assert (seen["nic1"], seen["uart1"]) == ("nat", "0x03f8,4")
        assert seen["uartmode1"] == f"file,{tmp_path.resolve()}/guests/cpus-2/console.log"
        rule, protocol, address, port, _, inside = seen["Forwarding(0)"].split(",")
        assert (rule, protocol, address, inside) == ("vbstudy-ssh", "tcp", "127.0.0.1", "22")
        assert 1024 <= int(port) <= 65535
        disk = manage("showmediuminfo", "disk", seen["SATA-ImageUUID-0-0"])
        assert "differencing" in disk
        (base,) = (tmp_path / "guests").glob("base-*")
        assert manage("getextradata", name_of(tmp_path, TWO), "vbstudy/study").strip() == (
            f"Value: {host_name(tmp_path / 'guests')}"
        )
        assert manage("getextradata", host_name(base), "vbstudy/study").startswith("Value: vbstudy-")


def test_other_settings_make_another_machine_and_the_same_do_not(tmp_path):
    with kit.study_in(tmp_path) as provider:
        provider.create(ONE)
        first = kit.info(name_of(tmp_path))["UUID"]
        kit.provider(tmp_path).create(ONE)
        assert kit.info(name_of(tmp_path))["UUID"] == first
        kit.provider(tmp_path, memory_mib=160).create(ONE)
        changed = kit.info(name_of(tmp_path))
        assert changed["UUID"] != first
        assert changed["memory"] == "160"
        assert len(kit.machines_in(tmp_path)) == 2  # the guest and its base


def test_guests_are_made_side_by_side(provider, tmp_path):
    with ThreadPoolExecutor() as pool:
        list(pool.map(provider.create, (ONE, TWO)))
    assert len(kit.machines_in(tmp_path)) == 3


@pytest.mark.parametrize("form", ["VMDK", "VHD", "raw"])
def test_a_base_may_be_a_disk_of_another_format_which_stays_as_it_is(tmp_path, form):
    disk = tmp_path / f"disk.{form.lower()}"
    if form == "raw":
        manage("internalcommands", "converttoraw", str(kit.image()), str(disk))
    else:
        manage("clonemedium", "disk", str(kit.image()), str(disk), "--format", form)
        manage("closemedium", "disk", str(disk))
        manage("closemedium", "disk", str(kit.image()))
    before = disk.read_bytes()
    with kit.study_in(tmp_path, base=disk.name) as provider:
        assert provider.check() == []
        provider.create(ONE)
        assert "SATA-ImageUUID-0-0" in kit.info(name_of(tmp_path))
    assert disk.read_bytes() == before
    assert str(disk) not in manage("list", "hdds")


@pytest.fixture
def template(tmp_path):
    """A machine of the user's, with a snapshot."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    shutil.copy(kit.image(), folder / "disk.vdi")
    manage("internalcommands", "sethduuid", str(folder / "disk.vdi"))
    manage(
        "createvm", "--name", "theirs", "--ostype", "Linux26_64", "--basefolder", str(folder), "--register"
    )
    manage("modifyvm", "theirs", "--memory", "96", "--vm-execution-engine=interpreter", "--nic1", "nat")
    manage("modifyvm", "theirs", "--nat-pf1", "web,tcp,127.0.0.1,8099,,80")
    manage("storagectl", "theirs", "--name", "IDE", "--add", "ide")
    attach = ["--storagectl", "IDE", "--port", "0", "--device", "0", "--type", "hdd"]
    manage("storageattach", "theirs", *attach, "--medium", str(folder / "disk.vdi"))
    yield "theirs"
    manage("unregistervm", "theirs", "--delete")


def test_a_base_may_be_a_machine_of_the_users_which_is_only_read(tmp_path, template):
    study = tmp_path / "study"
    study.mkdir()
    with kit.study_in(study, base=template) as provider:
        (problem,) = provider.check()
        assert problem.endswith("switch it off and take one: VBoxManage snapshot 'theirs' take vbstudy")
        manage("snapshot", template, "take", "a")
        before = kit.info(template)
        assert provider.check() == []
        provider.create(ONE)
        seen = kit.info(name_of(study))
        assert "IDE-ImageUUID-0-0" in seen
        assert [seen[key].split(",")[0] for key in seen if key.startswith("Forwarding")] == ["vbstudy-ssh"]
        assert kit.info(template) == before
    assert kit.info(template) == before


def test_a_guest_shares_nothing_that_the_base_shares_with_its_host(tmp_path, template):
    manage("modifyvm", template, "--nic2", "nat", "--nic8", "hostonly", "--nat-localhostreachable1", "on")
    manage("modifyvm", template, "--vrde", "on", "--usb-ohci", "on", "--lpt1", "0x378", "7")
    manage("modifyvm", template, "--uart2", "0x2f8", "3", "--uartmode2", "file", str(tmp_path / "second.log"))
    manage("sharedfolder", "add", template, "--name", "home", "--hostpath", str(tmp_path), "--automount")
    manage("usbfilter", "add", "0", "--target", template, "--name", "all", "--active", "yes")
    manage("snapshot", template, "take", "a")
    before = kit.info(template)
    assert {"SharedFolderNameMachineMapping1", "USBFilterActive1"} <= before.keys()
    assert 'localhost-reachable="true"' in Path(before["CfgFile"]).read_text()
    study = tmp_path / "study"
    study.mkdir()
    with kit.study_in(study, base=template) as provider:
        provider.create(ONE)
        seen = kit.info(name_of(study))
        assert not {key for key in seen if key.startswith(("SharedFolder", "USBFilter"))}
        assert (seen["nic1"], seen["nic2"], seen["nic8"], seen["vrde"]) == ("nat", "none", "none", "off")
        assert (seen["uart2"], seen["lpt1"]) == ("off", "off")
        assert 'localhost-reachable="true"' not in Path(seen["CfgFile"]).read_text()
        assert kit.info(template) == before


def test_another_snapshot_of_the_base_is_refused_until_guests_are_made_again(tmp_path, template):
    study = tmp_path / "study"
    study.mkdir()
    manage("snapshot", template, "take", "a")
    with kit.study_in(study, base=template) as provider:
        provider.create(ONE)
        made = kit.info(name_of(study))["UUID"]
        details = provider.resolved(ONE, (0,))
        assert details == {"base": kit.info(template)["CurrentSnapshotUUID"]}
        manage("snapshot", template, "take", "b")
        later = kit.provider(study, base=template)
        seen = Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1.0, details=details)
        guest = Guest(spec=ONE, observed=seen, created_at="now")
        parsed = schema.parse(kit.table(base=template) + kit.WORKLOAD)
        with pytest.raises(GuestError, match=f"made with base = '{details['base']}', now it is .*provision"):
            Session(parsed, Store(study), later, guest, (0,), None).executor()
        assert kit.info(name_of(study))["UUID"] == made
        later.create(ONE)
        assert kit.info(name_of(study))["UUID"] != made


def test_a_base_may_be_an_appliance(tmp_path, template):
    study = tmp_path / "study"
    study.mkdir()
    manage("export", template, "--output", str(study / "box.ova"))
    with kit.study_in(study, base="box.ova") as provider:
        assert provider.check() == []
        provider.create(ONE)
        provider.create(TWO)
        assert kit.info(name_of(study, TWO))["cpus"] == "2"
        assert len(kit.machines_in(study)) == 3
    assert template in kit.machines()
    assert (study / "box.ova").exists()


def test_a_cloud_image_gets_a_seed_disk_with_the_keys_of_the_study(tmp_path):
    changes = {"cloud_init": True, "host_key": None, "key": None, "user": "me"}
    with kit.study_in(tmp_path, **changes) as provider:
        assert provider.check() == []
        provider.create(ONE)
        seed = tmp_path / "guests" / "cpus-1" / "seed.iso"
        public = (tmp_path / "keys" / "id_ed25519").with_name("host_ed25519")
        assert public.exists()
        assert b"ssh-ed25519 " in seed.read_bytes()
        assert str(seed.resolve()) in kit.info(name_of(tmp_path)).values()
        identity = kit.info(name_of(tmp_path))["UUID"]
        provider.create(ONE)
        assert kit.info(name_of(tmp_path))["UUID"] == identity


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base": "no-such-machine"}, "provider.base = 'no-such-machine': VirtualBox has no such machine"),
        ({"base": "missing.vdi"}, "provider.base = 'missing.vdi': there is no such file; give its url"),
        ({"base_sha256": "0" * 64}, "base_sha256 in study.toml is another; delete the file to fetch it"),
        ({"host_key": None}, "provider.host_key is missing: give the host key that the image shows"),
        ({"memory_mib": 1 << 20}, "provider.memory_mib = 1048576: the host has"),
        (
            {"execution_engine": "auto"},
            "provider virtualbox: VirtualBox's kernel driver is not loaded: ",
        ),
    ],
)
def test_what_is_missing_is_told_before_anything_is_made(tmp_path, changes, expected):
    provider = kit.provider(tmp_path, **changes)
    (problem,) = provider.check()
    assert expected in problem
    assert "\n" not in problem
    assert list(tmp_path.iterdir()) == []


# ---- what goes wrong -------------------------------------------------------------------------


def test_a_start_without_the_kernel_driver_says_how_to_load_it(tmp_path):
    with kit.study_in(tmp_path, execution_engine="auto") as provider:
        provider.create(ONE)
        with pytest.raises(PrerequisiteError, match="run `sudo modprobe vboxdrv`") as caught:
            provider._machine(ONE).launch(2)
        assert caught.value.message.startswith("guest cpus-1: VirtualBox's kernel driver is not loaded")
        assert "VERR_SUP_DRIVERLESS" in caught.value.evidence


def test_a_machine_of_somebody_else_with_our_name_is_left_alone(provider, tmp_path):
    theirs = tmp_path / "elsewhere"
    name = name_of(tmp_path)
    manage("createvm", "--name", name, "--basefolder", str(theirs), "--register")
    try:
        before = kit.info(name)
        with pytest.raises(GuestError, match="that this study did not make; it is left alone: rename it"):
            provider.create(ONE)
        provider.destroy(ONE)
        assert kit.info(name) == before
        assert not (tmp_path / "guests" / "cpus-1").exists()
    finally:
        manage("unregistervm", name, "--delete")


def test_a_clone_that_a_user_made_of_a_guest_is_left_alone(provider, tmp_path):
    provider.create(ONE)
    folder = str(tmp_path / "elsewhere")
    manage("clonevm", name_of(tmp_path), "--name", "copy", "--basefolder", folder, "--register")
    try:
        provider.destroy(ONE)
        assert "copy" in kit.machines()
        assert name_of(tmp_path) not in kit.machines()
    finally:
        manage("unregistervm", "copy", "--delete")
    provider.destroy(ONE)


LOCK = """
import sys, virtualbox
virtualbox.VirtualBox.assert_version = False
session = virtualbox.Session()
virtualbox.VirtualBox().find_machine(sys.argv[1]).lock_machine(session, virtualbox.library.LockType.write)
print("locked", flush=True)
sys.stdin.read()
session.unlock_machine()
"""


def test_a_machine_that_another_program_has_locked_is_told_and_used_again_afterwards(
    provider, tmp_path, monkeypatch
):
    monkeypatch.setattr(api, "UNLOCK_TIMEOUT_S", 1)
    provider.create(ONE)
    command = [sys.executable, "-c", LOCK, name_of(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        for attempt in (lambda: provider._machine(ONE).forward(2222), lambda: provider.destroy(ONE)):
            with pytest.raises(GuestError, match="guest cpus-1: its machine is locked by another program"):
                attempt()
        with pytest.raises(GuestError, match="is locked by another program"):
            provider._machine(ONE).launch(2)
        other.stdin.close()
        other.wait()
    provider._machine(ONE).launch(2)
    provider.stop(ONE)


def test_a_missing_disk_is_told_with_its_cure(provider, tmp_path):
    provider.create(ONE)
    (disk,) = tmp_path.glob("guests/base-*/disk.vdi")
    disk.unlink()
    with pytest.raises(GuestError, match="a disk of its machine is missing; put it back, or run") as caught:
        provider._machine(ONE).launch(2)
    assert "\n" not in caught.value.message
    assert str(disk) in caught.value.message


def test_running_machines_may_not_have_more_together_than_the_host(provider, tmp_path):
    manage("createvm", "--name", "other", "--basefolder", str(tmp_path / "other"), "--register")
    manage("modifyvm", "other", "--vm-execution-engine=interpreter", "--memory", "64", "--cpus", "2")
    try:
        manage("startvm", "other", "--type", "headless")
        provider.create(ONE)
        with pytest.raises(GuestError, match="of the host's 2 cores 2 are taken by other: shut down"):
            provider._machine(ONE).launch(2)
        provider._machine(ONE).launch(3)
        provider.stop(ONE)
    finally:
        manage("controlvm", "other", "poweroff")
        deadline = time.monotonic() + 120
        while "other" in kit.machines():  # it is locked until its process has ended
            assert time.monotonic() < deadline
            subprocess.run(["VBoxManage", "-q", "unregistervm", "other", "--delete"], check=False)
            time.sleep(0.5)


def test_guests_of_a_study_that_wait_for_their_next_run_leave_the_cores_to_others(provider):
    provider.create(ONE)
    provider.create(TWO)
    provider._machine(ONE).launch(2)
    provider._machine(TWO).launch(2)
    assert provider._machine(ONE).state() == provider._machine(TWO).state() == "Running"


def test_machines_lie_in_the_study_however_its_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with kit.study_in(Path()) as provider:
        provider.create(ONE)
        assert len(kit.machines_in(tmp_path)) == 2  # the guest and its base


def test_a_machine_that_sleeps_is_asleep_whatever_virtualbox_tells_of_the_way_there(provider, monkeypatch):
    provider.create(ONE)
    machine = provider._machine(ONE)
    machine.launch(2)
    time.sleep(2)  # it has a while behind it when it is told to sleep
    finish = machine._api.finish

    def finish_and_complain(*arguments, **options):
        finish(*arguments, **options)
        raise GuestError("Assertion failed: [SUCCEEDED(hrc)]")

    with monkeypatch.context() as patch:
        patch.setattr(machine._api, "finish", finish_and_complain)
        machine.save_state()
    assert machine.state() == "Saved"
    machine.launch(2)
    assert machine.state() == "Running"
    provider.stop(ONE)


def test_a_machine_whose_process_is_killed_is_started_again(provider, tmp_path):
    provider.create(ONE)
    machine = provider._machine(ONE)
    machine.launch(2)
    os.kill(machine.process(), signal.SIGKILL)
    wait_until(lambda: machine.state() == "Aborted")
    assert machine.state() == "Aborted"
    assert provider.watch([ONE])["cpus-1"].state == "Aborted"
    provider.stop(ONE)
    machine.launch(2)
    assert machine.state() == "Running"


def test_a_process_is_held_to_the_cores_it_was_given_with_a_virtual_cpu_on_each(provider):
    provider.create(TWO)
    machine = provider._machine(TWO)
    machine.launch(2)
    process, cores = machine.process(), host.cores()
    for wanted in (cores[:1], cores):
        host.pin(process, wanted, "guest")
        held = {}
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
                name = (thread / "comm").read_text().strip()
                held[name, thread.name] = os.sched_getaffinity(int(thread.name))
        assert len(held) > 10
        assert all(cores <= set(wanted) for cores in held.values())
        virtual = {name: cores for (name, _), cores in held.items() if name in ("EMT-0", "EMT-1")}
        assert virtual == {"EMT-0": {wanted[0]}, "EMT-1": {wanted[1 % len(wanted)]}}


def test_a_forward_to_a_port_that_is_taken_is_moved(provider, monkeypatch):
    provider.create(ONE)
    machine = provider._machine(ONE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        machine.forward(port)
        machine.launch(2)
        process = machine.process()
        assert host.is_taken(process, port)
        moved = provider._own_port(ONE, machine, process, port)
        assert moved != port
        assert host.listens(process, moved)
        wait_until(lambda: machine.observe().port == moved)
        assert machine.observe().port == moved


# ---- crashes ---------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.errors import GuestError
from orchestrator.providers import machines
from orchestrator.providers.virtualbox import api, host, provider as providers
from tests.virtualbox import kit

deadly, steps, attempt = int(sys.argv[2]), [], api.Api.attempt

def counted(self, function):
    result = attempt(self, function)
    name = getattr(function, "func", function).__name__  # some are functools.partial
    if name in ("begin", "conclude", "change", "_assemble", "close_media"):
        steps.append(name)
        if len(steps) == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
    return result

api.Api.attempt = counted
machines.speaks_ssh = lambda port, timeout_s: True  # nobody waits for the guest to boot
providers.VirtualBoxProvider._refresh = lambda self, guest, connection: None
provider = kit.provider(Path(sys.argv[1]))
for guest in (kit.ONE, kit.TWO):
    provider.create(guest)
for _ in range(2):
    try:
        provider.start(kit.ONE, host.cores()[:1])
    except GuestError as error:
        # VirtualBox's interpreter itself crashes now and then when it resumes what was in its BIOS.
        assert "ended while it was started" in error.message, error
    provider.stop(kit.ONE)
provider.destroy(kit.TWO)
provider.destroy(kit.ONE)
print(len(steps))
"""


def script(directory: Path, deadly: int) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", KILLED, str(directory), str(deadly)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_whatever_step_an_orchestrator_is_killed_after_destroy_leaves_nothing(tmp_path, pytestconfig):
    whole = script(tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    assert steps > 20
    reached = 0
    chosen = range(1, steps + 1, 1 if pytestconfig.getoption("--long") else 5)
    for deadly in chosen:
        directory = tmp_path / str(deadly)
        directory.mkdir()
        (directory / "study.toml").write_text(f"cpus = [1, 2]\n{kit.table()}{kit.WORKLOAD}")
        killed = script(directory, deadly)
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr  # 0: a start was shorter, see above
        reached += killed.returncode != 0
        assert cli.run(["-q", "-C", str(directory), "destroy"]) == 0
        assert kit.machines_in(directory) == [], f"after step {deadly}"
        assert kit.media_in(directory) == [], f"after step {deadly}"
        assert kit.processes_in(directory) == [], f"after step {deadly}"
        assert not (directory / "guests").exists(), f"after step {deadly}"
    assert reached * 4 >= len(chosen) * 3


def test_a_killed_provisioning_is_taken_up_where_it_ended(tmp_path):
    directory = tmp_path / "study"
    directory.mkdir()
    assert script(directory, 6).returncode == -signal.SIGKILL
    with kit.study_in(directory) as provider:
        provider.create(ONE)
        provider.create(TWO)
        assert len(kit.machines_in(directory)) == 3


# ---- on a busy machine -----------------------------------------------------------------------

BURN = "while True: pass"


def test_destroy_returns_when_the_process_has_ended_and_the_files_are_gone(tmp_path):
    cycles = int(os.environ.get("VBSTUDY_CYCLES", "4"))
    busy = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2)]
    try:
        for cycle in range(cycles):
            directory = tmp_path / str(cycle)
            directory.mkdir()
            provider = kit.provider(directory)
            provider.create(ONE)
            provider._machine(ONE).launch(2)
            process = provider._machine(ONE).process()
            wait_until(lambda d=directory: kit.holders_in(d))
            provider.destroy(ONE)
            left = list((directory / "guests").rglob("*")), kit.holders_in(directory), kit.has_ended(process)
            assert left == ([], [], True), f"cycle {cycle}"
            assert kit.machines_in(directory) == kit.media_in(directory) == [], f"cycle {cycle}"
    finally:
        for each in busy:
            each.kill()
            each.wait()


# ---- many ------------------------------------------------------------------------------------


def test_sixteen_machines_are_looked_at_together(tmp_path):
    guests = [GuestSpec(name=f"cpus-{count}", cpus=count) for count in range(1, 17)]
    provider = kit.provider(tmp_path)
    try:
        for guest in guests:
            provider.create(guest)
        provider._machine(ONE).launch(2)
        seen = provider.watch(guests)
        assert [seen[guest.name].cpus for guest in guests] == list(range(1, 17))
        assert {one.state for name, one in seen.items() if name != "cpus-1"} == {"PoweredOff"}
        assert seen["cpus-1"].state == "Running"
    finally:
        for guest in guests:
            provider.destroy(guest)
    assert kit.machines_in(tmp_path) == []


def test_status_shows_what_the_machines_do_now(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(f"cpus = [1, 2]\n{kit.table()}{kit.WORKLOAD}")
    with kit.study_in(tmp_path) as provider:
        provider.create(ONE)
        provider._machine(ONE).launch(2)
        assert cli.run(["-C", str(tmp_path), "--json", "status"]) == 0
        now = json.loads(capsys.readouterr().out)["now"]
        assert now["cpus-1"]["state"] == "Running"
        assert now["cpus-1"]["cpus"] == 1
        assert now["cpus-1"]["port"] > 0
        assert "cpus-2" not in now
        assert machines.OFF & {now["cpus-1"]["state"]} == set()
