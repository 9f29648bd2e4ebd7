"""Real sweeps: real guests, real training, small."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guest.datasets import datasets
from guest.records.run import PREDICTIONS, RECORD, decode_record
from orchestrator.cli import main as cli
from tests.processes import wait_until

pytestmark = pytest.mark.needs("studies")

STUDY = """
name = "small"
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed"]

[[workload]]
name = "net"
model = "lenet1"
dataset = "digits"
epochs = 2
batch_size = 32
train_samples = 256
test_samples = 100
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def one_by_one(directory):
    """The same study, of which a run is left when the first one ends, on any number of cores."""
    (directory / "study.toml").write_text(f"{STUDY}\n[engine]\nside_by_side = false\n")


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), *arguments])


def records(directory: Path):
    return {
        str(path.parent.relative_to(directory / "runs")): decode_record(path.read_bytes())
        for path in sorted((directory / "runs").glob("*/*/*/*/" + RECORD))
    }


def hashes(directory: Path) -> dict[str, str]:
    return {run: record.result.hashes.weights for run, record in records(directory).items()}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """One finished sweep, for the tests that only look at it."""
    directory = tmp_path_factory.mktemp("swept")
    (directory / "study.toml").write_text(STUDY)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    return directory


def test_every_planned_run_is_in_the_store(swept):
    assert list(records(swept)) == [
        f"net/fixed-seed/cpus-{cpus}/{repetition:04d}" for cpus in (1, 2) for repetition in (1, 2)
    ]


def test_fixed_seeds_give_equal_bits_within_a_thread_count_and_others_across(swept):
    weights = hashes(swept)
    assert weights["net/fixed-seed/cpus-1/0001"] == weights["net/fixed-seed/cpus-1/0002"]
    assert weights["net/fixed-seed/cpus-2/0001"] == weights["net/fixed-seed/cpus-2/0002"]
    assert weights["net/fixed-seed/cpus-1/0001"] != weights["net/fixed-seed/cpus-2/0001"]


def test_the_thread_counts_in_force_are_recorded(swept):
    for record in records(swept).values():
        seen = record.result.environment["threads_in_force"]
        assert seen["visible_cpus"] == seen["intra_op"] == seen["openmp"] == record.spec.threads.cpus
        assert record.isolation.host_cores
        assert not record.isolation.oversubscribed


def test_sweeping_again_runs_nothing(swept, capsys):
    before = hashes(swept)
    assert vbstudy(swept, "--json", "-q", "sweep") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["done_now"], summary["done_before"]) == (0, 4)
    assert hashes(swept) == before


def test_damage_is_found_set_aside_redone_and_reported(directory, capsys):
    (directory / "study.toml").write_text(STUDY.replace("cpus = [1, 2]", "cpus = [1]"))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    before = hashes(directory)
    target = directory / "runs/net/fixed-seed/cpus-1/0001" / PREDICTIONS
    target.write_bytes(target.read_bytes()[:-10])
    capsys.readouterr()
    assert vbstudy(directory, "--json", "sweep") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["quarantined"] == ["net/fixed-seed/cpus-1/0001"]
    assert "damaged net/fixed-seed/cpus-1/0001: predictions.npz has" in output.err
    assert hashes(directory) == before
    assert list((directory / "quarantine").glob("net/fixed-seed/cpus-1/0001-*/reason.txt"))


def damaged(folder: Path) -> str:
    """A table of a study file, with which runs on MNIST fail."""
    folder.mkdir()
    for source in datasets.info("mnist").files:
        (folder / source.name).touch()
    return f'\n[data]\nfolder = "{folder}"\n'


