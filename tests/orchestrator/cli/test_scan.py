"""Whole commands, from arguments to exit code and output."""

from __future__ import annotations

import contextlib
import errno
import json
import shlex
import subprocess
import sys

import pytest

from orchestrator.cli.main import run

BENCHMARK = "import torch\ntorch.backends.cudnn.benchmark = True\n"


@pytest.fixture
def folder(tmp_path):
    """Two projects: one states all, one nothing."""
    good, bad = tmp_path / "projects" / "good", tmp_path / "projects" / "bad"
    for project in (good, bad):
        project.mkdir(parents=True)
    (good / "main.py").write_text("print('hello')\n")
    (good / "requirements.txt").write_text("torch==2.1.0\n")
    (good / "README.md").write_text("Runs on a V100 with 16 GB of memory.\n")
    (bad / "main.py").write_text(BENCHMARK)
    return tmp_path / "projects"


def test_each_folder_is_a_project(folder, capsys):
    assert run(["scan", "--each", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "What 2 scanned projects state" in out
    assert "50.0%" in out
    assert "90.6%" in out
    assert "bad/main.py:2:1 VB504 warning" in out


@pytest.mark.parametrize("form", ["table", "json"])
def test_links_among_the_projects_are_reported(folder, tmp_path, capsys, form):
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    assert run(["scan", "--each", "--format", form, str(folder)]) == 0
    assert f"{folder / 'linked'}: is a link; not followed" in capsys.readouterr().err


def test_a_folder_is_one_project_unless_told_otherwise(folder, capsys):
    assert run(["--json", "scan", str(folder)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [project["path"] for project in data["projects"]] == [str(folder)]
    assert data["projects"][0]["findings"][0]["place"]["path"] == "bad/main.py"


def test_check_ends_with_1_when_something_was_found_and_with_0_when_not(folder, capsys):
    assert run(["scan", "--check", str(folder / "bad")]) == 1
    assert "1 finding of level error or warning" in capsys.readouterr().err
    assert run(["scan", "--check", str(folder / "good")]) == 0
    assert run(["scan", "--check", "--ignore", "VB5", str(folder / "bad")]) == 0
    assert run(["scan", "--check", "--select", "vb1,vb4", str(folder / "bad")]) == 0
    assert run(["scan", str(folder / "bad")]) == 0, "without --check, findings are no failure"


def test_notes_alone_do_not_fail_a_check(tmp_path):
    (tmp_path / "net.py").write_text("from torch.nn import Conv2d\nlayer = Conv2d(1, 2, 3)\n")
    assert run(["scan", "--check", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: does not exist"),
        ([""], "(empty): does not exist"),
        (["https://nowhere.invalid/x.git"], "https://nowhere.invalid/x.git: is an address; clone it"),
        (["git@nowhere.invalid:me/x.git"], "is an address; clone it"),
        (["/dev/zero"], "/dev/zero: is no regular file"),
        (["--select", "VB9", "."], "there is no rule VB9"),
        (["--each", "README.md"], "is not a folder"),
        (["--output", "no/such/file", "good"], "--output no/such/file: No such file"),
        (["--output", ".", "good"], "--output .: Is a directory"),
        (["--exclude", "/tmp/x", "."], "--exclude: /tmp/x matches no path in the project; write one like"),
        (["--exclude", "", "."], "--exclude: (empty) matches no path"),
        (["--exclude", "../x", "."], "../x matches no path"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_end_with_2_and_say_what(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "README.md").touch()
    assert run(["scan", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_folders_is_no_folder_of_projects(folder, capsys):
    assert run(["scan", "--each", str(folder / "good")]) == 2
    assert "leave --each out" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", "csv", "sarif", "table"])
def test_every_format_goes_to_stdout_or_a_file(folder, tmp_path, capsys, form):
    assert run(["scan", "--format", form, str(folder)]) == 0
    printed = capsys.readouterr().out
    target = tmp_path / "out"
    assert run(["scan", "--format", form, "--output", str(target), str(folder)]) == 0
    assert capsys.readouterr().out == ""
    assert "VB504" in printed
    assert "VB504" in target.read_text()
    if form != "table":
        assert target.read_text() == printed


@pytest.mark.parametrize("form", ["json", "table"])
def test_an_output_on_a_full_disk_is_named(folder, capsys, monkeypatch, form):
    assert run(["scan", "--format", form, "--output", "/dev/full", str(folder)]) == 6
    assert capsys.readouterr().err == "vbstudy: /dev/full: cannot be written: No space left on device\n"
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:  # closing it fails too
        monkeypatch.setattr("sys.stdout", full)
        assert run(["scan", "--format", form, str(folder)]) == 6
        assert capsys.readouterr().err == "vbstudy: stdout: cannot be written: No space left on device\n"


@pytest.mark.parametrize("former", [None, "the baseline"])
def test_an_output_that_cannot_be_written_whole_leaves_what_was_there(folder, tmp_path, monkeypatch, former):
    target = tmp_path / "scan.json"
    if former is not None:
        target.write_text(former)

    def full(_found):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("analysis.scan.kept.encode", full)
    before = sorted(tmp_path.iterdir())
    assert run(["scan", "--format", "json", "--output", str(target), str(folder)]) == 6
    assert sorted(tmp_path.iterdir()) == before
    assert former is None or target.read_text() == former


def test_an_output_keeps_its_mode_and_the_link_that_leads_to_it(folder, tmp_path):
    target, link = tmp_path / "scan.json", tmp_path / "link.json"
    target.touch(0o600)
    link.symlink_to(target)
    assert run(["scan", "--format", "json", "--output", str(link), str(folder)]) == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["projects"]
    assert target.stat().st_mode & 0o777 == 0o600


def test_an_output_that_is_the_stdout_of_a_file_is_written_into_that(folder, tmp_path):
    words = [
        sys.executable,
        "-m",
        "vbstudy",
        "scan",
        "--format",
        "json",
        "--output",
        "/dev/stdout",
        str(folder),
    ]
    with (tmp_path / "out").open("w+") as out:
        subprocess.run(words, stdout=out, check=True)
        out.seek(0)
        assert json.loads(out.read())["projects"]


def test_one_half_only(folder, capsys):
    assert run(["scan", "--only", "requirements", str(folder)]) == 0
    assert "VB504" not in capsys.readouterr().out
    assert run(["scan", "--only", "requirements", "--format", "csv", str(folder)]) == 0
    assert ",2 files,\n" in capsys.readouterr().out, "lines are not counted"
    assert run(["scan", "--only", "lint", str(folder)]) == 0
    assert "V100" not in capsys.readouterr().out
    (folder / "good" / "requirements.txt").write_text("torch==2.4\n")
    assert run(["scan", "--only", "lint", "--format", "csv", str(folder)]) == 0
    assert "software" not in capsys.readouterr().out


def test_what_cannot_be_read_is_a_note_and_no_traceback(folder, capsys):
    (folder / "bad" / "two.py").write_text("print 'x'\n")
    (folder / "bad" / "x.ipynb").write_text("{")
    (folder / "bad" / "loop").symlink_to(folder)
    assert run(["scan", str(folder / "bad")]) == 0
    err = capsys.readouterr().err
    assert "two.py: line 1: is Python 2" in err
    assert "x.ipynb: is not JSON" in err
    assert "loop: is a link to a folder; not followed" in err


def test_no_python_at_all_is_said(tmp_path, capsys):
    assert run(["scan", str(tmp_path)]) == 0
    assert "has no Python" in capsys.readouterr().err


@pytest.mark.needs("studies")
def test_a_kept_scan_decides_f6(folder, tmp_path, capsys):
    from tests.analysis.conftest import Fabricator

    study = tmp_path / "study"
    fabricated = Fabricator(study)
    for cpus in (1, 2):
        fabricated.run(cpus)
    assert run(["-C", str(study), "scan", "--each", "--keep", str(folder)]) == 0
    assert "decides F6 from it" in capsys.readouterr().err.replace("\n", " ")
    assert run(["-C", str(study), "--json", "analyze"]) == 0
    data = json.loads(capsys.readouterr().out)
    f6 = next(f for f in data["findings"] if f["id"] == "F6")
    assert f6["verdict"] == "inconclusive"
    assert "50.0%" in f6["why"]
    assert len(data["tables"]["requirements"]) == 8
    (study / "scan.json").write_text("{")
    assert run(["-C", str(study), "--json", "analyze"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "needs scanned projects" in next(f for f in data["findings"] if f["id"] == "F6")["why"]


def test_excluded_files_are_not_scanned(folder, capsys):
    assert run(["--json", "scan", "--exclude", "bad/*", "--exclude", "other", str(folder)]) == 0
    (project,) = json.loads(capsys.readouterr().out)["projects"]
    assert (project["files"], project["findings"]) == (1, [])
    for pattern in ("bad/", "./bad", "./bad//main.py", "**/bad", "bad/**", "**/bad/**/main.py"):
        assert run(["scan", "--check", "--exclude", pattern, str(folder)]) == 0, pattern


def test_a_project_sets_its_rules_and_what_is_left_out(folder, capsys):
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nignore = ['VB504']\n")
    assert run(["scan", "--check", str(folder)]) == 0
    assert run(["scan", "--check", "--ignore", "VB1", str(folder)]) == 1, "options go before it"
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nselect = ['vb1']\n")
    assert run(["scan", "--check", str(folder)]) == 0, "in any case, as in options"
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nexclude = ['./bad/']\nselect = ['VB5']\n")
    assert run(["scan", "--check", str(folder)]) == 0
    assert run(["scan", "--check", "--each", str(folder)]) == 1, "of many projects none is followed"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("ignore = ['VB5']", 0),
        ("exclude = ['bad/src']", 0),
        ("exclude = ['bad/src/main.py']", 0),
        ("exclude = ['src']", 1),
        ("exclude = ['bad']", 1),  # what is named is scanned
        ("per-file-ignores = { bad = ['VB5'] }", 0),
        ("per-file-ignores = { src = ['VB5'] }", 1),
    ],
)
def test_the_nearest_table_above_counts_from_its_folder(folder, monkeypatch, text, status):
    (folder / "bad" / "src").mkdir()
    (folder / "bad" / "main.py").rename(folder / "bad" / "src" / "main.py")
    (folder / "bad" / "pyproject.toml").write_text("[tool.other]\n")
    (folder / "pyproject.toml").write_text(f"[tool.vbstudy.scan]\n{text}\n")
    monkeypatch.chdir(folder / "good")
    assert run(["scan", "--check", "../bad"]) == status
    monkeypatch.chdir(folder / "bad")
    assert run(["scan", "--check", "."]) == status


def test_rules_are_added_to_the_usual_ones(folder, capsys):
    loader = "from torch.utils.data import DataLoader\ntest_loader = DataLoader(test_set, shuffle=True)\n"
    (folder / "bad" / "main.py").write_text(BENCHMARK + loader)

    def rules(*options: str) -> set[str]:
        assert run(["--json", "scan", *options, str(folder)]) == 0
        (project,) = json.loads(capsys.readouterr().out)["projects"]
        return {found["rule"] for found in project["findings"]}

    assert rules() == {"VB504"}
    assert rules("--extend-select", "vb602") == {"VB504", "VB602"}
    assert rules("--extend-select", "VB6", "--ignore", "VB602") == {"VB504"}
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nextend-select = ['VB602']\n")
    assert rules() == {"VB504", "VB602"}
    assert rules("--select", "VB1") == {"VB602"}
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nignore = ['VB504', 'VB602']\n")
    assert rules("--select", "VB504") == {"VB504"}, "options go before the table"
    assert rules("--extend-select", "VB602") == {"VB602"}


def test_where_no_rule_is_left_nothing_is_called_clean(folder, capsys):
    for options in (["--select", "VB301", "--ignore", "VB3"], ["--ignore", "VB"]):
        assert run(["scan", "--check", *options, str(folder)]) == 2
        assert "leave no rule" in capsys.readouterr().err
        assert run(["scan", "--only", "requirements", *options, str(folder)]) == 0


def test_a_file_has_the_settings_of_its_folder_too(folder):
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nexclude = ['bad']\n")
    assert run(["scan", "--check", str(folder / "bad" / "main.py")]) == 1, "it was named"
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan.per-file-ignores]\n'bad/*' = ['VB5']\n")
    assert run(["scan", "--check", str(folder / "bad" / "main.py")]) == 0


def test_a_table_above_the_repository_is_not_read(folder):
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nignore = ['VB5']\n")
    (folder / "bad" / ".git").mkdir()
    assert run(["scan", "--check", str(folder / "bad")]) == 1
    (folder / "bad" / "pyproject.toml").write_text("[tool.vbstudy.scan]\nselect = ['VB9']\n")
    assert run(["scan", str(folder / "bad")]) == 2


def test_patterns_of_options_begin_at_the_path_whoever_sets_others(folder):
    (folder / "pyproject.toml").write_text("[tool.vbstudy.scan]\nexclude = ['x']\n")
    assert run(["scan", "--check", "--exclude", "main.py", str(folder / "bad")]) == 0
    assert run(["scan", "--check", "--exclude", "bad/main.py", str(folder / "bad")]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slect = []", "has no key slect; there are select, extend-select, ignore, exclude,"),
        ("select = 'VB1'", "select is no list of texts"),
        ("ignore = [3]", "ignore is no list of texts"),
        ("select = 'VB1'", ": 'VB1'"),
        ("ignore = ['VB9']", "pyproject.toml: [tool.vbstudy.scan] ignore: there is no rule VB9"),
        ("per-file-ignores = ['VB1']", "per-file-ignores is no table of patterns, such as"),
        ("per-file-ignores = {'bad/*' = 'VB1'}", "per-file-ignores \"bad/*\" is no list of texts: 'VB1'"),
        ("per-file-ignores = {bad = ['VB9']}", 'per-file-ignores "bad": there is no rule VB9'),
        ("exclude = ['old', '/old']", "exclude: /old matches no path in the project"),
        ("per-file-ignores = {'../x' = ['VB5']}", "per-file-ignores: ../x matches no path in the project"),
    ],
)
def test_settings_that_cannot_be_used_end_with_2(folder, capsys, text, message):
    (folder / "pyproject.toml").write_text(f"[tool.vbstudy.scan]\n{text}\n")
    assert run(["scan", str(folder)]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("pattern", "code", "status"),
    [
        ("bad/*", "VB504", 0),
        ("bad", "VB5", 0),
        ("bad/", "VB5", 0),
        ("./bad", "VB5", 0),
        ("**/bad", "VB5", 0),
        ("bad/*", " vb5", 0),
        ("bad/*", "", 1),
        ("*.py", "VB5", 0),
        ("bad/*", "VB1", 1),
        ("good/*", "VB504", 1),
        ("ba", "VB5", 1),
    ],
)
def test_rules_are_silent_in_the_files_that_a_project_names(folder, pattern, code, status):
    text = f'[tool.vbstudy.scan]\nper-file-ignores = {{ "{pattern}" = ["VB2", "{code}"] }}\n'
    (folder / "pyproject.toml").write_text(text)
    assert run(["scan", "--check", str(folder)]) == status


@pytest.mark.parametrize(
    "text", ["[tool.vbstudy.scan]\nignore = [", "[tool.vbstudy.scan]\nignore = ['VB5']\nx"]
)
def test_a_table_in_a_broken_pyproject_ends_with_2(folder, capsys, text):
    (folder / "pyproject.toml").write_text(text)
    assert run(["scan", str(folder)]) == 2
    assert "pyproject.toml: is not TOML, so [tool.vbstudy.scan] is not known" in capsys.readouterr().err


def test_a_pyproject_may_begin_with_a_byte_order_mark(folder):
    (folder / "pyproject.toml").write_text('\ufeff[tool.vbstudy.scan]\nignore = ["VB5"]\n')
    assert run(["scan", "--check", str(folder)]) == 0


def test_quiet_still_tells_what_was_not_linted(folder, capsys):
    (folder / "good" / "broken.py").write_text("def (:\n")
    assert run(["-q", "scan", str(folder)]) == 0
    assert "not linted" in capsys.readouterr().err


def test_a_comment_in_a_file_that_is_silent_anyway_is_no_leftover(folder, capsys):
    (folder / "bad" / "main.py").write_text(BENCHMARK.replace("True", "True  # vbstudy: ignore[VB504]"))
    (folder / "pyproject.toml").write_text('[tool.vbstudy.scan.per-file-ignores]\nbad = ["VB504"]\n')
    assert run(["scan", "--check", str(folder)]) == 0
    assert "silences nothing" not in capsys.readouterr().err
    (folder / "bad" / "main.py").write_text(BENCHMARK + "x = 1  # vbstudy: ignore[VB504]\n")
    assert run(["scan", "--check", str(folder)]) == 0
    assert "silences nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["tool = 3", "[tool.vbstudy]\nscan = 1", "[broken", "\x00", "x = " + "[" * 20_000]
)
def test_a_pyproject_without_a_table_sets_nothing(folder, text):
    (folder / "pyproject.toml").write_text(text)
    assert run(["scan", "--check", str(folder)]) == 1


def test_only_findings_that_a_baseline_does_not_have_fail(folder, capsys):
    baseline = folder / "known.json"
    assert run(["scan", "--format", "json", "--output", str(baseline), str(folder)]) == 0
    (folder / "bad" / "main.py").write_text(f"# a line more\n{BENCHMARK}")
    assert run(["scan", "--check", "--baseline", str(baseline), str(folder)]) == 0
    (folder / "bad" / "main.py").write_text(BENCHMARK + "torch.seed()\n")
    assert run(["scan", "--check", "--baseline", str(baseline), str(folder)]) == 1
    assert "1 finding of level error or warning" in capsys.readouterr().err


def test_a_baseline_that_is_none_ends_with_2(folder, capsys):
    (folder / "known.json").write_text("{")
    assert run(["scan", "--baseline", str(folder / "known.json"), str(folder)]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--each"]])
def test_the_command_that_a_missing_baseline_names_writes_it(folder, monkeypatch, capsys, options):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "more of them").mkdir()
    (folder.parent / "more of them" / "one").mkdir()
    scanned = ["scan", *options, "--check", "--baseline", "known.json", "projects", "more of them"]
    assert run(scanned) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    command = said.partition("does not exist; vbstudy ")[2].partition(" writes it")[0]
    assert run(shlex.split(command)) == 0
    assert run(scanned) == 0, "all findings are known"


def test_a_rule_is_explained_without_a_scan(capsys):
    assert run(["scan", "--explain", "vb301"]) == 0
    out = capsys.readouterr().out
    assert "VB301 (warning): files come in the order of the file system" in out
    assert "sorted(os.listdir(" in out
    assert run(["scan", "--explain", "VB9"]) == 2
    assert "--explain: there is no rule VB9" in capsys.readouterr().err


def test_a_fix_is_shown_and_written_only_when_asked(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    text = "import os, torch\nx = [load(n) for n in os.listdir('d')]\nf(x)\n"
    (folder / "bad" / "main.py").write_text(text)
    assert run(["scan", "--fix", "diff", "bad"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (
        "--- a/bad/main.py\n+++ b/bad/main.py\n@@ -1,3 +1,3 @@\n import os, torch\n"
        "-x = [load(n) for n in os.listdir('d')]\n+x = [load(n) for n in sorted(os.listdir('d'))]\n f(x)\n"
    )
    assert "1 listing in 1 file to sort; git apply -p1 or --fix write changes them" in shown.err
    assert (folder / "bad" / "main.py").read_text() == text
    assert run(["scan", "--fix", "write", "bad"]) == 0
    written = capsys.readouterr()
    assert written.out == shown.out
    assert "1 listing in 1 file sorted" in written.err
    assert "sorted(" in (folder / "bad" / "main.py").read_text()
    assert run(["scan", "--fix", "write", "bad"]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err.strip()) == ("", "0 listings in 0 files sorted")


@pytest.mark.parametrize("option", ["--check", "--keep", "--format=json", "--output=x", "--baseline=x"])
def test_a_fix_prints_nothing_but_a_diff(folder, capsys, option):
    assert run(["scan", "--fix", "diff", option, str(folder)]) == 2
    assert "--fix: prints a diff only" in capsys.readouterr().err


def test_a_rule_that_is_ignored_is_not_fixed(folder, capsys):
    (folder / "bad" / "main.py").write_text("import os, torch\nf(os.listdir('d'))\n")
    assert run(["scan", "--fix", "write", "--ignore", "VB3", str(folder)]) == 0
    (folder / "pyproject.toml").write_text('[tool.vbstudy.scan]\nper-file-ignores = { bad = ["VB3"] }\n')
    assert run(["scan", "--fix", "write", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    (folder / "pyproject.toml").unlink()
    assert run(["scan", "--fix", "write", str(folder)]) == 0
    assert "+f(sorted(os.listdir('d')))" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_one_line(folder, capsys, monkeypatch):
    from analysis.scan.fix import Fix

    def refuse(_self):
        raise PermissionError(13, "Permission denied")

    (folder / "bad" / "main.py").write_text("import os, torch\nf(os.listdir('d'))\n")
    monkeypatch.setattr(Fix, "write", refuse)
    assert run(["scan", "--fix", "write", str(folder)]) == 6
    assert "main.py: cannot be written: Permission denied" in capsys.readouterr().err.replace("\n", " ")
