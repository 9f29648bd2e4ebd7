"""Sweeps on many hosts: real schedulers, workers and trainings, killed in the middle."""

import datetime
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import engine as engine_
from orchestrator.cli import main as cli
from orchestrator.cli import worker
from orchestrator.cores.leases import host_cores
from orchestrator.providers import PROVIDERS
from orchestrator.store.index import opened
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import load
from orchestrator.sweep.live import read_live
from orchestrator.sweep.pipeline import resume
from tests.orchestrator.fleet.fleets import fleet, wait_until, working_in
from tests.orchestrator.sweep import test_project_sweep
from tests.orchestrator.sweep.test_pipeline import STUDY, damaged, hashes, records, vbstudy

ONE_CPU = STUDY.replace("cpus = [1, 2]", "cpus = [1]").replace("repetitions = 2", "repetitions = 4")
# Long enough to be killed in the middle.
SLOW = ONE_CPU.replace("epochs = 2", "epochs = 120")
CLUSTER = '\n[engine]\nkind = "dask"\n'


def made(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The hashes of the slow study, swept on this machine alone."""
    directory = made(tmp_path_factory.mktemp("undisturbed"), SLOW)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    return hashes(directory)


@pytest.mark.needs("dask")
def test_a_sweep_on_a_local_cluster_gives_the_bits_of_a_local_sweep_and_leaves_no_guest(tmp_path, capsys):
    here = made(tmp_path / "here", STUDY)
    assert vbstudy(here, "-q", "provision") == 0
    assert vbstudy(here, "-q", "sweep") == 0
    there = made(tmp_path / "there", STUDY + CLUSTER)
    capsys.readouterr()
    assert vbstudy(there, "--json", "sweep") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["done_now"] == 4
    assert "dashboard: http://127.0.0.1:" in output.err
    assert hashes(there) == hashes(here)
    assert not list(there.glob("guests/*/*/slot-*"))
    for record in records(there).values():
        assert record.guest["provider"] == "local"
        assert record.isolation.host_cores
        assert not record.isolation.oversubscribed
    store = Store(there)
    seen = read_live(store.live_file)
    assert (seen.state, seen.cores, seen.done_now, seen.running) == ("ended", 0, 4, ())
    with opened(store.checked_file, store.runs) as checked:
        assert resume(store, plan(load(store.study_file)), checked).read == 0, "what was published is known"


def test_a_worker_can_make_guests_with_every_provider_but_the_one_for_machines_elsewhere(tmp_path, capsys):
    assert set(worker.PROVIDERS) == set(PROVIDERS) - {"ssh"}
    host = 'kind = "ssh"\n[[provider.hosts]]\nhost = "node1"\ncpus = 1\n'
    directory = made(tmp_path, f"{ONE_CPU}\n[provider]\n{host}")
    assert vbstudy(directory, "sweep", "--scheduler", "tcp://127.0.0.1:1") == 2
    assert "provider.kind = 'ssh' needs no dask" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["wheels = 'wheels'", "random = 'replay'"])
def test_what_of_a_project_does_not_travel_to_other_hosts_is_said(tmp_path, capsys, key):
    project = '[[workload]]\nname = "mine"\nproject = "mine"\ncommand = ["python", "train.py"]\n'
    metrics = "[workload.metrics]\naccuracy = { pattern = 'acc: ([0-9.]+)' }\n"
    directory = made(tmp_path, f"cpus = [1]\n{project}{key}\n{metrics}")
    assert vbstudy(directory, "sweep", "--scheduler", "tcp://127.0.0.1:1") == 2
    assert f"{key} is not sent to other hosts" in capsys.readouterr().err


@pytest.mark.needs("dask")
@pytest.mark.parametrize("shared", [True, False])
def test_a_project_goes_to_the_hosts_with_its_orders_and_gives_the_bits_of_a_local_sweep(
    tmp_path, monkeypatch, shared
):
    if not shared:  # the hosts do not find the store: results come through the worker
        monkeypatch.setattr(Store, "leave_token", lambda store: "0" * 32)
    here, there = tmp_path / "here" / "study", tmp_path / "there" / "study"
    for directory in (here, there):
        test_project_sweep.make(directory)
    assert vbstudy(here, "-q", "provision") == 0
    assert vbstudy(here, "-q", "sweep") == 0
    text = (there / "study.toml").read_text()
    engine = '[engine]\nkind = "dask"\n'
    (there / "study.toml").write_text(text.replace("[engine]\n", engine))
    shutil.rmtree(here / "mine")
    assert vbstudy(there, "-q", "sweep") == 0
    assert hashes(there) == hashes(here)
    for record in records(there).values():
        assert set(record.result.artifacts) == {
            "history.csv",
            "log.txt",
            "predictions.npz",
            "weights.safetensors",
        }
    assert vbstudy(there, "-q", "verify") == 0


def test_without_dask_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    directory = made(tmp_path, ONE_CPU + CLUSTER)
    monkeypatch.setattr(engine_.importlib.util, "find_spec", lambda name: None)
    assert vbstudy(directory, "sweep") == 3
    assert "-m pip install distributed bokeh`" in capsys.readouterr().err
    assert cli.run(["worker", "tcp://127.0.0.1:8786"]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "--scheduler", "host:8786"], "an address like 'tcp://host:8786'"),
        (["sweep", "--scheduler", "tls://host:8786"], "needs security"),
        (["sweep", "--security", "x.toml"], "--security needs --scheduler"),
        (["worker", "host"], "an address like 'tcp://host:8786'"),
        (["worker", "tls://host:1"], "needs --security FILE"),
        (["worker", "tcp://host:1", "--cores", "x"], "write for example 0-3,8"),
        (["worker", "tcp://host:1", "--cores", "4000"], "this process may use the cores"),
        (["worker", "tcp://host:1", "--security", "no.toml"], "no.toml: cannot be read"),
        (["worker", "tcp://no-host.invalid:1"], "host 'no-host.invalid' is not found"),
        (["sweep", "--scheduler", "tcp://no-host.invalid:1"], "host 'no-host.invalid' is not found"),
        (["worker", "tcp://127.0.0.1:1", "--memory-mib", "999999999"], "this machine has"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told(tmp_path, capsys, arguments, said):
    assert vbstudy(made(tmp_path, ONE_CPU), *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.needs("dask")
def test_a_killed_worker_costs_its_runs_and_no_others(tmp_path, undisturbed):
    directory = made(tmp_path / "study", SLOW)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        first = there.worker("first", "--cores", "0")
        there.worker("second", "--cores", "1")
        sweep = there.sweep(directory)
        wait_until(lambda: working_in(there.folder / "first", 1), sweep)
        first.kill()
        assert sweep.wait(600) == 0
        told = there.log("sweep")
    assert hashes(directory) == undisturbed
    # Also hosts that fall silent for a while, where the machine is that busy.
    gone = re.findall(r"host (\S+) is lost; 1 run to be handed out again", told)
    kept = [json.loads(path.read_text()) for path in directory.glob("failed/*/*/*/*/error.json")]
    assert gone, told
    assert sorted((each["kind"], each["message"]) for each in kept) == sorted(
        ("Lost", f"its host {host} was lost while it ran") for host in gone
    ), told


@pytest.mark.needs("dask", long=True)
def test_a_scheduler_that_is_restarted_is_found_again_and_finished_runs_are_not_computed_again(
    tmp_path, undisturbed
):
    directory = made(tmp_path / "study", SLOW)
    with fleet(tmp_path / "fleet") as there:
        scheduler = there.scheduler()
        there.worker("only", "--cores", "0")
        sweep = there.sweep(directory)
        wait_until(lambda: records(directory) and working_in(there.folder / "only", 1), sweep)
        scheduler.kill()
        scheduler.wait()
        killed = datetime.datetime.now(datetime.UTC).isoformat()
        wait_until(lambda: "the scheduler is lost" in there.log("sweep"), sweep)
        there.scheduler()
        assert sweep.wait(600) == 0
    assert hashes(directory) == undisturbed
    assert [path.read_text() for path in (directory / "failed").rglob("error.json")] == []
    before = [r for r in records(directory).values() if r.started_at < killed]
    assert any(r.finished_at > killed for r in before), "what was under way went on without a scheduler"


@pytest.mark.needs("dask")
def test_a_killed_sweep_takes_up_what_its_hosts_went_on_with(tmp_path, undisturbed):
    directory = made(tmp_path / "study", SLOW)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        there.worker("only", "--cores", "0")
        sweep = there.sweep(directory)
        wait_until(lambda: records(directory) and working_in(there.folder / "only", 1), sweep)
        sweep.kill()
        sweep.wait()
        killed = datetime.datetime.now(datetime.UTC).isoformat()
        assert there.sweep(directory).wait(600) == 0
        assert not list((there.folder / "only").glob("*/runs/*/*/*/*")), "what was delivered is not kept"
    assert hashes(directory) == undisturbed
    assert [path.read_text() for path in (directory / "failed").rglob("error.json")] == []
    under_way = [r for r in records(directory).values() if r.started_at < killed < r.finished_at]
    assert len(under_way) == 1


@pytest.mark.needs("dask")
def test_ctrl_c_stops_the_runs_on_the_hosts(tmp_path):
    directory = made(tmp_path / "study", SLOW)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        there.worker("only", "--cores", "0")
        sweep = there.sweep(directory)
        wait_until(lambda: working_in(there.folder / "only", 1), sweep)
        live_file = Store(directory).live_file
        seen = []

        def is_told():
            live = read_live(live_file)
            seen.extend(run for run in (live.running if live else ()) if run.epoch)
            return seen

        wait_until(is_told, sweep)
        run = seen[0]
        assert run.guest.startswith("cpus-1.1@")
        assert run.cores == (0,)
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(600) == 130
        assert read_live(live_file).state == "stopped"
        assert not working_in(there.folder / "only", 1)
    assert not list((tmp_path / "fleet" / "only").glob("*/slot-*")), "the worker leaves no guest behind"


@pytest.mark.needs("dask")
def test_a_failing_run_brings_its_evidence_with_it(tmp_path):
    text = ONE_CPU.replace('"digits"', '"mnist"') + damaged(tmp_path / "mnist")
    directory = made(tmp_path / "study", text)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        there.worker("only", "--cores", "0")
        assert there.sweep(directory, "--runs", "1").wait(600) == 1
    told = {
        attempt: json.loads((attempt / "error.json").read_text())
        for attempt in (directory / "failed/net/fixed-seed/cpus-1").iterdir()
    }
    # A busy host may be silent, and counts as lost.
    own = {each: error for each, error in told.items() if error["kind"] != "Lost"}
    assert sorted(error["attempt"] for error in own.values()) == [1, 2]
    assert all("Traceback" in (attempt / "log.txt").read_text() for attempt in own)


@pytest.mark.needs("dask")
def test_a_worker_with_another_provider_gets_no_runs_and_it_is_said_why(tmp_path):
    directory = made(tmp_path / "study", ONE_CPU)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        there.worker("only", "--provider", "qemu")
        assert there.sweep(directory).wait(600) == 3
        assert "makes guests with qemu, but the study needs local" in there.log("sweep")


@pytest.mark.needs("dask")
def test_a_scheduler_that_is_not_there_is_told(tmp_path):
    with fleet(tmp_path / "fleet") as there:
        assert there.sweep(made(tmp_path / "study", ONE_CPU)).wait(600) == 4
        assert "does not answer: is it running" in there.log("sweep")


@pytest.mark.needs("dask")
def test_a_worker_says_what_it_waits_for_and_a_second_one_in_its_folder_what_to_do(tmp_path, capsys):
    with fleet(tmp_path / "fleet") as there:
        waiting = there.start_worker("host")
        wait_until(lambda: "does not answer; waiting for it" in there.log("host"), waiting)
        impatient = [sys.executable, "-m", "vbstudy", "worker", there.address, "--wait", "1"]
        done = subprocess.run(
            [*impatient, "--folder", str(tmp_path / "x")], stderr=subprocess.PIPE, text=True, timeout=600
        )
        assert done.returncode == 4
        assert f"the scheduler {there.address} did not answer within --wait 1 s" in done.stderr
        folder = str(tmp_path / "fleet" / "host")
        assert cli.run(["worker", there.address, "--folder", folder, "--wait", "60"]) == 2
        assert "another needs its own --folder" in capsys.readouterr().err
        scheduler = there.scheduler()
        wait_until(lambda: "at work" in there.log("host"), waiting)
        scheduler.kill()
        wait_until(lambda: "the scheduler is gone" in there.log("host"), waiting)


@pytest.mark.needs("dask")
def test_guests_wider_than_the_hosts_are_announced_and_marked_as_oversubscribed(tmp_path):
    wide = ONE_CPU.replace("cpus = [1]", "cpus = [3]").replace("repetitions = 4", "repetitions = 1")
    directory = made(tmp_path / "study", wide)
    with fleet(tmp_path / "fleet") as there:
        there.scheduler()
        there.worker("narrow", "--cores", str(min(host_cores())))
        assert there.sweep(directory).wait(600) == 0
        assert "guests with more than 1 core are oversubscribed there" in there.log("sweep")
    (record,) = records(directory).values()
    assert record.isolation.oversubscribed


@pytest.mark.needs("dask")
def test_hosts_share_nothing_but_tls_where_it_is_asked_for(tmp_path):
    keys = certificates(tmp_path / "tls")
    security = tmp_path / "tls" / "security.toml"
    security.write_text('ca = "ca.pem"\ncert = "cert.pem"\nkey = "key.pem"\n')
    directory = made(tmp_path / "study", ONE_CPU)
    with fleet(tmp_path / "fleet", protocol="tls", tls=keys) as there:
        there.scheduler()
        there.worker("only", "--security", str(security))
        assert there.sweep(directory, "--runs", "1", "--security", str(security)).wait(600) == 0
        plain = there.sweep(directory, "--scheduler", there.address.replace("tls", "tcp"))
        assert plain.wait(600) == 4, there.log("sweep")
    assert len(records(directory)) == 1


def certificates(folder: Path) -> tuple[str, ...]:
    """One authority that signs itself, which is the certificate of all; as the scheduler's options."""
    import subprocess

    folder.mkdir()
    openssl = shutil.which("openssl")
    assert openssl is not None
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=vbstudy",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.copyfile(folder / "cert.pem", folder / "ca.pem")
    files = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
    return tuple(f"--tls-{option}={folder / name}" for option, name in files.items())
