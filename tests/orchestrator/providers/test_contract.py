"""What every provider must do. A provider joins by one entry in PROVIDERS."""

import contextlib
import json
import os
import sys

import pytest

from orchestrator.cores import load
from orchestrator.cores.leases import host_cores
from orchestrator.inventory import GuestSpec
from orchestrator.providers import Virtual, inside, make
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.transport.connection import LocalConnection
from tests import sshd
from tests.vagrant import boxes
from tests.virtualbox import kit

CORES = len(host_cores())
ONE = GuestSpec(name="cpus-1", cpus=1)
MANY = GuestSpec(name=f"cpus-{CORES + 1}", cpus=CORES + 1)
MACHINES = ("qemu", "vagrant", "virtualbox")
COMMAND_S = 300  # a guest in VirtualBox's interpreter takes its time over each command
WORKLOAD = '[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


def local(folder, cpuset):
    yield f'[provider]\nkind = "local"\ncpuset = "{cpuset}"\n'


def ssh(folder, cpuset):
    """A machine behind a real sshd, which is this one."""
    with sshd.running(folder / "sshd") as server:
        host = {
            "host": "127.0.0.1",
            "port": server.port,
            "cpus": CORES,
            "key": str(server.client.private),
            "host_key": server.host.public,
            "python": sys.executable,
            "folder": str(folder / "over there"),
        }
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in host.items())
        yield f'[provider]\nkind = "ssh"\ncpuset = "{cpuset}"\nhosts = [{{ {table} }}]\n'


def qemu(folder, cpuset):
    """A virtual machine, booted anew each time."""
    yield '[provider]\nkind = "qemu"\nsnapshot = false\n'


def vagrant(folder, cpuset):
    """A virtual machine that Vagrant makes under libvirt, from the box of vagrant/box."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAGRANT_HOME", str(boxes.home()))
        yield (
            f'[provider]\nkind = "vagrant"\nhypervisor = "libvirt"\nbox = "{boxes.NAME}"\n'
            'memory_mib = 512\npython = "/usr/bin/python3"\n'
        )


def virtualbox(folder, cpuset):
    """A machine under VirtualBox: a tiny Linux without Python."""
    yield kit.table()


PROVIDERS = [
    pytest.param((local, "auto"), id="local with the best cpuset there is"),
    pytest.param((local, "affinity"), id="local by affinity"),
    pytest.param((ssh, "auto"), id="ssh with the best cpuset there is", marks=pytest.mark.needs("sshd")),
    pytest.param((ssh, "affinity"), id="ssh by affinity", marks=pytest.mark.needs("sshd")),
    pytest.param((qemu, "affinity"), id="qemu", marks=pytest.mark.needs("qemu")),
    pytest.param((vagrant, "affinity"), id="vagrant under libvirt", marks=pytest.mark.needs("vagrant")),
    pytest.param((virtualbox, "affinity"), id="virtualbox", marks=pytest.mark.needs("virtualbox")),
]


@pytest.fixture(params=PROVIDERS, scope="module")
def home(request, tmp_path_factory):
    """A provider and its study's folder. The tests share the guests, because some boot for minutes."""
    kind, cpuset = request.param
    folder = tmp_path_factory.mktemp("home")
    with contextlib.contextmanager(kind)(folder, cpuset) as table:
        made = make(schema.parse(table + WORKLOAD), Store(folder))
        yield made, folder
        for spec in (ONE, MANY):
            made.destroy(spec)


@pytest.fixture
def provider(home):
    return home[0]


def count(connection) -> int:
    return int(connection.run(["nproc"], {}, COMMAND_S).stdout)


def test_nothing_is_missing_here(provider):
    assert provider.check() == []


def test_a_guest_that_is_created_and_started_twice_has_the_cpus_that_were_asked_for(provider):
    for _ in range(2):
        provider.create(ONE)
        connection = provider.start(ONE, host_cores()[:1])
    assert count(connection) == 1
    observed = provider.observe(ONE, connection)
    assert (observed.provider_cpus, observed.guest_cpus, observed.oversubscribed) == (1, 1, False)


