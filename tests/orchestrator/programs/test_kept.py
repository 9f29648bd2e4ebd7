"""Finished runs of `harden -- PROGRAM` outlive a kill, and serve the same command alone."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.programs.conditions import Condition
from orchestrator.programs.kept import PROGRAMS, Kept, Run
from orchestrator.programs.try_verdicts import Trial
from vbstudy import caches


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# Its fifth run kills vbstudy, and ends then. With the first, which is not measured, four are finished.
PROGRAM = """\
import os, pathlib, time
counted = pathlib.Path(os.environ["COUNTED"])
with counted.open("a") as file:
    file.write("x")
if counted.stat().st_size == 5:
    killed = os.getppid()
    os.kill(killed, int(os.environ["SIGNAL"]))
    while os.getppid() == killed:
        time.sleep(0.05)
    raise SystemExit
print("loss: 0.5")
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_harden_that_was_stopped_goes_on_with_the_runs_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    folder, counted = tmp_path / "program", tmp_path / "counted"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("COUNTED", str(counted))
    monkeypatch.setenv("SIGNAL", str(int(number)))
    command = ["-C", str(folder), "harden", "--cpus", "1,2", "--runs", "2", "--tiers", "0,5", "--"]
    command += [sys.executable, "train.py"]
    stopped = subprocess.run([sys.executable, "-m", "vbstudy", *command], capture_output=True, check=False)
    assert stopped.returncode == (130 if number == signal.SIGINT else -number)
    assert counted.stat().st_size == 5
    assert cli.run(command) == 0
    shown = capsys.readouterr()
    assert "3 of 8 runs are kept in " in shown.err
    assert "all 4 runs agree" in shown.out
    assert counted.stat().st_size == 5 + 1 + 5
    assert not list((caches.state() / "harden").iterdir())


def kept(folder: Path, *, seed: int = 1, label: str = "default", version: str = "2.13.0") -> Kept:
    return Kept(["python", "train.py"], folder, seed, [Condition(label=label, threads=1)], {"torch": version})


def run(repetition: int) -> Run:
    trial = Trial(condition="default", threads=1, repetition=repetition, wall_s=1.5, metrics={}, files={})
    return Run(trial=trial, noticed=({"kind": "start", "argv": []},), remarks=("a note",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program" / "package").mkdir(parents=True)
    (tmp_path / "program" / "package" / "train.py").write_text("print(1)")
    return tmp_path / "program"


def test_a_kept_run_is_read_as_it_was(folder: Path) -> None:
    kept(folder).add(run(1))
    kept(folder).add(run(2))
    assert kept(folder).read() == {("default", n): run(n) for n in (1, 2)}
    assert {path.stat().st_mode & 0o777 for path in kept(folder).folder.iterdir()} == {0o600}
    kept(folder).remove()
    assert kept(folder).read() == {}


def test_a_damaged_run_is_run_again(folder: Path) -> None:
    kept(folder).add(run(1))
    (path,) = kept(folder).folder.iterdir()
    path.write_text(path.read_text().replace("1.5", "2.5"))
    assert kept(folder).read() == {}


def test_runs_serve_neither_another_program_nor_another_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = kept(folder).folder
    others = [kept(folder, seed=2), kept(folder, label="other"), kept(folder, version="2.14.0")]
    for name in ("LEARNING_RATE", "WINDOW_SIZE", "STYLE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "0.1")
            others.append(kept(folder))
    with monkeypatch.context() as patch:
        for name in ("SSH_CONNECTION", "TERM", "TMUX_PANE"):
            patch.setenv(name, "of a new terminal")
        (folder / "__pycache__").mkdir()
        assert kept(folder).folder == same
    script = folder / "package" / "train.py"
    script.chmod(0o755)
    others.append(kept(folder))
    script.write_text("print(2)")
    others.append(kept(folder))
    script.unlink()
    script.symlink_to("/dev/null")
    others.append(kept(folder))
    (folder / "package").rename(folder / "other")
    others.append(kept(folder))
    copy = shutil.copytree(folder, folder.parent / "copy", symlinks=True)
    others.append(kept(copy))
    assert len({same, *(each.folder for each in others)}) == 1 + len(others)


def test_runs_of_few_programs_are_kept(folder: Path) -> None:
    all_of_them = [kept(folder, seed=seed) for seed in range(PROGRAMS + 2)]
    for age, each in enumerate(reversed(all_of_them)):
        each.add(run(1))
        os.utime(each.folder, (age, age))
    kept(folder, seed=-1).add(run(1))
    assert [bool(each.read()) for each in all_of_them] == [True] * (PROGRAMS - 1) + [False] * 3


def test_a_state_that_cannot_be_written_is_no_error(folder: Path) -> None:
    caches.state().mkdir(parents=True)
    (caches.state() / "harden").touch()
    kept(folder).add(run(1))
    assert kept(folder).read() == {}
