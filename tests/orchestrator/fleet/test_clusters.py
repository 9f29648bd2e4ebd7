"""Clusters that are started for a sweep: over SSH to a real sshd, and by a batch system."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from distributed import Scheduler, SpecCluster
from distributed.deploy.spec import ProcessInterface
from distributed.utils import format_dashboard_link

from orchestrator.cli import main as cli
from orchestrator.errors import GuestError, PrerequisiteError, UsageError
from orchestrator.fleet import clusters
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable, SshClusterTable
from orchestrator.study.schema import parse
from tests import slurm
from tests.orchestrator.fleet.fleets import wait_until
from tests.orchestrator.fleet.test_dask import ONE_CPU, made
from tests.orchestrator.sweep.test_pipeline import records, start, wait_for_runs

BATCH = """
[engine]
kind = "dask"
[engine.cluster]
kind = "slurm"
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


def batch(folder: Path, jobs: int) -> str:
    return BATCH.format(jobs=jobs, directive=directive(folder), python=sys.executable)


def directive(folder: Path) -> str:
    return f"--output={folder}/job-%j.out"


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


@pytest.mark.needs("dask")
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


@pytest.mark.needs("dask")
def test_jobs_of_a_real_slurm_sweep_a_study_and_are_gone_afterwards(tmp_path):
    text = ONE_CPU + batch(tmp_path, jobs=2)
    directory = made(tmp_path / "study", text)
    with slurm.running(cpus=2, memory_mib=8000) as system:
        said = swept(directory, tmp_path / "home", system.environment)
        wait_until(lambda: not system.jobs())
    assert len(records(directory)) == 2
    assert "1 core," in said
    assert not list(tmp_path.glob("home/.cache/vbstudy/hosts/*/*/slot-*"))
    assert not list(Path.cwd().glob("slurm-*.out")), "directives reach sbatch"


@pytest.mark.needs("dask", long=True)
def test_a_job_that_ends_before_the_sweep_does_is_submitted_again(tmp_path):
    text = ONE_CPU.replace("epochs = 2", "epochs = 200") + batch(tmp_path, jobs=1)
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


@pytest.mark.needs("dask")
def test_a_job_offers_the_cores_and_the_memory_that_it_asks_the_batch_system_for(tmp_path):
    engine = parse(ONE_CPU + batch(tmp_path, jobs=1)).engine
    with clusters.job_queue(engine.cluster, clusters._made_for_jobs(Store(tmp_path))) as cluster:
        script = cluster.job_script()
    for line in ("-p long", "-A me", "-t 00:10:00", "--cpus-per-task=1", directive(tmp_path)):
        assert f"#SBATCH {line}\n" in script
    assert f"{sys.executable} -m distributed.cli.dask_worker tls://127.0.0.1:" in script
    key = Path(re.search("--tls-key ([^ ]+)", script)[1])
    assert (key.parents[1], key.parent.stat().st_mode & 0o777) == (tmp_path / "incoming", 0o700)
    assert "--resources vcpu=1,memory=2048 --preload vbstudy.dask_worker" in script
    assert "--no-nanny" in script
    assert "--worker-class vbstudy.dask_worker.HostWorker --dashboard-address 127.0.0.1:0" in script


@pytest.mark.needs("dask")
def test_a_queue_that_the_batch_system_does_not_have_ends_the_sweep_with_its_reason(
    tmp_path, capsys, monkeypatch
):
    text = batch(tmp_path, jobs=2).replace('queue = "long"', 'queue = "nowhere"')
    directory = made(tmp_path / "study", ONE_CPU + text)
    with slurm.running(cpus=1, memory_mib=4000) as system:
        for name, value in system.environment.items():
            monkeypatch.setenv(name, value)
        assert cli.run(["-C", str(directory), "sweep"]) == 4
        assert not system.jobs()
    assert "Batch job submission failed: Invalid partition name specified; check" in capsys.readouterr().err


REFUSED = """Command exited with non-zero exit code.
Exit code: 1
stderr:
sbatch: error: invalid partition specified: nowhere
sbatch: error: Batch job submission failed: Invalid partition name specified

"""  # as dask_jobqueue has it


