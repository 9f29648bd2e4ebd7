"""When the provider calls Vagrant, and when it makes a machine anew; scripts stand in for Vagrant and
libvirt. Real machines are in `tests/vagrant`."""

import os
import shutil
import threading
import time

import pytest

from orchestrator.errors import GuestError
from orchestrator.files import locked
from orchestrator.guests import doctor
from orchestrator.inventory import GuestSpec, host_name
from orchestrator.providers import make
from orchestrator.providers.vagrant.provider import VagrantProvider
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests.processes import wait_until
from vbstudy import caches

ONE = GuestSpec(name="cpus-1", cpus=1)
STUDY = """
[provider]
kind = "vagrant"
hypervisor = "libvirt"
memory_mib = {memory}
boot_timeout_s = {boot_timeout_s}
python = "/usr/bin/python3"

[[workload]]
model = "lenet1"
dataset = "digits"
"""
# Notes down a machine as Vagrant does; fails as often as `failures` says.
VAGRANT = """
echo "vagrant $2" >> calls
state="$VAGRANT_DOTFILE_PATH/machines/cpus-1/libvirt"
case $2 in
up) mkdir -p "$state"; echo 1-2 > "$state/id"
    while [ -e hang ]; do sleep 0.2; done
    left=$(cat failures 2>/dev/null || echo 0)
    [ "$left" = 0 ] && exit
    echo $((left - 1)) > failures; echo '1,,error-exit,A::B,it does not boot'; exit 1 ;;
destroy) rm -rf "$state" ;;
ssh-config) echo '1,cpus-1,ssh-config,Host cpus-1\\n  HostName 127.0.0.1\\n  User vagrant\\n  Port 9\\n' ;;
esac
"""
VIRSH = """
case $* in *pool-list*|*list*) ;; *) echo "$*" >> calls ;; esac
case $* in *vcpucount*) echo 1 ;; *vcpuinfo*) printf 'VCPU: 0\\nCPU Affinity: y\\n' ;; esac
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, script in (("vagrant", VAGRANT), ("virsh", VIRSH)):
        (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{script}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def provider(tmp_path, memory=512, boot_timeout_s=300):
    text = STUDY.format(memory=memory, boot_timeout_s=boot_timeout_s)
    return make(schema.parse(text), Store(tmp_path))


def calls(tools) -> list[str]:
    file = tools / "calls"
    return (
        [line for line in file.read_text().splitlines() if line.startswith("vagrant")]
        if file.exists()
        else []
    )


def up(made, tmp_path) -> None:
    """As far as scripts can carry it: there is no machine to connect to."""
    made.create(ONE)
    made._up(ONE, made._vagrant(ONE), made._hypervisor(ONE))


def test_a_new_machine_that_does_not_start_is_told_at_once(tmp_path, tools):
    (tools / "failures").write_text("1")
    with pytest.raises(GuestError, match="it does not boot"):
        up(provider(tmp_path), tmp_path)
    assert calls(tools) == ["vagrant up"]


def test_a_machine_that_was_made_half_is_completed(tmp_path, tools):
    (tools / "failures").write_text("1")
    made = provider(tmp_path)
    with pytest.raises(GuestError):
        up(made, tmp_path)
    up(made, tmp_path)
    assert calls(tools) == ["vagrant up", "vagrant up"]
    assert "--provision" in (tmp_path / "guests" / "cpus-1" / "vagrant.log").read_text()


def test_a_half_made_machine_that_cannot_be_completed_is_made_anew(tmp_path, tools):
    (tools / "failures").write_text("2")
    made = provider(tmp_path)
    with pytest.raises(GuestError):
        up(made, tmp_path)
    up(made, tmp_path)
    assert calls(tools) == ["vagrant up", "vagrant up", "vagrant destroy", "vagrant up"]


def test_a_machine_that_is_stopped_while_it_starts_is_not_made_anew(tmp_path, tools):
    made = provider(tmp_path)
    up(made, tmp_path)
    (tools / "hang").touch()
    failures = []

    def starting() -> None:
        try:
            up(made, tmp_path)
        except GuestError as error:
            failures.append(error)

    thread = threading.Thread(target=starting)
    thread.start()
    deadline = time.monotonic() + 120
    while len(calls(tools)) < 2 or not made._vagrant(ONE)._processes():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    made.stop(ONE)
    thread.join(120)
    assert not thread.is_alive()
    assert len(failures) == 1
    assert calls(tools) == ["vagrant up", "vagrant up"]


@pytest.mark.parametrize("fails", ["up", "pin", "address"])
def test_a_machine_whose_start_fails_is_switched_off(tmp_path, tools, fails):
    made = provider(tmp_path)
    up(made, tmp_path)
    machine = made._machine(ONE)
    (tools / "virsh").write_text(f"""#!/bin/sh
