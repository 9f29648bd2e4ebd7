"""Whole commands, from arguments to exit code and output."""

from __future__ import annotations

import json

import pytest

from guest.records.run import WEIGHTS
from orchestrator.cli.main import run
from tests.analysis.conftest import Fabricator
from tests.analysis.provenance.test_overrides import as_project

STUDY = """\
name = "x"
cpus = [1, 2]
repetitions = 1
variants = ["fixed-seed"]
[[workload]]
name = "lenet5"
model = "lenet5"
dataset = "digits"
"""


@pytest.fixture
def folder(tmp_path):
    """A study of two planned runs that has both."""
    study = Fabricator(tmp_path / "s")
    for cpus in (1, 2):
        study.run(cpus)
    (tmp_path / "s" / "study.toml").write_text(STUDY)
    return tmp_path / "s"


def test_a_whole_study_verifies(folder, capsys):
    assert run(["-C", str(folder), "verify"]) == 0
    assert "2 runs checked byte for byte: 0 damaged; 0 of 2 planned runs missing" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.zip", "mlruns"])
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("study.toml", "Not a directory"),
        ("study.toml/deeper", "Not a directory"),
        ("/proc", "No such file or directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_an_export_to_an_impossible_place_names_it_and_the_reason(
    folder, monkeypatch, capsys, place, reason, name
):
    monkeypatch.chdir(folder)
    assert run(["export", f"{place}/{name}"]) == 6
    err = capsys.readouterr().err
    assert f"{place}/{name}: cannot be written: {reason}; " in err
    assert ".vbstudy-" not in err


def test_one_run_is_no_plural(tmp_path, capsys):
    Fabricator(tmp_path / "s").run(1)
    assert run(["-C", str(tmp_path / "s"), "export", str(tmp_path / "x.zip")]) == 0
    assert "wrote 1 run to " in capsys.readouterr().out


def test_without_a_study_nothing_is_checked_before_runs_are_repeated(tmp_path, capsys):
    (tmp_path / "r.csv").write_text("threads,accuracy\n1,0.5\n2,0.6\n")
    (tmp_path / "s").mkdir()
    study = ["-C", str(tmp_path / "s")]
    assert run([*study, "import", str(tmp_path / "r.csv")]) == 0
    capsys.readouterr()
    assert run([*study, "verify"]) == 0
    assert ": 0 runs, 1 imported file checked byte for byte" in capsys.readouterr().out
    assert run([*study, "verify", "--rerun", "1"]) == 2
    found = capsys.readouterr()
    assert "there is no study here" in found.err
    assert found.out == ""


def test_missing_runs_end_with_1(folder, capsys):
    (folder / "study.toml").write_text(STUDY.replace("repetitions = 1", "repetitions = 2"))
    assert run(["verify", str(folder)]) == 1
    found = capsys.readouterr()
    assert "missing: lenet5/fixed-seed/cpus-1/0002" in found.out
    assert "2 planned runs are missing" in found.err
    assert found.err.endswith(f"next: vbstudy -C {folder} report\n"), "study.toml was edited"


def test_no_study_is_complete_whose_study_file_has_an_error(folder, capsys):
    (folder / "study.toml").write_text(STUDY.replace("repetitions = 1", "repetitions = 0"))
    assert run(["verify", str(folder)]) == 2
    assert f"{folder}/study.toml:3: repetitions = 0: " in capsys.readouterr().err


def test_of_an_archive_the_study_file_may_have_an_error(folder, tmp_path, capsys):
    (folder / "study.toml").write_text(STUDY.replace("repetitions = 1", "repetitions = 0"))
    archive = tmp_path / "x.zip"
    assert run(["-C", str(folder), "export", str(archive)]) == 0
    assert run(["verify", str(archive)]) == 0
    found = capsys.readouterr()
    assert "2 runs checked byte for byte: 0 damaged\n" in found.out
    note = f"note: {archive}: was not checked for missing runs: study.toml:3: repetitions = 0: "
    assert note in found.err


def test_damage_ends_with_6_and_is_not_exported(folder, tmp_path, capsys):
    weights = folder / "runs/lenet5/fixed-seed/cpus-1/0001" / WEIGHTS
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert run(["--json", "verify", str(folder)]) == 6
    found = capsys.readouterr()
    assert "weights.safetensors does not match" in json.loads(found.out)["damaged"][0]["what"]
    assert "1 damaged" in found.err
    assert run(["-C", str(folder), "export", str(tmp_path / "x.zip")]) == 6
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize("content", [b"cpus = [\n", b"\xff\xfe", b"a = " + 2000 * b"["])
def test_a_study_file_that_is_not_toml_is_a_wrong_study_file_to_export(folder, tmp_path, capsys, content):
    (folder / "study.toml").write_bytes(content)
    assert run(["-C", str(folder), "export", str(tmp_path / "x.zip")]) == 2
    assert f"{folder}/study.toml: is not TOML: " in capsys.readouterr().err
    assert not (tmp_path / "x.zip").exists()