class Job(ProcessInterface):
    """Submitted while `places` are left."""

    places = 0
    job_id = None

    async def start(self):
        if not Job.places:
            raise RuntimeError(REFUSED)
        Job.places -= 1
        self.job_id = "1"
        await super().start()


@pytest.fixture
def queued():
    Job.places = 0
    options = {"host": clusters.LOOPBACK, "dashboard": False}
    scheduler = {"cls": Scheduler, "options": options | {"dashboard_address": f"{clusters.LOOPBACK}:0"}}
    with SpecCluster(scheduler=scheduler, worker={"cls": Job, "options": {}}) as cluster:
        yield cluster


def test_jobs_that_are_all_refused_end_the_sweep_with_the_reason(queued):
    with pytest.raises(GuestError, match="sbatch: error: .*: Invalid partition name specified; check"):
        clusters.keep_submitted(queued, 2, pytest.fail)


def test_a_job_that_was_refused_is_submitted_again(queued):
    said, Job.places = [], 1
    clusters.keep_submitted(queued, 2, said.append)
    assert len(queued.workers) == len(said) == 1
    assert "refused are submitted again: sbatch: error: Batch job submission failed" in said[0]
    Job.places = 1
    assert queued.sync(clusters._submit, queued) == ""
    assert len(queued.workers) == 2


def test_the_dashboard_of_a_cluster_is_printed_with_the_address_that_it_listens_on(tmp_path, monkeypatch):
    started = contextlib.nullcontext(("tls://10.0.0.1:8786", None))
    monkeypatch.setattr(clusters, "_cluster", lambda *_: started)
    with clusters.scheduler(EngineTable(kind="dask"), Store(tmp_path), print):
        assert format_dashboard_link("10.0.0.1", 8787) == "http://127.0.0.1:8787/status"


def test_more_workers_than_cores_are_refused(tmp_path, monkeypatch):
    from orchestrator.store.store import Store
    from orchestrator.study.engine import LocalClusterTable

    monkeypatch.setattr(clusters, "host_cores", lambda: (0, 1))
    with pytest.raises(UsageError, match="engine.cluster.workers = 3: this machine has 2 cores"):
        clusters._local(LocalClusterTable(workers=3), Store(tmp_path), None)


def test_what_a_cluster_lacks_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PrerequisiteError, match="need dask_jobqueue: `.* -m pip install dask-jobqueue`"):
        clusters.job_queue(None, None)


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


def test_files_that_are_no_pem_are_an_error_of_the_security_file(tmp_path):
    path = tmp_path / "security.toml"
    path.write_text('ca = "x"\ncert = "x"\nkey = "x"\n')
    (tmp_path / "x").write_text("no PEM")
    with pytest.raises(UsageError, match="security.toml: ca, cert and key must be PEM files, and .*X509"):
        clusters.read_security(path)


OVER_SSH = SshClusterTable(
    kind="ssh", hosts=("a",), cores=1, memory_mib=1, key=Path("id"), known_hosts=Path("/etc/known")
)


def test_files_of_a_cluster_over_ssh_are_those_of_the_studys_folder(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(clusters, "require_dask", lambda *names: None)
    monkeypatch.setattr("distributed.SSHCluster", lambda hosts, **options: given.update(options))
    clusters._ssh(OVER_SSH, Store(tmp_path))
    assert given["connect_options"]["client_keys"] == [str(tmp_path / "id")]
    assert given["connect_options"]["known_hosts"] == "/etc/known"


def test_a_cluster_over_ssh_that_does_not_start_is_no_defect(tmp_path, monkeypatch):
    def fail(hosts, **options):
        raise Exception("Worker failed to start")  # noqa: TRY002  (as dask does)

    monkeypatch.setattr(clusters, "require_dask", lambda *names: None)
    monkeypatch.setattr("distributed.SSHCluster", fail)
    with pytest.raises(
        GuestError, match="was not started: Worker failed to start; does `ssh` log in to each"
    ):
        clusters._ssh(OVER_SSH, Store(tmp_path))
