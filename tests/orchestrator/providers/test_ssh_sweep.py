"""Whole studies on a machine behind a real sshd (which is this one), with real training."""

import json
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from guest.records.run import Tier, machine_id
from orchestrator.cli import main as cli
from orchestrator.cores.leases import host_cores
from orchestrator.store.store import Store
from tests import sshd
from tests.orchestrator.agent.test_executor import LINK, ONE_BYTE, PRELUDE, RUN, done
from tests.orchestrator.sweep.test_pipeline import STUDY, hashes, records, start
from tests.processes import wait_until

pytestmark = pytest.mark.needs("sshd")
ONE = STUDY.replace("cpus = [1, 2]", "cpus = [1]")
MINE = """
cpus = [1]
repetitions = 1
variants = ["fixed-seed"]
[[workload]]
name = "mine"
project = "mine"
command = ["sh", "run.sh"]
[workload.metrics]
accuracy = { pattern = "accuracy: (.*)" }
"""


def provider(server, tmp_path, **changes) -> str:
    host = {
        "host": "127.0.0.1",
        "port": server.port,
        "cpus": len(host_cores()),
        "key": str(server.client.private),
        "host_key": server.host.public,
        "python": sys.executable,
        "folder": str(tmp_path / "there"),
    } | changes
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in host.items())
    return f'\n[provider]\nkind = "ssh"\npatience_s = 6\n[[provider.hosts]]\n{lines}\n'


@pytest.fixture
def directory(server, tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.toml").write_text(ONE + provider(server, tmp_path))
    return folder


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), *arguments])