def test_an_archive_is_exported_verified_imported_and_verified(folder, tmp_path, capsys):
    archive = tmp_path / "x.zip"
    assert run(["-C", str(folder), "export", str(archive)]) == 0
    assert run(["verify", str(archive)]) == 0
    assert run(["-C", str(tmp_path), "import", str(archive), "--name", "theirs"]) == 0
    assert run(["verify", str(tmp_path / "theirs")]) == 0
    assert run(["-C", str(tmp_path), "import", str(archive), "--name", "theirs"]) == 2
    assert "exists already" in capsys.readouterr().err
    archive.write_bytes(archive.read_bytes()[:-30])
    assert run(["verify", str(archive)]) == 6


@pytest.mark.parametrize("option", [[], ["--without-projects"]])
def test_the_export_of_a_project_names_what_may_be_private(folder, tmp_path, capsys, option):
    as_project(Fabricator(folder).run(2, 2, workload="mine"))
    assert run(["-C", str(folder), "export", *option, str(tmp_path / "x.zip")]) == 0
    err = capsys.readouterr().err
    assert (
        "note: of mine the archive has the command with all arguments, the path or URL of the project, "
        in err
    )
    assert "what each run printed (log.txt)" in err
    assert ("and its files (--without-projects leaves them out)" in err) is not bool(option)


@pytest.mark.parametrize("name", ["incoming", "runs", "guests", "failed", "report", "imported"])
def test_an_archive_is_not_unpacked_where_a_study_keeps_its_own(folder, tmp_path, capsys, name):
    archive = tmp_path / f"{name}.zip"
    assert run(["-C", str(folder), "export", str(archive)]) == 0
    assert run(["-C", str(tmp_path), "import", str(archive)]) == 2
    assert f"{name}: a study keeps files of its own under this name" in capsys.readouterr().err
    assert not (tmp_path / name).exists()
    assert run(["-C", str(tmp_path), "import", str(archive), "--name", "theirs"]) == 0


def test_the_command_that_follows_an_import_can_be_copied_from_any_folder(folder, tmp_path, capsys):
    archive, mine = tmp_path / "x.zip", tmp_path / "my studies"
    mine.mkdir()
    assert run(["-C", str(folder), "export", str(archive)]) == 0
    assert run(["-C", str(mine), "import", str(archive)]) == 0
    assert f"next: vbstudy -C '{mine}/x' analyze" in capsys.readouterr().out


def test_of_an_archive_without_runs_nothing_follows(tmp_path, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "study.toml").write_text(STUDY)
    (tmp_path / "r.csv").write_text("threads,accuracy\n1,0.5\n2,0.7\n")
    assert run(["-C", str(mine), "import", str(tmp_path / "r.csv")]) == 0
    assert run(["-C", str(mine), "export", str(tmp_path / "x.zip")]) == 0
    capsys.readouterr()
    assert run(["-C", str(tmp_path), "import", str(tmp_path / "x.zip")]) == 0
    assert capsys.readouterr().out == f"unpacked into {tmp_path}/x\n"


def test_results_of_another_program_are_compared(tmp_path, capsys):
    (tmp_path / "r.csv").write_text("threads,accuracy\n1,0.5\n1,0.6\n2,0.7\n2,0.8\n")
    assert run(["-C", str(tmp_path), "import", str(tmp_path / "r.csv")]) == 0
    out = capsys.readouterr().out
    assert "Imported runs" in out
    assert "Brunner-Munzel" in out
    assert "4 imported runs (results)" in out
    assert run(["-C", str(tmp_path), "verify"]) == 0
    assert run(["-C", str(tmp_path), "--json", "import", str(tmp_path / "r.csv"), "--name", "again"]) == 0
    assert json.loads(capsys.readouterr().out.split("damaged\n")[-1])["runs"] == 4


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["verify", "nowhere"], "neither a folder nor an archive"),
        (["verify"], "there is no study in it"),
        (["export", "x.tar"], "the format is not known"),
        (["export", "x.zip"], "there is no study here; `vbstudy init` writes one"),
        (["import", "."], "there is no result in it"),
        (["import", ".", "--name", "../x"], "--name ../x"),
        (["import", ".", "--by", "{thread}.npy"], "{thread} is none of {workload}"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(tmp_path, monkeypatch, capsys, arguments, what):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert what in capsys.readouterr().err