cd {tools}
case $* in
*vcpucount*) echo 1 ;; *vcpuinfo*) [ {fails} = pin ] || printf 'VCPU: 0\\nCPU Affinity: y\\n' ;;
*list*) echo {machine} ;; *domstate*) echo running ;; *destroy*) echo off >> calls ;;
esac
""")
    (tools / "failures").write_text("2" if fails == "up" else "0")
    why = {"up": "it does not boot", "pin": "cannot be held", "address": "reports no address"}[fails]
    with pytest.raises(GuestError, match=why):
        made.start(ONE, (0,))
    assert (tools / "calls").read_text().splitlines()[-1] == "off"


def test_removing_a_copied_study_leaves_the_machine_of_the_other_one(tmp_path, tools):
    (tmp_path / "a").mkdir()
    up(provider(tmp_path / "a"), tmp_path)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    provider(tmp_path / "b").destroy(ONE)
    assert not (tmp_path / "b" / "guests" / "cpus-1").exists()
    assert calls(tools) == ["vagrant up"]


def test_removing_a_moved_study_removes_its_machine(tmp_path, tools):
    (tmp_path / "a").mkdir()
    up(provider(tmp_path / "a"), tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    provider(tmp_path / "b").destroy(ONE)
    assert calls(tools) == ["vagrant up", "vagrant destroy"]


def test_a_machine_that_shall_be_another_one_is_removed_first(tmp_path, tools):
    up(provider(tmp_path), tmp_path)
    provider(tmp_path).create(ONE)
    assert calls(tools) == ["vagrant up"]
    provider(tmp_path, memory=600).create(ONE)
    assert calls(tools) == ["vagrant up", "vagrant destroy"]
    assert '"memory_mib": 600' in (tmp_path / "guests" / "cpus-1" / "machines.json").read_text()


def test_a_machine_with_another_time_limit_stays_and_has_it_from_now_on(tmp_path, tools):
    up(provider(tmp_path), tmp_path)
    made = provider(tmp_path, boot_timeout_s=600)
    made._ready_file(ONE).touch()
    up(made, tmp_path)
    assert calls(tools) == ["vagrant up", "vagrant up"]
    assert made._ready_file(ONE).exists()
    assert '"boot_timeout_s": 600' in (tmp_path / "guests" / "cpus-1" / "machines.json").read_text()


def test_what_is_made_is_found_by_a_name_of_the_studys_own(tmp_path, tools):
    (tmp_path / "a").mkdir()
    made = provider(tmp_path / "a")
    assert made._machine(ONE) == f"{host_name(tmp_path / 'a' / 'guests' / 'cpus-1')}-cpus-1"


def test_two_starts_take_turns(tmp_path, tools):
    """Of one study or of several: the second begins when the first is done."""
    (tools / "vagrant").write_text(
        f"#!/bin/sh\ncd {tools}\n[ $2 = up ] || exit 0\n"
        "mkdir busy || echo twice >> calls\nsleep 0.5\nrmdir busy\n"
    )
    threads = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        threads.append(threading.Thread(target=up, args=(provider(tmp_path / name), tmp_path)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert calls(tools) == []
    assert not (tools / "calls").exists()


def test_a_guest_that_waits_for_another_studys_vagrant_says_so_and_can_be_stopped(tmp_path, tools):
    (tmp_path / "cache" / "vbstudy").mkdir(parents=True)
    said, failures = [], []
    made = VagrantProvider(
        schema.parse(STUDY.format(memory=512, boot_timeout_s=300)), Store(tmp_path), said.append
    )

    def starting() -> None:
        try:
            up(made, tmp_path)
        except GuestError as error:
            failures.append(error.message)

    with locked(caches.folder() / "vagrant.lock"):
        thread = threading.Thread(target=starting, daemon=True)
        thread.start()
        wait_until(lambda: said)
        made.stop(ONE)
        thread.join(120)
        assert not thread.is_alive()
    assert said == ["guest cpus-1: waits until Vagrant is done with another guest"]
    assert failures == ["guest cpus-1: was stopped before Vagrant came to it"]
    assert calls(tools) == []


def test_without_vagrant_the_check_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = provider(tmp_path).check()
    assert "provider vagrant needs Vagrant: apt install vagrant" in problem


def test_the_seed_holds_the_studys_keys_for_their_owner_only(tmp_path, tools):
    made = provider(tmp_path)
    made.create(ONE)
    seed = tmp_path / "guests" / "cpus-1" / "seed"
    assert {file.name: file.stat().st_mode & 0o777 for file in seed.iterdir()} == dict.fromkeys(
        ("authorized_keys", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "requirements.txt"), 0o600
    )
    assert (seed / "requirements.txt").read_text() == ""


def test_doctor_says_with_which_hypervisor_vagrant_works(tools):
    (tools / "vagrant").write_text("#!/bin/sh\necho '1,,plugin-name,vagrant-libvirt'\n")
    (tools / "VBoxManage").write_text("#!/bin/sh\necho 'no driver' >&2; exit 1\n")
    (tools / "VBoxManage").chmod(0o755)
    assert doctor._vagrant().found == "with libvirt"
    (tools / "virsh").write_text("#!/bin/sh\necho 'error: no daemon' >&2; exit 1\n")
    check = doctor._vagrant()
    assert check.found == ""
    assert "no daemon; start libvirtd" in check.missing
    assert "VirtualBox does not answer: no driver" in check.missing


def test_doctor_goes_on_where_vagrant_is_broken(tools):
    (tools / "vagrant").write_text("#!/bin/sh\necho 'cannot load such file' >&2; exit 1\n")
    assert doctor._vagrant().missing == "vagrant does not run: cannot load such file"
