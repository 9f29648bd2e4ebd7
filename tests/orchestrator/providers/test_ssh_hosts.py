"""On which of its hosts a study's guest is made, that it stays there, and how the host is reached."""

import contextlib
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import GuestError, UsageError
from orchestrator.inventory import (
    INVENTORY_VERSION,
    Guest,
    Inventory,
    Observation,
    guest_spec,
    write_inventory,
)
from orchestrator.providers import inside
from orchestrator.providers.ssh import SshProvider
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.transport.keys import StudyKeys, key_pair
from orchestrator.transport.ssh import SshConnection
from orchestrator.transport.ssh_connect import SshTarget, look_up
from tests import sshd


def provider(store: Store, cpus: list[int], *hosts: str) -> SshProvider:
    text = f'cpus = {cpus}\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n[provider]\nkind = "ssh"\n'
    tables = [f'[[provider.hosts]]\nhost = "{host}"\nuser = "me"\ncpus = 8\n' for host in hosts]
    return SshProvider(schema.parse(text + "".join(tables)), store)


def hosts(made: SshProvider, *cpus: int) -> list[str]:
    return [made.host(guest_spec(n)) for n in cpus]


def made_on(store: Store, placed: dict[int, str], version: int = INVENTORY_VERSION, **details: str) -> None:
    """An inventory of guests that are there. Those of version 2 have nothing but what was observed."""
    seen = {"provider_cpus": 1, "guest_cpus": 1, "oversubscribed": False, "start_s": 1.0, "details": details}
    guests = [
        Guest(spec=guest_spec(n), observed=Observation(**seen, machine=at), created_at="now")
        for n, at in placed.items()
    ]
    at_all = {guest.spec.name: guest.observed.machine for guest in guests}
    write_inventory(
        store.guests_file,
        Inventory(
            version=version,
            provider="ssh",
            guests=tuple(guests) if version < INVENTORY_VERSION else (),
            hosts=at_all if version == INVENTORY_VERSION else {},
        ),
    )
    for name in at_all:
        (store.guests / name).mkdir(parents=True)


A, B = "me@a:22", "me@b:22"


@pytest.mark.parametrize("version", [2, INVENTORY_VERSION])
def test_guests_stay_on_their_hosts_when_counts_are_dropped_or_hosts_added(tmp_path, version):
    store = Store(tmp_path)
    assert hosts(provider(store, [1, 2, 4], "a", "b"), 1, 2, 4) == [A, B, A]
    made_on(store, {1: A, 2: B, 4: A}, version)
    assert hosts(provider(store, [1, 4], "a", "b"), 1, 2, 4) == [A, B, A]
    assert hosts(provider(store, [1, 2, 4], "c", "b", "a"), 1, 2, 4) == [A, B, A]


def test_new_guests_are_spread_beside_those_that_stay(tmp_path):
    store = Store(tmp_path)
    made_on(store, {2: A})
    assert hosts(provider(store, [1, 2, 4], "a", "b"), 1, 2, 4) == [B, A, A]


def test_a_guest_in_a_folder_that_its_host_no_longer_has_is_named_with_the_way_out(tmp_path):
    store = Store(tmp_path)
    made_on(store, {1: A}, 2, folder=".other/0123456789abcdef/cpus-1")
    with pytest.raises(UsageError, match=r"cpus-1 is in the folder \.other of me@a:22, study.toml has"):
        provider(store, [1], "a").host(guest_spec(1))


def test_a_guest_whose_host_left_the_study_is_named_with_the_way_out(tmp_path):
    store = Store(tmp_path)
    made_on(store, {1: A, 2: B})
    with pytest.raises(UsageError, match="guest cpus-2 is on me@b:22, which is not among the hosts"):
        hosts(provider(store, [1, 2], "a"), 1, 2)
    (store.guests / "cpus-2").rmdir()  # as it says
    assert hosts(provider(store, [1, 2], "a"), 1, 2) == [A, A]


def test_a_study_whose_path_is_not_utf8_has_guests_on_hosts(tmp_path):
    made = [provider(Store(tmp_path / os.fsdecode(name)), [1], "a") for name in (b"caf\xe9", b"caf\xe8")]
    assert len({each._folder(guest_spec(1)) for each in made}) == 2
    assert len({each._mark(guest_spec(1)) for each in made}) == 2


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The user's `~/.ssh/config`."""
    file = tmp_path / "home" / ".ssh" / "config"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOGNAME", "nobody-at-all")  # who this user is, where nothing else is said
    return file


def named(tmp_path, **settings: object) -> SshProvider:
    table = {"kind": "ssh", "use_ssh_config": True, "hosts": [{"host": "node1", "cpus": 1} | settings]}
    workload = {"model": "lenet1", "dataset": "digits"}
    return SshProvider(
        schema.Study.model_validate({"provider": table, "workload": [workload]}), Store(tmp_path)
    )


@pytest.fixture
def alias(server, config, tmp_path) -> SshTarget:
    """A server under a name that only `~/.ssh/config` knows."""
    lines = [
        "Host node1",
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {server.user}",
        "HostKeyAlias b",
    ]
    config.write_text("\n".join(lines))
    made = named(tmp_path, key=server.client.private, host_key=server.host.public)
    assert made.host(guest_spec(1)) == f"{server.user}@node1:{server.port}"
    return made._target(made._host(guest_spec(1)))


