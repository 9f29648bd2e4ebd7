"""Vagrant's words, and what is done about its failures; a script stands in for Vagrant."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.inventory import GUEST_MARK, host_name
from orchestrator.providers.vagrant import command
from orchestrator.providers.vagrant.command import Address, Vagrant, explain, parse, parse_ssh_config
from tests.processes import ends, wait_until

SSH_CONFIG = (
    "Host cpus-2\n  HostName 192.168.121.246\n  User vagrant\n  Port 22\n"
    "  UserKnownHostsFile /dev/null\n  IdentityFile /home/me/.vagrant.d/insecure_private_key\n"
)
LOCKED = (
    "1795253266,,error-exit,Vagrant::Errors::MachineLocked,"
    "Vagrant can't use the requested machine because it is locked! This\\nmeans that another process"
)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a shell script in the place of Vagrant; returns the Vagrant of a guest."""

    def make(script: str) -> Vagrant:
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / "vagrant"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        (tmp_path / "guest").mkdir(exist_ok=True)
        return Vagrant(tmp_path / "guest", "cpus-2", "libvirt")

    return make


def test_machine_readable_lines_are_read_with_their_commas_and_line_ends():
    (line,) = parse("1795253266,cpus-2,ui,info,A%!(VAGRANT_COMMA) b\\nc")
    assert (line.target, line.kind, line.data) == ("cpus-2", "ui", ("info", "A, b\nc"))


@given(st.text())
def test_no_text_from_vagrant_is_too_odd_to_be_read_and_explained(text):
    parse(text)
    assert "\n" not in explain(text)


def test_the_last_error_is_the_explanation():
    text = (
        "1,,ui,info,up\n1,,error-exit,A::B,first\n"
        "1,,error-exit,Vagrant::X,The box\\ncould not%!(VAGRANT_COMMA) be"
    )
    assert explain(text) == "The box could not, be"


def test_an_error_that_ruby_prints_is_found_above_its_traceback():
    text = (
        "1,cpus-2,action,up,start\n"
        "/usr/lib/ruby/a.rb:7:in `create': Call to create failed: no (Libvirt::Error)\n"
        "\tfrom /usr/lib/ruby/a.rb:7:in `vm_action'\n\tfrom /usr/lib/b.rb:86:in `block (2 levels) in run'\n"
    )
    assert explain(text) == "Call to create failed: no"


def test_where_a_machine_answers_is_read_from_its_ssh_config():
    assert parse_ssh_config(SSH_CONFIG) == Address(host="192.168.121.246", port=22, user="vagrant")


@given(st.text())
def test_a_text_that_is_no_ssh_config_is_refused_in_one_way(text):
    with contextlib.suppress(ValueError):
        parse_ssh_config(text)


def test_the_ssh_config_is_asked_for_once_after_each_start(fake, tmp_path):
    escaped = SSH_CONFIG.replace("\n", "\\n")
    vagrant = fake(f"echo \"$@\" >> calls; printf '%s\\n' '1,cpus-2,ssh-config,{escaped}'")
    assert vagrant.address() == vagrant.address() == Address(host="192.168.121.246", port=22, user="vagrant")
    assert (tmp_path / "calls").read_text() == "--machine-readable ssh-config cpus-2\n"
    vagrant.up(60, provision=False)
    vagrant.address()
    assert (tmp_path / "calls").read_text().count("ssh-config") == 2


def test_an_ssh_config_that_tells_nothing_is_an_error_that_names_the_guest(fake):
    with pytest.raises(GuestError, match="guest cpus-2: `vagrant ssh-config` reports no address: 'hostname'"):
        fake("exit 0").address()


def test_a_locked_machine_is_tried_again_until_it_is_free(fake, tmp_path):
    vagrant = fake(f'echo >> tries; [ "$(wc -l < tries)" -ge 3 ] || {{ echo "{LOCKED}"; exit 1; }}')
    vagrant.up(60, provision=True)
    assert (tmp_path / "tries").read_text() == "\n" * 3


def test_a_machine_that_stays_locked_is_told(fake, monkeypatch):
    monkeypatch.setattr(command, "LOCK_PATIENCE_S", 1.0)
    with pytest.raises(GuestError, match="`vagrant up` failed: Vagrant can't use the requested machine"):
        fake(f'echo "{LOCKED}"; exit 1').up(60, provision=True)


def test_any_other_failure_is_told_at_once_with_where_to_read_all_of_it(fake, tmp_path):
    vagrant = fake(
        "echo >> tries; echo '1,,error-exit,Vagrant::Errors::BoxAddShortNotFound,no such box'; exit 1"
    )
    with pytest.raises(GuestError) as caught:
        vagrant.up(60, provision=True)
    assert caught.value.message == (
        f"guest cpus-2: `vagrant up` failed: no such box (whole output: {tmp_path}/guest/vagrant.log)"
    )
    assert (tmp_path / "tries").read_text() == "\n"
    assert "$ vagrant up cpus-2 --provision" in (tmp_path / "guest" / "vagrant.log").read_text()


