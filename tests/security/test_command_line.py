"""What is typed, and the files that a command finds in a study's folder: one line and the documented exit
code for whatever they are, never a traceback and no waiting."""

import errno
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.cli import study as study_commands
from tests.analysis.conftest import Fabricator

DIGITS, LETTERS = "1" * 5000, "a" * 300
STUDY = '[[workload]]\nmodel = "mlp"\ndataset = "digits"\n'


def a_pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def a_folder(path):
    path.mkdir()


def text(content):
    return lambda path: path.write_text(content)


@pytest.fixture
def vbstudy(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder; returns exit code and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        status = cli.run(list(arguments))
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["provision", "--cpus", DIGITS], "is not a whole number; write for example 1,2,4,8"),
        (["-C", LETTERS, "status"], "is not a folder"),
        (["logs", f"cpus-{DIGITS}"], "there are no guests yet"),
    ],
)
def test_arguments_of_any_length_are_told_in_one_line(vbstudy, arguments, told):
    status, err = vbstudy(*arguments)
    assert (status, told in err) == (2, True)
    assert max(map(len, err.splitlines())) < 500


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (text(f"seed = {DIGITS}"), "is not TOML"),
        (text("a = " + "[" * 100_000), "is nested too deep"),
        (text(f"repetitions = 100000000\n{STUDY}"), "a study has at most 200000"),
        (a_pipe, "is not a plain file"),
        (endless, "is not a plain file"),
        (a_folder, "is a folder"),
        (text("#" * (1 << 21)), "is larger than"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not UTF-8 text"),
    ],
)
def test_a_study_file_of_another_kind_is_told(vbstudy, make, told):
    make(Path("study.toml"))
    status, err = vbstudy("plan")
    assert status == 2
    assert told in err


@pytest.mark.parametrize(
    "make",
    [text("[" * 100_000), text('{"version": ' + DIGITS + "}"), text("3"), a_pipe, endless, a_folder],
)
def test_a_damaged_inventory_is_told_with_what_writes_it_again(vbstudy, make):
    Path("study.toml").write_text(STUDY)
    make(Path("guests.json"))
    for command in ("sweep", "status"):
        status, err = vbstudy(command)
        assert status == 6
        assert "guests.json: " in err
        assert "run `vbstudy provision` to write it again" in err


@pytest.mark.parametrize("make", [a_pipe, endless])
def test_a_record_that_is_no_plain_file_is_told(vbstudy, make):
    folder = Path("runs/a/default/cpus-1/0001")
    folder.mkdir(parents=True)
    make(folder / "run.json")
    status, err = vbstudy("verify")
    assert status == 6
    assert "run.json" in err


@pytest.mark.parametrize("make", [a_pipe, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("command", [["import", "x.csv"], ["import", "x.zip"], ["verify", "x.zip"]])
def test_what_is_imported_is_a_plain_file_or_a_folder(vbstudy, make, command):
    make(Path(command[1]))
    status, err = vbstudy(*command)
    assert status in (2, 6)
    assert "plain file" in err or "neither a folder nor an archive" in err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--difference", "1e-300"], 2),
        (["--difference", "nan"], 2),
        (["--sd", "1e308"], 2),
        (["--sd", "inf"], 2),
        (["--sd", "1e99", "--difference", "1e-5"], 0),
        (["--sd", "1e-300"], 0),
        (["--sd", "0"], 2),
    ],
)
def test_a_plan_for_numbers_out_of_all_proportion_is_made_or_refused_at_once(vbstudy, arguments, status):
    Path("study.toml").write_text(STUDY)
    assert vbstudy("plan", *arguments)[0] == status


@pytest.mark.parametrize("command", [["scan", LETTERS], ["replay", LETTERS, "--", "true"]])
def test_a_name_that_is_too_long_for_any_file_is_told(vbstudy, command):
    status, err = vbstudy(*command)
    assert status == 2
    assert LETTERS[:80] in err


@pytest.mark.needs("studies")
@pytest.mark.parametrize("fails", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize(
    "command", [["export", "x.zip"], ["export", "mlruns"], ["import", "r.csv"], ["analyze"], ["report"]]
)
def test_a_disk_that_fails_is_told_with_the_path_and_what_to_do(
    vbstudy, tmp_path, monkeypatch, command, fails
):
    Fabricator(tmp_path).run(1)
    Path("r.csv").write_text("threads,accuracy\n1,0.5\n")

    def fail(*_arguments):
        raise OSError(fails, os.strerror(fails))

    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, fail)
    status, err = vbstudy(*command)
    assert status == 6
    assert {"export": command[-1], "import": "r: "}.get(command[0], "report: ") in err
    assert "and run the command again" in err
    assert not list(tmp_path.glob(".vbstudy-*"))


def test_a_pipe_in_a_project_is_left_out(vbstudy):
    Path("train.py").write_text("print('accuracy 0.5')\n")
    os.mkfifo("pipe")
    status, err = vbstudy("try", "--cpus", "1,2", "--", sys.executable, "train.py")
    assert status == 0, err


def test_a_recording_that_has_no_end_is_not_read(vbstudy):
    status, err = vbstudy("replay", "/dev/zero", "--", "true")
    assert status in (2, 6)
    assert "is not a plain file" in err


@pytest.mark.parametrize("content", [b"# coding: undefined\nx = 1\n", b"# coding: idna\nx = '\xff'\n"])
def test_a_source_in_an_odd_encoding_is_scanned(vbstudy, content):
    Path("a.py").write_bytes(content)
    assert vbstudy("scan", ".")[0] == 0


def test_a_manifest_with_a_number_of_any_length_is_scanned(vbstudy):
    Path("pyproject.toml").write_text(f"a = {DIGITS}\n")
    assert vbstudy("scan", ".")[0] == 0


def test_what_nobody_expected_is_one_line_and_its_traceback_a_file(vbstudy, monkeypatch, tmp_path):
    def fail(*_arguments, **_options):
        raise KeyError("odd")

    monkeypatch.setattr(study_commands.init, "callback", fail)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    status, err = vbstudy("init")
    assert status == 7
    (line,) = err.splitlines()
    assert "this is a defect of vbstudy, please report it: KeyError: 'odd'" in line
    kept = re.search(r"; its traceback is in (\S+)$", line)
    content = Path(kept[1]).read_text()
    assert "Traceback (most recent call last)" in content
    assert 'raise KeyError("odd")' in content
    assert stat.S_IMODE(os.stat(kept[1]).st_mode) == 0o600