@pytest.mark.needs("sshd")
def test_a_host_of_the_ssh_config_is_reached_by_its_name_port_and_user_there(alias, tmp_path):
    connection = SshConnection(alias, str(tmp_path / "guest"), sys.executable)
    assert connection.run(["echo", "in"], {}, 20).stdout == "in\n"
    connection.close()


@pytest.mark.needs("sshd")
def test_a_terminal_of_a_host_of_the_ssh_config_knows_its_key(alias, config, tmp_path):
    argv, _ = SshConnection(alias, str(tmp_path), sys.executable).terminal(["pwd"])
    argv[1:1] = ["-F", str(config)]  # ssh itself does not ask HOME
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{Path(tmp_path).resolve()}\n", "")


@pytest.mark.needs("sshd")
def test_a_key_of_the_ssh_config_is_not_offered(alias, config, server, tmp_path):
    with config.open("a") as file:
        file.write(f"\nIdentityFile {server.client.private}\n")
    other = dataclasses.replace(alias, key=key_pair(tmp_path / "other").private)
    with pytest.raises(GuestError, match=f"refuses the key {other.key}"):
        SshConnection(other, str(tmp_path / "guest"), sys.executable).connect()


@pytest.mark.needs("sshd")
def test_a_gateway_of_the_ssh_config_must_show_a_known_host_key_and_is_closed(
    alias, config, server, tmp_path
):
    with sshd.running(tmp_path / "gateway") as gateway:
        with config.open("a") as file:
            file.write(
                f"\nProxyJump gateway\nHost gateway\nHostName 127.0.0.1\nPort {gateway.port}\n"
                f"User {server.user}\nIdentityFile {gateway.client.private}\n"
            )
        known, name = config.with_name("known_hosts"), f"[127.0.0.1]:{gateway.port}"
        connection = SshConnection(alias, str(tmp_path / "guest"), sys.executable)
        with pytest.raises(
            GuestError, match=rf"its host key is not known \({known} does not exist\)"
        ) as caught:
            connection.connect()
        assert f"write it down in {known} as '{name} ssh-ed25519 " in caught.value.message
        known.write_text(f"{name} {server.host.public}\n")
        with pytest.raises(GuestError, match=rf"@gateway:{gateway.port}: shows the host key .* in {known}"):
            connection.connect()
        known.write_text(f"{name} {gateway.host.public}\n")
        assert connection.run(["echo", "in"], {}, 20).stdout == "in\n"
        there = connection._fabric.gateway.transport
        assert there.is_active()
        connection.close()
        assert not there.is_active()


def test_what_study_toml_says_of_a_host_counts_before_the_ssh_config(config, tmp_path):
    config.write_text("Host node1\nPort 5\nUser somebody\n")
    assert named(tmp_path).host(guest_spec(1)) == "somebody@node1:5"
    assert named(tmp_path, port=22, user="me").host(guest_spec(1)) == "me@node1:22"


def test_an_ssh_config_that_cannot_be_read_is_told(config):
    config.write_text("Host node1\nPort many\n")
    with pytest.raises(UsageError, match=r"host 'node1' cannot be looked up in ~/.ssh/config: .*many"):
        look_up("node1")


@pytest.mark.parametrize("host", ["a", "a.b-c", "10.0.0.1", "::1", "fe80::1%eth0", "2001:db8::a"])
def test_names_and_addresses_are_hosts(tmp_path, host):
    assert hosts(provider(Store(tmp_path), [1], host), 1) == [f"me@{host}:22"]


@pytest.mark.needs("sshd")
def test_a_check_that_fails_names_why_and_leaves_nothing(tmp_path):
    with sshd.running(tmp_path / "bare", "") as bare:
        there = tmp_path / "there"
        host = {"host": "127.0.0.1", "port": bare.port, "key": bare.client.private, "folder": str(there)}
        host |= {"host_key": bare.host.public, "user": bare.user, "python": sys.executable}
        (problem,) = named(tmp_path, **host).check()
        assert "has no SFTP" in problem
        (problem,) = named(tmp_path, **(host | {"python": "/no/python"})).check()
        assert "'/no/python' does not run in it (status 127): " in problem
        assert list(there.iterdir()) == []


@pytest.mark.needs("sshd")
def test_a_host_without_room_for_temporary_files_is_not_blamed_on_its_python(server, tmp_path):
    target = server.target(StudyKeys(tmp_path / "keys", tmp_path / "known_hosts"))
    lacks = str(tmp_path / "no" / "folder")
    connection = SshConnection(target, str(tmp_path / "guest"), sys.executable, temporary=lacks)
    why = r"a command cannot be started in it \(status 125\): mkdir: .*No such file or directory"
    with contextlib.closing(connection), pytest.raises(GuestError, match=why):
        inside.inspect("cpus-1", connection)


@pytest.mark.needs("sshd")
def test_two_studies_check_one_account_at_once(server, tmp_path, monkeypatch):
    there = tmp_path / "there"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    host = {"host": "127.0.0.1", "port": server.port, "key": server.client.private, "folder": str(there)}
    host |= {"host_key": server.host.public, "user": server.user, "python": sys.executable}
    first, second = (named(tmp_path / name, **host) for name in ("first", "second"))
    seen = []

    def look(connection, frameworks):
        monkeypatch.undo()
        assert second.check() == []
        seen.extend(there.glob("**/check"))
        return inside.missing_frameworks(connection, frameworks)

    monkeypatch.setattr(inside, "missing_frameworks", look)
    assert first.check() == []
    assert len(seen) == 1, "the first one's is there still"
    assert list(there.iterdir()) == []
