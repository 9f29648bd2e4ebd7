"""Clusters that are started for a sweep: over SSH to a real sshd, and by a batch system."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from orchestrator.engine import clusters
from orchestrator.errors import PrerequisiteError, UsageError
from orchestrator.study import parse
from tests import slurm
from tests.orchestrator.engine.fleets import wait_until
from tests.orchestrator.engine.test_dask import ONE_CPU, made
from tests.orchestrator.test_sweep import records, start, wait_for_runs

# Stand-ins for the commands of PBS, for which Debian has no package: a job is a process of its own.
QSUB = """#!/bin/sh
cp "$1" {folder}/job.sh
setsid sh {folder}/job.sh > {folder}/job.log 2>&1 < /dev/null &
echo $! > {folder}/job.pid
echo "$!.here"
"""
QDEL = """#!/bin/sh
kill -TERM -- "-${{1%.here}}"
"""
BATCH = """
[engine]
kind = "dask"
[engine.cluster]
kind = "{kind}"
jobs = {jobs}
cores = 1
memory_mib = 2048
walltime = "00:10:00"
queue = "long"
account = "me"
directives = ["{directive}"]
interface = "lo"
python = "{python}"
"""


def batch(folder: Path, kind: str, jobs: int) -> str:
    return BATCH.format(kind=kind, jobs=jobs, directive=directive(folder, kind), python=sys.executable)


def directive(folder: Path, kind: str) -> str:
    return {"slurm": f"--output={folder}/job-%j.out", "pbs": f"-o {folder}"}[kind]


def started(directory: Path, home: Path, environment: Mapping[str, str]) -> subprocess.Popen:
    home.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOME": str(home), **environment}.items():
            patch.setenv(name, value)
        return start(directory, "sweep", "--runs", "2")


def ended(process: subprocess.Popen) -> str:
    """What a sweep says that goes through."""
    try:
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return said


def swept(directory: Path, home: Path, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    return ended(started(directory, home, environment))


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
        (host,) = tmp_path.glob(".cache/vbstudy/hosts/*")
        wait_until(lambda: not list(host.glob("*/slot-*")))
    assert "1 core," in said
    assert len(records(directory)) == 2


@pytest.mark.dask
def test_jobs_of_a_real_slurm_sweep_a_study_and_are_gone_afterwards(tmp_path):
    text = ONE_CPU + batch(tmp_path, "slurm", jobs=2)
    directory = made(tmp_path / "study", text)
    with slurm.running(cpus=2, memory_mib=8000) as system:
        said = swept(directory, tmp_path / "home", system.environment)
        wait_until(lambda: not system.jobs())
    assert len(records(directory)) == 2
    assert "1 core," in said
    assert not list(tmp_path.glob("home/.cache/vbstudy/hosts/*/*/slot-*"))
    assert not list(Path.cwd().glob("slurm-*.out")), "directives reach sbatch"


@pytest.mark.dask
def test_a_job_that_ends_before_the_sweep_does_is_submitted_again(tmp_path):
    text = ONE_CPU.replace("epochs = 2", "epochs = 200") + batch(tmp_path, "slurm", jobs=1)
    directory = made(tmp_path / "study", text)
    with slurm.running(cpus=1, memory_mib=4000) as system:
        process = started(directory, tmp_path / "home", system.environment)
        wait_for_runs(directory, 1, process)
        (job,) = [line.split()[0] for line in system.jobs()]
        system.run("scancel", job)
        said = ended(process)
        wait_until(lambda: not system.jobs())
    assert len(records(directory)) == 2
    assert "is lost" in said
    assert len(list(tmp_path.glob("job-*.out"))) == 2
    assert not list(tmp_path.glob("home/.cache/vbstudy/hosts/*/*/slot-*"))


@pytest.mark.dask
def test_jobs_that_pbs_runs_sweep_a_study_and_are_deleted(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("qsub", QSUB), ("qdel", QDEL)):
        (commands / name).write_text(text.format(folder=tmp_path))
        (commands / name).chmod(0o755)
    directory = made(tmp_path / "study", ONE_CPU + batch(tmp_path, "pbs", jobs=1))
    swept(directory, tmp_path / "home", {"PATH": f"{commands}:{os.environ['PATH']}"})
    assert len(records(directory)) == 2
    wait_until(lambda: not list(tmp_path.glob("home/.cache/vbstudy/hosts/*/*/slot-*")))


@pytest.mark.dask
@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("slurm", ["SBATCH -p long", "SBATCH -A me", "SBATCH -t 00:10:00", "SBATCH --cpus-per-task=1"]),
        (
            "pbs",
            ["PBS -q long", "PBS -A me", "PBS -l walltime=00:10:00", "PBS -l select=1:ncpus=1:mem=2048MB"],
        ),
    ],
)
def test_a_job_offers_the_cores_and_the_memory_that_it_asks_the_batch_system_for(tmp_path, kind, lines):
    engine = parse(ONE_CPU + batch(tmp_path, kind, jobs=1)).engine
    with clusters.job_queue(engine.cluster, None) as cluster:
        script = cluster.job_script()
    for line in [*lines, f"{'SBATCH' if kind == 'slurm' else 'PBS'} {directive(tmp_path, kind)}"]:
        assert f"#{line}\n" in script
    assert f"{sys.executable} -m distributed.cli.dask_worker tcp://127.0.0.1:" in script
    assert "--resources vcpu=1,memory=2048 --preload orchestrator.engine.worker" in script
    assert "--no-nanny" in script


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
