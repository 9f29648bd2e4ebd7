"""Guests that boot under a real VirtualBox, and what is done in them over SSH. Run by `.ci/run
virtualbox`."""

import hashlib
import os
import time

import pytest

from orchestrator.cli import main as cli
from orchestrator.errors import GuestError
from orchestrator.inventory import host_name
from orchestrator.providers import machines
from orchestrator.providers.virtualbox import host
from orchestrator.providers.virtualbox import provider as virtualbox
from tests.virtualbox import kit
from tests.virtualbox.kit import COMMAND_S, ONE

pytestmark = pytest.mark.needs("virtualbox")


@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    """A study whose guest was started once; it has its snapshot, and is off. Several CPUs boot for minutes in
    the interpreter: one guest has them, that of the contract."""
    folder = tmp_path_factory.mktemp("study")
    with kit.study_in(folder) as provider:
        connection = provider.start(ONE, host.cores()[:1])
        observed = provider.observe(ONE, connection)
        connection.close()
        provider.stop(ONE)
        yield folder, provider, observed


def test_what_the_api_says_of_a_guest_is_what_the_guest_sees(booted):
    _, provider, seen = booted
    assert seen.provider_cpus == seen.guest_cpus == 1
    assert (seen.oversubscribed, seen.cpu_vendor != "") == (False, True)
    assert seen.details["state"] == "Running"
    assert seen.details["uptime_s"] > 5
    assert seen.details["port"] > 1024
    assert seen.details["snapshot"] is True
    assert seen.details["missing"] == ["python3"]
    assert seen.details["base"] == provider.resolved(ONE, (0,))["base"]
    assert seen.start_s > 0


def test_commands_and_files_go_into_a_resumed_guest_and_come_back_whole(booted, tmp_path):
    folder, provider, _ = booted
    began = time.time()
    connection = provider.start(ONE, host.cores()[:1])
    try:
        taken = time.time() - began
        asked = time.time()
        clock = int(connection.run(["date", "+%s"], {}, COMMAND_S).stdout)
        assert asked - 60 < clock < time.time() + 60, "a resumed guest has the time of its snapshot"
        data = os.urandom(20_000)
        (tmp_path / "sent").write_bytes(data)
        connection.put(tmp_path / "sent", "a/file")
        done = connection.run(["sha256sum", "a/file"], {}, COMMAND_S)
        assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()
        connection.get("a/file", tmp_path / "back", 20_000)
        assert (tmp_path / "back").read_bytes() == data
        done = connection.run(["sh", "-c", "echo out; echo err >&2; exit 7"], {}, COMMAND_S)
        assert (done.status, done.stdout, done.stderr) == (7, "out\n", "err\n")
        seen = provider.watch([ONE])["cpus-1"]
        assert seen.uptime_s > taken, "it was resumed, not booted"
        assert connection.target.port == seen.port
        name = host_name(folder / "guests" / "cpus-1")
        assert kit.info(name)["VMState"] == "running"
    finally:
        connection.close()
        provider.stop(ONE)
    assert kit.info(name)["VMState"] == "poweroff"


def test_a_forward_that_is_taken_when_a_guest_starts_costs_another_try(booted, monkeypatch):
    import socket

    _, provider, _ = booted
    honest = machines.free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(machines, "free_port", lambda: ports.pop() if ports else honest())
        connection = provider.start(ONE, host.cores()[:1])
        try:
            assert ports == []
            assert connection.target.port != taken.getsockname()[1]
            assert connection.run(["nproc"], {}, COMMAND_S).stdout == "1\n"
        finally:
            connection.close()
            provider.stop(ONE)


def test_a_guest_that_shows_another_host_key_is_refused(booted):
    folder, provider, _ = booted
    other = "ssh-ed25519 " + (kit.folder() / "key.other.pub").read_text().split()[1]
    stranger = kit.provider(folder, host_key=other)
    try:
        with pytest.raises(GuestError, match="this may be another machine: nothing was sent to it"):
            stranger.start(ONE, host.cores()[:1])
    finally:
        provider.stop(ONE)


@pytest.mark.needs("virtualbox", long=True)
def test_a_guest_may_sleep_for_its_snapshot_and_provision_tells_what_its_image_lacks(tmp_path, capsys):
    text = f"cpus = [1]\n{kit.table(snapshot='saved')}{kit.WORKLOAD}"
    (tmp_path / "study.toml").write_text(text)
    with kit.study_in(tmp_path, snapshot="saved") as provider:
        assert cli.run(["-q", "-C", str(tmp_path), "provision"]) == 4
        told = capsys.readouterr().err
        assert "guest cpus-1: its image lacks python3: install it there, or name another" in told
        assert kit.processes_in(tmp_path) == []
        connection = provider.start(ONE, host.cores()[:1])
        assert connection.run(["nproc"], {}, COMMAND_S).stdout == "1\n"
        connection.close()


@pytest.mark.needs("virtualbox", long=True)
def test_without_a_snapshot_a_guest_boots_and_shuts_down_by_its_power_button(tmp_path, monkeypatch):
    monkeypatch.setattr(virtualbox, "SHUTDOWN_S", 600.0)  # an interpreter takes its time
    with kit.study_in(tmp_path, snapshot="off") as provider:
        connection = provider.start(ONE, host.cores()[:1])
        connection.close()
        assert not provider._machine(ONE).has_snapshot()
        console = tmp_path / "guests" / "cpus-1" / "console.log"
        assert b"GUEST-POWEROFF" not in console.read_bytes()
        provider.stop(ONE)
        assert b"GUEST-POWEROFF" in console.read_bytes()
        assert provider.watch([ONE])["cpus-1"].state == "PoweredOff"


def test_a_guest_that_does_not_boot_is_told_with_the_end_of_its_console(tmp_path):
    with kit.study_in(tmp_path, boot_timeout_s=2, snapshot="live") as provider:
        with pytest.raises(
            GuestError, match="did not answer on port 22 within .* the last line of its console"
        ):
            provider.start(ONE, host.cores()[:1])
        assert provider.watch([ONE])["cpus-1"].state == "PoweredOff"
