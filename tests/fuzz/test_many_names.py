"""100,000 names in a folder: commands end, and say in a few lines what they found."""

import os
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from tests.analysis.conftest import Fabricator

pytestmark = pytest.mark.needs("fuzz")  # a minute

NAMES = 100_000


def files(folder: Path, ending: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NAMES):
        os.close(os.open(f"{folder}/n{number}{ending}", os.O_CREAT | os.O_WRONLY))


def folders(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NAMES):
        os.mkdir(f"{folder}/n{number}")


@pytest.fixture
def vbstudy(tmp_path, monkeypatch, capsys):
    """Runs a command in a study; returns exit code and the lines of what it said."""
    Fabricator(tmp_path).run(1)
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> tuple[int, list[str]]:
        status = cli.run(command.split())
        said = capsys.readouterr()
        return status, (said.out + said.err).splitlines()

    return run


def test_files_in_a_study_s_folder_are_nobody_s_concern(vbstudy):
    files(Path(), ".part")
    for command in ("verify", "export x.zip"):
        assert vbstudy(command)[0] == 0


@pytest.mark.parametrize(
    ("make", "place", "why"),
    [
        (files, "runs", "belongs to no run"),
        (folders, "runs/lenet5/fixed-seed/cpus-1", "run.json is missing"),
    ],
)
def test_what_is_among_runs_is_counted_and_the_first_are_named(vbstudy, make, place, why):
    make(Path(place))
    status, lines = vbstudy("verify")
    assert status == 6
    assert len(lines) < 30
    assert f"{NAMES} damaged, the first: {place}/n0: {why}" in lines[-1]


@pytest.mark.parametrize(
    ("ending", "said"), [(".json", "not a history"), (".txt", "there is no result in it")]
)
def test_a_source_of_an_import_is_refused_in_one_line(vbstudy, ending, said):
    files(Path("source/threads-4"), ending)
    status, lines = vbstudy("import source")
    assert (status, len(lines)) == (2, 1)
    assert said in lines[0]


def test_a_project_is_scanned(vbstudy):
    files(Path("project"))
    assert vbstudy("scan project")[0] == 0