def test_destroying_leaves_nothing_behind(home):
    provider, folder = home
    provider.create(ONE)
    provider.start(ONE, host_cores()[:1]).run(["true"], {}, COMMAND_S)
    provider.destroy(ONE)
    assert not (folder / "guests" / ONE.name).exists()
    assert not (folder / "over there").exists()
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and _belongs(pid, folder)] == []


# Under Vagrant this takes minutes; several CPUs boot for a quarter of an hour in VirtualBox's interpreter.
@pytest.mark.parametrize(
    "home",
    [
        *PROVIDERS[:-2],
        pytest.param((vagrant, "affinity"), id="vagrant", marks=pytest.mark.needs("vagrant", long=True)),
        pytest.param(
            (virtualbox, "affinity"), id="virtualbox", marks=pytest.mark.needs("virtualbox", long=True)
        ),
    ],
    indirect=True,
)
def test_a_guest_with_more_cpus_than_the_host_is_oversubscribed_and_stopping_ends_all_in_it(provider):
    provider.create(MANY)
    connection = provider.start(MANY, host_cores())
    observed = provider.observe(MANY, connection)
    assert observed.oversubscribed
    # A machine has its CPUs, a sandbox is limited to what there is.
    asked = MANY.cpus if provider.name in MACHINES else CORES
    assert observed.guest_cpus == observed.provider_cpus == asked
    script = "setsid sleep 600 & echo 1; sleep 600"  # one of them leaves its session
    stream = connection.open(["sh", "-c", script], {})
    assert stream.receive(COMMAND_S) == b"1\n"
    if virtual := isinstance(provider, Virtual):
        host = load.look(host_cores(), provider.processes(MANY))
        assert sum(host.cpu_s.values()) > 0
    assert virtual == (provider.name in MACHINES)
    provider.stop(MANY)
    assert not virtual or provider.processes(MANY) == []
    assert b"" in (stream.receive(120), stream.receive(120))
    connection.close()


def test_stop_and_destroy_do_no_harm_where_there_is_nothing(provider):
    provider.stop(ONE)
    provider.destroy(ONE)
    provider.destroy(ONE)


def _belongs(pid: str, folder) -> bool:
    try:
        return str(folder) in os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False


def test_an_interpreter_that_does_not_exist_is_told_before_anything_is_made(tmp_path):
    text = '[provider]\npython = "/no/such/python"\n' + WORKLOAD
    assert "there is no such interpreter" in make(schema.parse(text), Store(tmp_path)).check()[0]
    assert list(tmp_path.iterdir()) == []


OLD = "is Python 3.10.2, 3.11 or newer is needed"
AS_OLD = """sed 's/"python": "[^"]*/"python": "3.10.2/'"""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f'{sys.executable} "$@" | {AS_OLD}', OLD),
        ("exit 3", "does not run in it (status 3)"),
    ],
    ids=["local, too old", "local, ends"],
)
def test_an_interpreter_that_cannot_run_the_agent_is_named_before_guests_are_made(tmp_path, content, problem):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{content}\n")
    python.chmod(0o755)
    text = f"[provider]\npython = {json.dumps(str(python))}\n" + WORKLOAD
    (found,) = make(schema.parse(text), Store(tmp_path)).check()
    assert f"{str(python)!r} {problem}" in found


def test_a_module_that_the_environment_of_this_program_adds_is_not_one_of_the_guests(tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "path" / "torch").mkdir(parents=True)
    (tmp_path / "path" / "torch" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    text = f"[provider]\npython = {json.dumps(str(bare))}\n" + WORKLOAD
    assert f"{bare} has no torch: install it" in make(schema.parse(text), Store(tmp_path)).check()[0]


def test_a_user_without_a_home_is_checked_too(tmp_path, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert make(schema.parse(WORKLOAD), Store(tmp_path)).check() == []


def test_a_module_of_the_user_site_is_named_as_what_guests_do_not_see(tmp_path):
    python = sys._base_executable  # an environment has no user site
    home = tmp_path / "home"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / ".local" / "lib" / version / "site-packages" / "only_there").mkdir(parents=True)
    guest = LocalConnection(tmp_path, python, host_cores(), None, {})
    found = inside.framework_problems(guest, ["json", "only_there"], str(home), "provider.python")
    assert [each.partition(",")[0] for each in found] == [f"{python} has only_there in the user site"]
