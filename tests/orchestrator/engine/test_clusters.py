"""Clusters that are started for a sweep: over SSH to a real sshd, and by a batch system."""

import os
import sys
from pathlib import Path

import pytest

from orchestrator.engine import clusters
from orchestrator.errors import PrerequisiteError, UsageError
from tests.orchestrator.engine.fleets import wait_until
from tests.orchestrator.engine.test_dask import ONE_CPU, made
from tests.orchestrator.test_sweep import records, start

# Runs each job as a process of its own, as Slurm would on a node.
SBATCH = """#!/bin/sh
cp "$1" {folder}/job.sh
setsid sh {folder}/job.sh > {folder}/job.log 2>&1 < /dev/null &
echo $! > {folder}/job.pid
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -TERM -- "-$1"
"""


def swept(directory: Path, home: Path, *path: Path) -> str:
    """What a sweep says that goes through."""
    home.mkdir(exist_ok=True)
    kept = {name: os.environ.get(name) for name in ("HOME", "PATH")}
    os.environ["HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join([*map(str, path), os.environ["PATH"]])
    try:
        process = start(directory, "sweep", "--runs", "2")
    finally:
        os.environ.update({name: value for name, value in kept.items() if value is not None})
    try:
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return said


@pytest.mark.dask
def test_a_cluster_over_ssh_is_started_swept_on_and_ended(tmp_path):
    from tests import sshd

    with sshd.running(tmp_path / "sshd") as server:
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(f"[127.0.0.1]:{server.port} {server.host.public}\n")
        # What an account's own shell would do: the working folder, the home.
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\ncd {Path.cwd()} && HOME={tmp_path} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        directory = made(
            tmp_path / "study",
            f"""{ONE_CPU}
[engine]
kind = "dask"
[engine.cluster]
kind = "ssh"
hosts = ["127.0.0.1"]
cores = 1
memory_mib = 1000
port = {server.port}
user = "{server.user}"
key = "{server.client.private}"
known_hosts = "{known_hosts}"
python = "{python}"
""",
        )
        said = swept(directory, tmp_path / "home")
    assert "1 cores" in said
    assert len(records(directory)) == 2
    assert not list(tmp_path.glob(".cache/vbstudy/hosts/*/*/slot-*"))


@pytest.mark.dask
def test_jobs_of_a_batch_system_are_submitted_with_what_the_study_says_and_cancelled(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (commands / name).write_text(text.format(folder=tmp_path))
        (commands / name).chmod(0o755)
    directory = made(
        tmp_path / "study",
        f"""{ONE_CPU}
[engine]
kind = "dask"
[engine.cluster]
kind = "slurm"
jobs = 1
cores = 2
memory_mib = 2048
walltime = "00:10:00"
queue = "long"
account = "me"
directives = ["--exclusive"]
interface = "lo"
python = "{sys.executable}"
""",
    )
    swept(directory, tmp_path / "home", commands)
    assert len(records(directory)) == 2
    script = (tmp_path / "job.sh").read_text()
    for line in ("-p long", "-A me", "-t 00:10:00", "--exclusive", "--cpus-per-task=2"):
        assert f"#SBATCH {line}" in script
    assert "--resources vcpu=2,memory=2048" in script
    wait_until(lambda: not list(tmp_path.glob("home/.cache/vbstudy/hosts/*/*/slot-*")))


def test_more_workers_than_cores_are_refused(tmp_path, monkeypatch):
    from orchestrator.store import Store
    from orchestrator.study_engine import LocalClusterTable

    monkeypatch.setattr(clusters, "host_cores", lambda: (0, 1))
    with pytest.raises(UsageError, match="engine.cluster.workers = 3: this machine has 2 cores"):
        clusters._local(LocalClusterTable(workers=3), Store(tmp_path), None)


def test_what_a_cluster_lacks_is_named_with_the_line_that_installs_it():
    with pytest.raises(PrerequisiteError, match="pip install no-such-module"):
        clusters.needed("no_such_module")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ca = 1", "must have the keys ca, cert and key"),
        ('ca = "a"\ncert = "b"\nkey = "c"\nmore = "d"', "must have the keys"),
        ('ca = "a"\ncert = "b"\nkey = "c"', "there is no file"),
        ("ca =", "is not TOML"),
    ],
)
def test_a_security_file_is_checked(tmp_path, text, said):
    path = tmp_path / "security.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        clusters.read_security(path)
