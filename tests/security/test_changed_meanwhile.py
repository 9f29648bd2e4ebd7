"""A run's folder that is copied, written or removed while a command reads it: at each look at a file or a
folder in turn, something happens just before it."""

import builtins
import io
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

import analysis.exchange.verify
import analysis.load.predictions
import analysis.load.study
from orchestrator.cli import main as cli
from tests.analysis.conftest import Fabricator

pytestmark = pytest.mark.needs("studies")

RUN = "runs/lenet5/fixed-seed/cpus-1/0001"
EVERY = 10  # look; each happening begins at another
LOOKS = [(os, name) for name in ("stat", "lstat", "open", "scandir", "listdir")]
LOOKS += [(io, "open"), (builtins, "open")]


def the_run_goes(study, seen):
    shutil.rmtree(study / RUN)


def all_runs_go(study, seen):
    shutil.rmtree(study / "runs")


def the_file_goes(study, seen):
    shutil.rmtree(seen) if seen.is_dir() else seen.unlink(missing_ok=True)


def the_file_is_cut_off(study, seen):
    if seen.is_file():
        os.truncate(seen, seen.stat().st_size // 2)


def the_file_grows(study, seen):
    if seen.is_file():
        with seen.open("ab") as file:
            file.write(b"x" * 1000)


def a_run_comes_half_copied(study, seen):
    copy = study / RUN.replace("0001", "0009")
    if not copy.exists():
        shutil.copytree(study / RUN, copy)
        os.truncate(copy / "predictions.npz", 100)


class Looks:
    """Calls `act` before the look number `at` at something below `folder`."""

    def __init__(self, monkeypatch, folder: Path, act, at: int | None) -> None:
        self.count, self._busy = 0, False
        self._folder, self._act, self._at = str(folder), act, at
        for module, name in LOOKS:
            monkeypatch.setattr(module, name, self._watched(getattr(module, name)))

    def _watched(self, look):
        def watched(path, *arguments, **options):
            if not self._busy and isinstance(path, str | os.PathLike):
                whole = os.path.join(os.getcwd(), path)
                if whole.startswith(self._folder):
                    self.count += 1
                    if self.count == self._at:
                        self._busy = True
                        self._act(Path(whole))
            return look(path, *arguments, **options)

        return watched


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "study"
    folder.mkdir()
    made = Fabricator(folder)
    for cpus in (1, 2):
        made.run(cpus)
    return folder


@pytest.fixture
def watched(whole, tmp_path, monkeypatch, capsys):
    """Runs a command on a copy of the study, in which something happens before one of its looks. Returns
    its exit code, how many looks there were, and what it said."""
    for module in (analysis.exchange.verify, analysis.load.study, analysis.load.predictions):
        monkeypatch.setattr(module, "READERS", 1)  # their order is the same each time
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    number = 0

    def run(command, happens=None, at=None):
        nonlocal number
        number += 1
        study = tmp_path / f"s{number}"
        shutil.copytree(whole, study)
        with monkeypatch.context() as patch:
            patch.chdir(study)
            act = None if happens is None else lambda seen: happens(study, seen)
            looks = Looks(patch, study / "runs", act, at)
            status = cli.run(command.split())
        said = capsys.readouterr()
        left = [path.name for path in study.glob(".vbstudy-*")]
        assert left == []
        return status, looks.count, said.out + said.err, study

    return run


HAPPENINGS = [
    the_run_goes, all_runs_go, the_file_goes, the_file_is_cut_off, the_file_grows, a_run_comes_half_copied
]  # fmt: skip


def sampled(happens, looks):
    return range(1 + HAPPENINGS.index(happens) % EVERY, looks + 1, EVERY)


@pytest.mark.parametrize("happens", HAPPENINGS)
def test_verify_of_a_study_that_changes_meanwhile_ends_in_a_documented_way(watched, happens):
    _, looks, _, _ = watched("verify")
    assert looks > 20
    for at in sampled(happens, looks):
        status, _, said, _ = watched("verify", happens, at)
        assert status in (0, 2, 6), (at, said)


@pytest.mark.parametrize("happens", HAPPENINGS)
def test_an_archive_is_of_the_study_as_it_was_or_is_none(watched, happens):
    _, looks, _, _ = watched("export x.zip")
    for at in sampled(happens, looks):
        status, _, said, study = watched("export x.zip", happens, at)
        assert status in (0, 2, 6), (at, said)
        assert (study / "x.zip").exists() == (status == 0)
        if status == 0:
            assert cli.run(["verify", str(study / "x.zip")]) == 0, at


@pytest.mark.parametrize("happens", HAPPENINGS)
def test_analyze_of_a_study_that_changes_meanwhile_names_what_it_left_out(watched, monkeypatch, happens):
    """Its report is not drawn, which takes long and reads nothing."""
    written = Mock(return_value=Mock(page=Path("index.html")))
    monkeypatch.setattr("analysis.report.report.write_report", written)
    _, looks, _, _ = watched("analyze --table verdicts")
    for at in sampled(happens, looks):
        written.reset_mock()
        status, _, said, study = watched("analyze --table verdicts", happens, at)
        assert status in (0, 2, 6), (at, said)
        if status == 0:
            (found, _), _ = written.call_args
            told = {
                *found.study.runs.run_id,
                *(each.path.removeprefix("runs/") for each in found.study.problems),
            }
            there = {path.relative_to(study / "runs").as_posix() for path in study.glob("runs/*/*/*/0001")}
            assert there <= told, at