def test_a_version_that_the_box_s_python_has_no_release_of_is_told_with_one_that_has(fake):
    told = (
        "ERROR: Could not find a version that satisfies the requirement numpy==2.5.0 (from versions: "
        "2.4.2%!(VAGRANT_COMMA) 2.4.3)\\nERROR: No matching distribution found for numpy==2.5.0"
    )
    lines = f"1,,ui,detail,    cpus-2: {told}\n2,,error-exit,A::B,The SSH command failed"
    with pytest.raises(
        PrerequisiteError, match=r"guest cpus-2: numpy 2\.5\.0, .*: pip install numpy==2\.4\.3$"
    ):
        fake(f"cat <<'END'\n{lines}\nEND\nexit 1").up(60, provision=True)


def test_a_vagrant_that_hangs_is_ended_with_its_children(fake, tmp_path):
    vagrant = fake("sleep 1000 & echo $! > child; wait")
    written, limit_s = tmp_path / "child", 1
    while not (written.exists() and written.read_text()):  # on a busy machine it may be ended before
        with pytest.raises(GuestError, match=f"`vagrant up` did not end within {limit_s} s"):
            vagrant.up(limit_s, provision=True)
        limit_s *= 4
    child = int(written.read_text())
    assert ends(child)


def interrupt(vagrant, folder):
    """Ends it while it makes a machine; returns what `up` raised."""
    failures = []

    def making() -> None:
        try:
            vagrant.up(60, provision=True)
        except GuestError as error:
            failures.append(error)

    thread = threading.Thread(target=making)
    thread.start()
    wait_until((folder / "image").exists)
    vagrant.end()
    thread.join(120)
    assert not thread.is_alive()
    assert vagrant._processes() == []
    return failures


def test_a_vagrant_that_is_ended_removes_first_what_it_has_half_made(fake, tmp_path):
    vagrant = fake("trap 'rm image; exit 1' INT; touch image; while :; do sleep 0.05; done")
    (failure,) = interrupt(vagrant, tmp_path)
    assert "`vagrant up` failed" in failure.message
    assert not (tmp_path / "image").exists()


def test_a_vagrant_that_does_not_end_by_itself_is_killed(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "END_PATIENCE_S", 0.1)
    assert len(interrupt(fake("trap '' INT; touch image; while :; do sleep 0.05; done"), tmp_path)) == 1


def test_a_machine_that_was_whole_is_kept_where_its_start_fails(fake, tmp_path):
    vagrant = fake('echo "$@" >> calls')
    vagrant.up(60, provision=True)
    vagrant.up(60, provision=False)
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert "destroy" not in first
    assert "--no-destroy-on-error" in second


def test_vagrant_is_given_a_state_of_the_guests_own(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("VBSTUDY_STUDY", "/somewhere/else")
    fake("env > seen").up(60, provision=True)
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    guest = str(tmp_path / "guest")
    assert "VBSTUDY_STUDY" not in seen
    assert seen["VAGRANT_DOTFILE_PATH"] == f"{guest}/vagrant"
    assert seen["VBSTUDY_MACHINES"] == f"{guest}/machines.json"
    assert seen["VAGRANT_DEFAULT_PROVIDER"] == "libvirt"
    assert seen["VAGRANT_CHECKPOINT_DISABLE"] == "1"


def test_without_vagrant_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install vagrant" in command.missing()
    with pytest.raises(PrerequisiteError, match="install Vagrant"):
        Vagrant(tmp_path, "cpus-2", "libvirt").up(60, provision=True)
    with pytest.raises(PrerequisiteError, match="vagrant does not run"):
        command.plugins()


def test_plugins_are_listed_by_name(fake):
    fake(
        "echo '1,,plugin-name,vagrant-libvirt'; "
        "echo '1,vagrant-libvirt,plugin-version,0.11.2%!(VAGRANT_COMMA) system'"
    )
    assert command.plugins() == {"vagrant-libvirt"}


def test_only_the_vagrant_of_this_guest_is_ended(fake, tmp_path):
    vagrant = fake("echo ready > up; exec sleep 1000")
    program = str(tmp_path / "bin" / "vagrant")
    (tmp_path / "other").mkdir()
    marks = {
        "ours": host_name(tmp_path / "guest"),
        "of another guest": host_name(tmp_path / "other"),
        "the hypervisor": host_name(tmp_path / "guest"),
    }
    hold = "import time; print(flush=True); time.sleep(1000)"
    commands = {
        "ours": [sys.executable, "-c", hold, program],
        "of another guest": [sys.executable, "-c", hold, program],
        "the hypervisor": [sys.executable, "-c", hold, "VBoxHeadless"],
    }
    # argv[0] is what /proc shows first; the interpreter stands in for Ruby, which shows the script second.
    started = {
        name: subprocess.Popen(
            ["ruby", *words[1:]] if name == "the hypervisor" else ["vagrant", *words[1:]],
            executable=sys.executable,
            env={**os.environ, GUEST_MARK: marks[name]},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for name, words in commands.items()
    }
    try:
        for process in started.values():
            process.stdout.readline()  # while a program is being loaded, the kernel tells no command line
        vagrant.end()
        assert started["ours"].wait(120) == -signal.SIGINT
        assert started["of another guest"].poll() is None
        assert started["the hypervisor"].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.communicate()