def belonging(folder: Path) -> list[str]:
    """Processes whose working folder is inside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_a_study_over_ssh_gives_the_bits_of_a_local_one_and_leaves_nothing(directory, tmp_path, server):
    (directory / "study.toml").write_text(STUDY + provider(server, tmp_path))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    over_ssh = records(directory)
    assert len(over_ssh) == 4
    local = tmp_path / "local"
    local.mkdir()
    (local / "study.toml").write_text(STUDY)
    assert vbstudy(local, "-q", "provision") == 0
    assert vbstudy(local, "-q", "sweep") == 0
    assert hashes(directory) == hashes(local)
    for record in over_ssh.values():
        assert record.guest["provider"] == "ssh"
        at = f"{server.user}@127.0.0.1:{server.port}"
        assert record.guest["host"] == machine_id(record.spec.study_id, at)
        assert record.result.environment["threads_in_force"]["visible_cpus"] == record.spec.threads.cpus
    assert vbstudy(directory, "-q", "destroy") == 0
    assert not (tmp_path / "there").exists()
    assert not (directory / "guests").exists()
    assert belonging(tmp_path / "there") == []


@pytest.mark.needs("sshd", long=True)
def test_a_workload_is_hardened_in_the_studys_guests(directory, tmp_path, server, capsys):
    (directory / "study.toml").write_text(STUDY + provider(server, tmp_path))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "harden", "--cpus", "1,2,3", "--runs", "1") == 2
    assert f"run `vbstudy -C {directory} provision --cpus 1,2,3`" in capsys.readouterr().err
    assert vbstudy(directory, "-q", "harden", "--runs", "1", "--tiers", "one-thread") == 0
    found = Store(directory).hardenings.read("net")
    assert (found.provider, found.cheapest, len(found.measurements)) == ("ssh", Tier.ONE_THREAD, 4)
    assert belonging(tmp_path / "there") == []


def test_files_of_a_data_set_are_brought_to_the_guest_once(server, tmp_path):
    from orchestrator.agent import data as guest_data
    from orchestrator.store.store import Store
    from orchestrator.study import schema
    from orchestrator.transport.keys import StudyKeys
    from orchestrator.transport.ssh import SshConnection

    data = tmp_path / "data"
    data.mkdir()
    names = [
        f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    for name in names:
        (data / name).write_bytes(name.encode())
    target = server.target(StudyKeys.of(Store(tmp_path)))
    connection = SshConnection(target, str(tmp_path / "guest"), sys.executable)
    parsed = schema.parse('[[workload]]\nmodel = "lenet5"\ndataset = "fashion-mnist"\n')
    assert guest_data.bring(parsed, (data,), connection) == ("data",)
    arrived = {p.name: p for p in (tmp_path / "guest/data/fashion-mnist").iterdir()}
    assert sorted(arrived) == sorted(names)
    before = {name: path.stat().st_ino for name, path in arrived.items()}
    guest_data.bring(parsed, (data,), connection)
    assert {name: path.stat().st_ino for name, path in arrived.items()} == before
    connection.close()


def test_a_server_that_dies_during_a_run_and_comes_back_costs_one_attempt(
    directory, server, tmp_path, capsys
):
    (directory / "study.toml").write_text(
        (directory / "study.toml").read_text().replace("epochs = 2", "epochs = 60")
    )
    assert vbstudy(directory, "-q", "provision") == 0

    def crash() -> None:
        wait_until(lambda: list((tmp_path / "there").rglob("log.txt")))
        server.kill()
        time.sleep(1)
        server.start()

    thread = threading.Thread(target=crash)
    thread.start()
    capsys.readouterr()
    assert vbstudy(directory, "sweep") == 0
    thread.join()
    assert len(records(directory)) == 2
    assert len(set(hashes(directory).values())) == 1
    failed = list((directory / "failed").rglob("error.json"))
    assert len(failed) == 1
    assert json.loads(failed[0].read_text())["kind"] == "GuestError"
    assert "was lost" in capsys.readouterr().err


def test_a_server_that_stays_away_ends_the_sweep_with_a_clear_line(directory, server, capsys):
    assert vbstudy(directory, "-q", "provision") == 0
    server.kill()
    capsys.readouterr()
    assert vbstudy(directory, "-q", "sweep") == 4
    error = capsys.readouterr().err
    assert f"vbstudy: {server.user}@127.0.0.1:{server.port}: cannot be reached" in error
    assert "Traceback" not in error
    assert records(directory) == {}
    server.start()
    assert vbstudy(directory, "-q", "sweep") == 0  # nothing was counted: it resumes
    assert len(records(directory)) == 2


def test_an_orchestrator_that_is_killed_leaves_nothing_that_the_next_does_not_clear(directory, tmp_path):
    (directory / "study.toml").write_text(
        (directory / "study.toml").read_text().replace("epochs = 2", "epochs = 40")
    )
    assert vbstudy(directory, "-q", "provision") == 0
    process = start(directory, "-q", "sweep")
    wait_until(lambda: list((tmp_path / "there").rglob("log.txt")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert vbstudy(directory, "-q", "sweep") == 0
    assert len(records(directory)) == 2
    assert vbstudy(directory, "-q", "destroy") == 0
    assert belonging(tmp_path / "there") == []
    assert not (tmp_path / "there").exists()


OTHER_HASH = {"log.txt": {"sha256": "0" * 64, "size_bytes": len("log.txt\n")}}


@pytest.mark.parametrize(
    ("misdeed", "told"),
    [
        (
            "print('Segmentation fault', flush=True); sys.stdin.readline()",
            "cannot be read: 'Segmentation fault'",
        ),
        (done(**OTHER_HASH), "log.txt does not match its SHA-256"),
        (done(**{"log.txt": ONE_BYTE}), "log.txt: is larger than the 1 bytes that were announced"),
        (done(**{"../../../escaped": ONE_BYTE}), "the manifest is wrong about ../../../escaped"),
        (done().replace("say(", f"{LINK}; say("), "log.txt: is not a plain file in the guest"),
    ],
    ids=["garbage", "another hash", "too large a file", "a path with ..", "a link"],
)
def test_a_guest_that_misbehaves_is_not_believed_and_its_run_is_redone(
    directory, server, tmp_path, misdeed, told
):
    """The agent over there is another one the first time, and the real one the second."""
    once, hostile, python = tmp_path / "once", tmp_path / "hostile.py", tmp_path / "python"
    once.touch()
    hostile.write_text(PRELUDE.replace(RUN.run_id, "net/fixed-seed/cpus-1/0001") + misdeed)
    python.write_text(
        f'#!/bin/sh\ncase " $* " in *" serve "*) rm "{once}" 2>/dev/null && '
        f'exec "{sys.executable}" "{hostile}";; esac\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    (directory / "study.toml").write_text(ONE + provider(server, tmp_path, python=str(python)))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    assert not once.exists()
    (failure,) = (directory / "failed").rglob("error.json")
    assert told in json.loads(failure.read_text())["message"]
    assert len(records(directory)) == 2
    assert len(set(hashes(directory).values())) == 1  # both by the real agent
    assert not list(tmp_path.rglob("escaped"))
    assert not list(directory.glob("incoming/*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpus": 1000}, "cpus = 1000 in study.toml, it lets us use"),
        ({"python": "/no/such/python"}, "'/no/such/python' does not run in it"),
        ({"host_key": None}, "does not exist); it shows ssh-ed25519 SHA256:"),
        ({"key": None}, "is let in where ~/.ssh/authorized_keys has the line 'ssh-ed25519 "),
        ({"user": "nobody-at-all"}, "refuses the key"),
    ],
)
def test_what_is_wrong_with_a_host_is_told_before_anything_is_made(
    directory, server, tmp_path, capsys, changes, message
):
    text = provider(server, tmp_path, **changes)
    kept = [line for line in text.splitlines() if not line.endswith(" null")]
    (directory / "study.toml").write_text(ONE + "\n".join(kept) + "\n")
    assert vbstudy(directory, "provision") == 3
    assert message in capsys.readouterr().err
    assert not (directory / "guests.json").exists()


@pytest.mark.needs("sshd", long=True)
def test_two_studies_share_a_host_without_meeting(directory, server, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    (second / "study.toml").write_text((directory / "study.toml").read_text())
    for folder in (directory, second):
        assert vbstudy(folder, "-q", "provision") == 0
    sweeps = [start(folder, "-q", "sweep") for folder in (directory, second)]
    outputs = [sweep.communicate(timeout=600) for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], outputs
    assert vbstudy(directory, "-q", "destroy") == 0
    assert (tmp_path / "there").exists()  # the other one's
    assert vbstudy(second, "-q", "destroy") == 0
    assert not (tmp_path / "there").exists()


def test_a_guest_whose_host_lost_its_cgroups_is_refused_and_made_again(directory, server, tmp_path, capsys):
    """Records have the cpuset that the guest was made with: the inventory of one that had a cgroup."""
    (directory / "study.toml").write_text(ONE + provider(server, tmp_path, python=str(no_cgroups(tmp_path))))
    assert vbstudy(directory, "-q", "provision") == 0
    inventory = directory / "guests.json"
    assert '"cpuset": "affinity"' in inventory.read_text()
    inventory.write_text(inventory.read_text().replace('"cpuset": "affinity"', '"cpuset": "cgroup"'))
    capsys.readouterr()
    assert vbstudy(directory, "-q", "sweep") == 4
    assert "was made with cpuset = 'cgroup', now it is 'affinity'; try again" in capsys.readouterr().err
    assert records(directory) == {}
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    assert len(records(directory)) == 2


def no_cgroups(folder: Path) -> Path:
    """A Python that has no cgroups: other files are where they would be."""
    python = folder / "python"
    program = "exec(sys.argv.pop(1).replace('/sys/fs/cgroup', '/dev/null'))"
    python.write_text(
        '#!/bin/sh\ncase "$1$2" in -c*Cpuset*) shift; exec '
        f'"{sys.executable}" -c "import sys; {program}" "$@";; esac\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


def test_a_trace_goes_through_two_guests(server, tmp_path, capsys):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY + provider(server, tmp_path, cpus=2))
    assert vbstudy(folder, "trace", "--cpus", "1,2") == 2
    assert (
        f"there is no guest cpus-1; run `vbstudy -C {folder} provision --cpus 1,2`" in capsys.readouterr().err
    )
    assert vbstudy(folder, "provision") == 0
    capsys.readouterr()
    assert vbstudy(folder, "--json", "trace", "--cpus", "1,2", "--steps", "2") == 0
    found = json.loads(capsys.readouterr().out)
    assert [side["guest"] for side in found["sides"]] == ["cpus-1", "cpus-2"]
    assert (found["outcome"], found["step"]) == ("operation", 1)
    assert belonging(tmp_path / "there") == []


def test_two_sweeps_of_two_studies_on_one_machine_share_no_core_and_know_of_each_other(tmp_path, server):
    """The run of each ends when that of the other has begun, where there are cores for both."""
    folders = [tmp_path / "a study", tmp_path / "another"]
    for number, folder in enumerate(folders):
        (folder / "mine").mkdir(parents=True)
        there = provider(server, tmp_path, folder=str(tmp_path / f"there-{number}"))
        (folder / "study.toml").write_text(MINE + there)
        meets = f"until [ -e {tmp_path}/began-{1 - number} ]; do sleep 0.1; done\n" * (len(host_cores()) > 1)
        (folder / "mine" / "run.sh").write_text(f"touch {tmp_path}/began-{number}\n{meets}echo accuracy: 1\n")
        assert vbstudy(folder, "-q", "provision") == 0
    sweeps = [start(folder, "sweep") for folder in folders]
    try:
        for sweep in sweeps:
            _, said = sweep.communicate(timeout=600)
            assert sweep.returncode == 0, said
    finally:
        for sweep in sweeps:
            sweep.kill()
    ((one,), (other,)) = ([each.isolation for each in records(folder).values()] for folder in folders)
    if len(host_cores()) > 1:
        assert not set(one.host_cores) & set(other.host_cores)
        assert one.neighbours or other.neighbours


def test_a_guest_is_destroyed_after_its_python_is_gone(directory, server, tmp_path):
    python = tmp_path / "python"
    (directory / "study.toml").write_text(ONE + provider(server, tmp_path, python=str(python)))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert vbstudy(directory, "-q", "provision") == 0
    python.unlink()
    assert vbstudy(directory, "-q", "destroy") == 0
    assert not (tmp_path / "there").exists()


def test_a_guest_is_destroyed_and_swept_on_the_host_on_which_it_was_made(server, tmp_path, capsys):
    """Two hosts: two servers on this machine."""
    with sshd.running(tmp_path / "second") as second:
        folder = tmp_path / "study"
        folder.mkdir()
        first = provider(server, tmp_path, folder=str(tmp_path / "first there"))
        other = provider(second, tmp_path, folder=str(tmp_path / "second there"), port=second.port)
        other = other[other.index("[[") :]
        (folder / "study.toml").write_text(STUDY + first + other)
        assert vbstudy(folder, "-q", "provision") == 0
        assert list(tmp_path.glob("second there/*/cpus-2"))
        assert vbstudy(folder, "-q", "provision", "--cpus", "2") == 0
        assert not list(tmp_path.glob("first there/*/cpus-*"))
        assert list(tmp_path.glob("second there/*/cpus-2"))
        assert vbstudy(folder, "-q", "sweep") == 0
        at = f"{second.user}@127.0.0.1:{second.port}"
        for record in records(folder).values():
            assert record.guest["host"] == machine_id(record.spec.study_id, at)
        text = (folder / "study.toml").read_text()
        (folder / "study.toml").write_text(text.replace(other, ""))
        capsys.readouterr()
        assert vbstudy(folder, "-q", "destroy") == 2
        assert "cpus-2 is on" in capsys.readouterr().err
        (folder / "study.toml").write_text(text)
        assert vbstudy(folder, "-q", "destroy") == 0
        assert not list(tmp_path.glob("* there"))