def test_a_failing_run_is_retried_recorded_and_the_rest_goes_on(directory, capsys):
    text = STUDY.replace("cpus = [1, 2]", "cpus = [1]").replace("repetitions = 2", "repetitions = 1")
    broken = text[text.index("[[workload]]") :].replace('"net"', '"broken"').replace('"digits"', '"mnist"')
    text = text.replace("[[workload]]", broken + "\n[[workload]]", 1)
    (directory / "study.toml").write_text(text + damaged(directory / "mnist"))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "sweep") == 1
    assert list(records(directory)) == ["net/fixed-seed/cpus-1/0001"]
    attempts = sorted((directory / "failed/broken/fixed-seed/cpus-1").iterdir())
    assert len(attempts) == 2
    error = json.loads((attempts[0] / "error.json").read_text())
    assert "ubyte.gz is damaged" in error["message"]
    assert "Traceback" in (attempts[0] / "log.txt").read_text()
    assert "failed broken/fixed-seed/cpus-1/0001" in capsys.readouterr().err


def start(directory: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "vbstudy", "-C", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_runs(directory: Path, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 600
    while len(records(directory)) < count:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


def processes_of(directory: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(directory):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_sweep_that_is_ended_keeps_what_is_done_and_resumes_to_the_same_hashes(
    directory, swept, number, status
):
    assert vbstudy(directory, "-q", "provision") == 0
    process = start(directory, "sweep")
    wait_for_runs(directory, 1, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == status
    assert "Traceback" not in errors
    wait_until(lambda: not processes_of(directory))
    assert processes_of(directory) == []
    kept = hashes(directory)
    assert 1 <= len(kept) <= 4
    assert vbstudy(directory, "-q", "sweep") == 0
    assert hashes(directory) == hashes(swept)
    assert kept.items() <= hashes(directory).items()
    assert not list((directory / "incoming").glob("*"))


def test_a_killed_worker_costs_one_attempt_and_no_run(directory, swept):
    assert vbstudy(directory, "-q", "provision") == 0
    process = start(directory, "sweep")
    wait_for_runs(directory, 1, process)
    for victim in processes_of(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert hashes(directory) == hashes(swept)


@pytest.mark.usefixtures("one_by_one")
def test_two_sweeps_at_once_are_refused_with_the_holder_which_a_sigterm_ends_like_an_interrupt(directory):
    assert vbstudy(directory, "-q", "provision") == 0
    first = start(directory, "sweep")
    try:
        wait_for_runs(directory, 1, first)
        first.send_signal(signal.SIGSTOP)  # it does not end before the second has begun
        second = start(directory, "sweep")
        _, errors = second.communicate(timeout=600)
        assert second.returncode == 2
        assert f"`vbstudy sweep`, process {first.pid} on " in errors
        first.terminate()
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=600)
        assert first.returncode == 130
        assert "Traceback" not in errors
    finally:
        first.kill()
        first.communicate()


def test_runs_made_with_another_study_file_are_refused(directory, swept, capsys):
    (directory / "runs").symlink_to(swept / "runs")
    (directory / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 3"))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "sweep") == 2
    assert "was run with epochs = 2 (the study says 3)" in capsys.readouterr().err


def test_a_read_only_store_is_told_and_nothing_is_half_written(swept, tmp_path, capsys):
    if os.geteuid() == 0:
        # Root writes anywhere; a file where a folder is needed stops it as well.
        (tmp_path / "study.toml").write_text(STUDY)
        assert vbstudy(tmp_path, "-q", "provision") == 0
        (tmp_path / "runs").write_text("not a folder")
    else:
        (tmp_path / "study.toml").write_text(STUDY)
        assert vbstudy(tmp_path, "-q", "provision") == 0
        (tmp_path / "runs").mkdir(mode=0o500)
    assert vbstudy(tmp_path, "-q", "sweep") == 6
    assert "cannot be written" in capsys.readouterr().err
    assert not list((tmp_path / "incoming").glob("*"))


def test_a_guest_that_cannot_go_on_stops_the_others_at_once(directory, capsys):
    """An interpreter that loses its framework is no run's fault: the sweep ends, with its code."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (directory / "study.toml").write_text(STUDY + f"\n[provider]\npython = {json.dumps(str(python))}\n")
    assert vbstudy(directory, "-q", "provision") == 0
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    assert vbstudy(directory, "sweep") == 3
    assert "the guest: the agent cannot start: " in capsys.readouterr().err
    assert records(directory) == {}
