"""The command line as a user meets it: whole outputs, exit codes, and no traceback."""

import csv
import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from guest.records.run import RECORD, SCHEMA_VERSION
from orchestrator.cli import main as cli
from orchestrator.cli.options import Options
from orchestrator.cli.study import PROVIDERS
from orchestrator.errors import StoreError
from orchestrator.guests import doctor, provision
from orchestrator.inventory import host_name
from orchestrator.providers import PROVIDERS as REAL_PROVIDERS
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests.orchestrator.sweep.test_pipeline import STUDY

COMMANDS = {
    "A study": ["init", "plan", "sweep", "status", "watch", "analyze", "report", "trace", "probe", "harden"],
    "Your program": ["try", "exact", "record", "replay", "scan"],
    "Machines": ["doctor", "provision", "worker", "ssh", "logs", "destroy"],
    "Exchange": ["verify", "export", "import"],
}


@pytest.fixture
def vbstudy(tmp_path, capsys):
    """Runs a command in an empty folder; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.run(["-C", str(tmp_path), *arguments])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return status, output.out, output.err

    return run


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_help_groups_the_commands_by_what_they_are_for(vbstudy):
    status, out, _ = vbstudy("--help")
    assert status == 0
    for title, names in COMMANDS.items():
        section = out.split(f"{title}:\n")[1].split("\n\n")[0]
        assert re.findall(r"^  (\w+)", section, re.MULTILINE) == names
    assert "..." not in out.split("A study:")[1], "a sentence is cut"


@pytest.mark.parametrize("command", ["doctor", "sweep", "scan"])
def test_another_system_than_linux_is_told_in_a_line(vbstudy, monkeypatch, command):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(signal, "SIGHUP")  # Windows has none
    status, out, errors = vbstudy(command)
    assert (status, out) == (3, "")
    assert errors.startswith("vbstudy: this is darwin, and vbstudy runs on Linux: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("command", [name for names in COMMANDS.values() for name in names])
def test_every_command_takes_the_global_options(vbstudy, command):
    status, out, _ = vbstudy(command, "--help")
    assert status == 0
    for option in ("-C, --directory", "-q, --quiet", "-v, --verbose", "--json"):
        assert option in out


def test_a_global_option_means_the_same_before_and_after_the_command(study, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir("/")
    for arguments in (
        ["-C", str(study), "--json", "status"],
        ["--json", "status", "-C", str(study)],
        ["-C", str(study), "status", "--json"],
        ["-C", "/no/such/folder", "status", "--json", "-C", str(study)],
    ):
        assert cli.run(arguments) == 0
        assert len(json.loads(capsys.readouterr().out)["sets"]) == 2


def test_quiet_after_the_command_leaves_results_and_errors_alone(vbstudy, study):
    assert vbstudy("provision", "-q", "--cpus", "1") == (
        0,
        f"1 guest ready; next: vbstudy -C {study} sweep\n",
        "",
    )


@pytest.mark.parametrize(
    "arguments", [["-v", "status"], ["status", "-v"], ["-qv", "status"], ["status", "-qv"]]
)
def test_verbose_shows_the_evidence_of_an_error(vbstudy, study, monkeypatch, arguments):
    def broken(*arguments):
        raise StoreError("it broke", evidence="how it broke")

    monkeypatch.setattr("orchestrator.sweep.status.examine", broken)
    assert vbstudy("status") == (6, "", "vbstudy: it broke\n")
    assert vbstudy(*arguments) == (6, "", "vbstudy: it broke\nhow it broke\n")


def test_what_follows_the_two_dashes_belongs_to_the_user(vbstudy, study, tmp_path):
    """-v, -q and --json of the user's program are not vbstudy's."""
    got = tmp_path / "got"
    write = f"import pathlib, sys; pathlib.Path({str(got)!r}).write_text(repr(sys.argv[1:])); sys.exit(7)"
    theirs = ["-v", "-qv", "--json", "-C", "x", "--", "-v"]
    assert vbstudy("provision", "-q", "--cpus", "1")[0] == 0
    recording = str(tmp_path / "r.rec")
    for ours in (["ssh", "cpus-1", "--"], ["ssh", "cpus-1"], ["record", "--output", recording, "--"]):
        assert vbstudy(*ours, sys.executable, "-c", write, *theirs)[0] == 7
        assert got.read_text() == repr(theirs)
        got.unlink()


def test_the_evidence_of_an_error_is_not_shown_for_a_v_of_the_users_program(vbstudy, tmp_path):
    (tmp_path / "r.rec").write_bytes(b"no recording")
    status, _, err = vbstudy("replay", str(tmp_path / "r.rec"), "--", "python", "-v")
    assert status == 6
    assert len(err.splitlines()) == 1


def complete(shell_words: str) -> list[str]:
    """What pressing the tab key after these words of a command line gives in bash."""
    environment = os.environ | {
        "_VBSTUDY_COMPLETE": "bash_complete",
        "COMP_WORDS": shell_words,
        "COMP_CWORD": str(len(shell_words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "vbstudy"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [line.partition("plain,")[2] or line for line in done.stdout.splitlines()]


def test_the_tab_key_completes_commands_and_options():
    environment = os.environ | {"_VBSTUDY_COMPLETE": "bash_source"}
    done = subprocess.run([sys.executable, "-m", "vbstudy"], env=environment, capture_output=True, text=True)
    assert "complete -o nosort -F _vbstudy_completion vbstudy" in done.stdout
    assert complete("vbstudy sw") == ["sweep"]
    assert complete("vbstudy sweep --unt") == ["--until"]
    assert complete("vbstudy status --js") == ["--json"]


@pytest.mark.parametrize(
    "command", ["try --", "exact --", "replay a.rec --", "harden --runs 3 --", "trace --", "trace"]
)
def test_the_tab_key_completes_the_files_of_a_program(command):
    assert complete(f"vbstudy {command} python tr") == ["file,tr"]


@pytest.mark.parametrize("command", ["try", "harden", "trace"])
def test_the_tab_key_behind_dashes_prints_no_error(command):
    assert "--cpus" in complete(f"vbstudy {command} --")
    assert complete(f"vbstudy {command} -- {{}}") == ["file,{}"]


@pytest.mark.parametrize(
    ("command", "kept"), [("harden", True), ("harden -- python t.py", True), ("try -- python t.py", False)]
)
def test_a_command_that_is_stopped_promises_to_continue_only_where_runs_are_kept(
    study, monkeypatch, capsys, command, kept
):
    def stop(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Options, "store", stop)
    assert cli.run(["-C", str(study), *command.split()]) == 130
    assert ("finished runs are kept" in capsys.readouterr().err) == kept


@pytest.mark.parametrize(
    ("command", "heavy"),
    [("--help", "numpy pandas pydantic rich torch"), ("verify", "matplotlib seaborn torch tensorflow")],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(study, command, heavy):
    code = (
        f"import sys; from orchestrator.cli import main; main.run(['-C', {str(study)!r}, '{command}']); "
        f"print([m for m in {heavy.split()} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_providers_of_the_command_line_are_those_there_are():
    assert set(PROVIDERS) == set(REAL_PROVIDERS)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("swep",), 2, "vbstudy: there is no command 'swep'; did you mean 'sweep'?"),
        (("compare",), 2, "there is no command 'compare'; there are init, plan"),
        (("begin",), 2, "there is no command 'begin'; there are init, plan"),
        (("provision", "--cpu", "1"), 2, "Did you mean '--cpus'?"),
        (("provision", "--cpus", "0"), 2, "--cpus 0: 0 is not between 1 and 1024"),
        (("provision", "--cpus", "1,two"), 2, "--cpus 1,two: 'two' is not a whole number"),
        (("provision", "--cpus", "4096"), 2, "4096 is not between 1 and 1024"),
        (("provision", "--provider", "vmware"), 2, "'vmware' is not"),
        (("sweep", "--runs", "0"), 2, "Invalid value for '--runs'"),
        (("sweep", "--max-runs", "0"), 2, "Invalid value for '--max-runs'"),
        (("plan", "--difference", "0"), 2, "Invalid value for '--difference'"),
        (("plan", "--sd", "-1"), 2, "Invalid value for '--sd'"),
        (("plan",), 2, "there is no study here"),
        (("sweep",), 2, "there is no study here; `vbstudy init` writes one"),
        (("status",), 2, "there is no study here"),
        (("analyze",), 2, "there is no study here"),
        (("destroy",), 2, "there is no study here"),
        (("analyze", "--format", "pdf"), 2, "'pdf' is not one of"),
        (("record", "--force", "--output", "/", "--", "true"), 2, "/: is a folder; name a file in it"),
    ],
)
def test_mistakes_are_told_in_a_line_with_what_to_do(vbstudy, tmp_path, arguments, status, message):
    got, out, err = vbstudy(*arguments)
    assert (got, out) == (status, "")
    assert message in err
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == []


def test_harden_without_a_study_first_names_the_default_one_and_its_trainings(vbstudy, tmp_path, monkeypatch):
    def begin(*arguments):
        raise StoreError("enough")

    monkeypatch.setattr("orchestrator.experiments.harden.begin", begin)
    _, _, err = vbstudy("harden", "--tiers", "one-thread", "--cpus", "1,2")
    named = f"harden: there is no study in {tmp_path}: the default study is hardened, 12 trainings at most; "
    assert err.startswith(named)
    (tmp_path / "study.toml").write_text(STUDY)
    assert vbstudy("harden")[2] == "vbstudy: enough\n"


def test_a_folder_that_is_not_there_is_told(capsys):
    assert cli.run(["-C", "/no/such/a folder", "status"]) == 2
    make = "make it: mkdir -p '/no/such/a folder'\n"
    assert f"-C /no/such/a folder: is not a folder; {make}" in capsys.readouterr().err
    assert cli.run(["-C", "/etc/passwd", "status"]) == 2
    assert "-C /etc/passwd: is not a folder\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "behind"),
    [("--rerun", ["--rerun goes after its command: verify"]), ("--no-such-option", [])],
)
def test_an_option_before_its_command_is_named_with_its_commands(capsys, option, behind):
    assert cli.run([option, "verify"]) == 2
    assert capsys.readouterr().err.splitlines()[1:-1] == behind


def test_init_writes_a_study_once_and_never_over_another(vbstudy, tmp_path):
    status, out, _ = vbstudy("init")
    assert (status, out) == (0, f"wrote {tmp_path / 'study.toml'}\n\nnext: vbstudy -C {tmp_path} provision\n")
    written = (tmp_path / "study.toml").read_text()
    assert f'name = "{tmp_path.name[:64]}"' in written
    status, _, err = vbstudy("init")
    assert status == 2
    assert "exists already" in err
    assert vbstudy("init", "--force")[0] == 0


@pytest.mark.parametrize("make", ["empty", "not toml", "folder", "unknown key"])
def test_a_study_file_that_cannot_be_used_is_told_by_every_command(vbstudy, tmp_path, make):
    path = tmp_path / "study.toml"
    if make == "folder":
        path.mkdir()
    else:
        path.write_text({"empty": "", "not toml": "cpus = [", "unknown key": "cpu = [1]"}[make])
    for command in ("provision", "sweep", "status", "analyze", "destroy"):
        status, out, err = vbstudy(command)
        assert (status, out) == (2, ""), command
        assert "study.toml" in err


def test_provision_makes_one_guest_a_count_and_says_what_it_sees(vbstudy, study):
    status, out, err = vbstudy("provision", "--cpus", "1,64")
    assert status == 0
    assert f"2 guests ready; next: vbstudy -C {study} sweep" in out
    assert "cpus changed from [1, 2] to [1, 64]" in err
    assert "guest cpus-1: CPUs asked for 1, seen inside 1\n" in err
    assert "oversubscribed: its times are excluded from comparisons" in err
    assert "cpus = [1, 64]" in (study / "study.toml").read_text()
    inventory = json.loads((study / "guests.json").read_text())
    assert [guest["spec"]["cpus"] for guest in inventory["guests"]] == [1, 64]


def test_provision_again_removes_guests_that_are_no_longer_asked_for(vbstudy, study):
    vbstudy("provision", "--cpus", "1,2")
    vbstudy("provision", "--cpus", "2")
    assert [path.name for path in (study / "guests").iterdir()] == ["cpus-2"]


def test_a_missing_framework_is_a_missing_prerequisite(vbstudy, study):
    bare = study / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    (study / "study.toml").write_text(STUDY + f"\n[provider]\npython = {json.dumps(str(bare))}\n")
    status, _, err = vbstudy("provision")
    assert status == 3
    assert f"`{bare} -m pip install torch numpy safetensors`" in " ".join(err.split())
    assert not (study / "guests.json").exists()


def test_a_provider_that_is_missing_does_not_take_the_place_of_one_that_works(vbstudy, study, monkeypatch):
    before = (study / "study.toml").read_text()
    monkeypatch.setenv("PATH", str(study))
    status, _, err = vbstudy("provision", "--provider", "vagrant")
    assert (status, (study / "study.toml").read_text()) == (3, before)
    assert "provider vagrant needs Vagrant" in err


def test_a_study_file_may_begin_with_a_byte_order_mark(vbstudy, study):
    (study / "study.toml").write_text("\ufeff" + STUDY)
    assert vbstudy("provision", "--cpus", "1")[0] == 0
    assert vbstudy("plan")[0] == 0


def test_sweep_before_provision_says_what_to_do_first(vbstudy, study):
    status, _, err = vbstudy("sweep")
    assert status == 2
    assert f"there are no guests yet; run `vbstudy -C {study} provision` first" in err


def test_a_damaged_inventory_is_told(vbstudy, study):
    (study / "guests.json").write_text('{"version": 1}')
    status, _, err = vbstudy("sweep")
    assert status == 6
    assert f"run `vbstudy -C {study} provision` to write it again" in err
    assert vbstudy("provision", "--cpus", "1")[0] == 0
    (study / "guests.json").write_text("{")
    assert vbstudy("destroy")[0] == 0
    assert not (study / "guests").exists()


def test_storage_that_fails_anywhere_is_told_and_is_no_traceback(vbstudy, study, monkeypatch):
    def broken(*arguments):
        raise OSError(errno.EIO, "Input/output error", "guests/cpus-1")

    monkeypatch.setattr(provision, "make_all", broken)
    status, _, errors = vbstudy("provision")
    assert status == 6
    assert errors == (
        "vbstudy: guests/cpus-1: cannot be read or written: Input/output error; finished runs are safe; "
        "fix that and run the command again\n"
    )


def test_analyze_before_sweep_says_what_to_do_first(vbstudy, study):
    status, out, err = vbstudy("analyze")
    assert (status, out) == (2, "")
    assert f"no run is finished yet; next: vbstudy -C {study} provision" in err
    assert not (study / "report").exists()


def test_status_counts_what_is_planned(vbstudy, study):
    status, out, _ = vbstudy("--json", "status")
    assert status == 0
    assert json.loads(out) == {
        "guests": [],
        "sets": [
            {"set_id": f"net/fixed-seed/cpus-{n}", "planned": 2, "done": 0, "failed_attempts": 0, "to_do": 2}
            for n in (1, 2)
        ],
        "warnings": [],
        "now": {},
        "now_unknown": "",
    }
    status, out, _ = vbstudy("status")
    assert out.startswith("0 of 4 runs are done, 4 to do; 0 guests provisioned.\n")
    assert re.search("fixed-seed +cpus-1", out)
    assert out.endswith(f"next: vbstudy -C {study} provision\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--until", "sd<1"), "'sd<1' is not a rule: allowed are sd_halfwidth<X"),
        (("--until", "decided(tests)", "--max-runs", "1"), "at most 1 run: fewer than the first 2"),
        (("--max-runs", "9"), "--max-runs needs --until"),
        (("--until", "decided(tests)", "--max-runs", "1000000"), "and a study has at most 200000"),
    ],
)
def test_a_rule_that_is_none_is_a_mistake_on_the_command_line(vbstudy, study, arguments, message):
    status, out, err = vbstudy("sweep", *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_more_runs_than_a_study_may_have_are_refused_at_once(vbstudy, study):
    status, out, err = vbstudy("plan", "--runs", "9" * 20)
    assert (status, out) == (2, "")
    assert err.startswith(f"vbstudy: --runs {'9' * 20}: it plans ")


def test_plan_tells_runs_hours_disk_and_power(vbstudy, study):
    status, out, _ = vbstudy("plan")
    assert status == 0
    assert out.startswith("4 of 4 planned runs are to do: time unknown until one run is done.")
    assert out.endswith(f"next: vbstudy -C {study} provision\n")
    assert "disk    unknown until one run is done" in out
    status, out, _ = vbstudy("--json", "plan", "--runs", "64", "--sd", "0.01", "--difference", "0.005")
    report = json.loads(out)
    assert status == 0
    assert (report["runs"], len(report["sets"])) == (128, 2)
    assert {(f["view"], f["tests"], f["needed_welch"], f["needed_u"]) for f in report["families"]} == {
        ("last", 1, 64, 67),
        ("selected", 1, 64, 67),
    }
    assert report["families"][0]["detectable_welch"] == pytest.approx(0.005, rel=0.01)


def test_doctor_says_what_this_host_can_do(vbstudy):
    status, out, _ = vbstudy("--json", "doctor")
    assert status == 0
    found = {check["what"]: check for check in json.loads(out)}
    assert found["torch"]["found"].startswith("2.")
    assert found["dataset digits"]["found"] == "embedded"
    assert "usable cores" in found["CPU"]["found"]


@pytest.mark.needs("studies")
@pytest.mark.parametrize("width", [80, 120])
def test_doctor_answers_first_and_fits(vbstudy, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, _ = vbstudy("doctor")
    lines = [line.rstrip() for line in out.splitlines()]
    assert status == 0
    assert lines[0].startswith("Studies run here; guests by local")
    assert max(map(len, lines[:-1])) <= width
    assert lines.index("Ready") < lines.index("Optional")
    assert any(re.match("dataset mnist.*downloaded by `vbstudy provision`", line) for line in lines)
    assert re.fullmatch(r"next: vbstudy -C \S+ provision --cpus 1,2(,4)?(,8)?", lines[-1])


def test_doctor_without_a_framework_says_what_runs_and_how_to_get_one(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda distribution: "")
    checks = [doctor.Check(what="provider local", found="cores by affinity"), *doctor._frameworks()]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(doctor.as_text(checks))
    text = " ".join(captured.get().split())
    assert text.startswith(
        "Studies run here; guests by local. Without PyTorch and TensorFlow, studies of your own"
    )
    line = f"{sys.executable} -m pip install torch numpy safetensors"
    assert f"Optional torch {line}" in text
    assert doctor.next_command(checks) == line


def test_doctor_names_what_exact_mode_replay_and_git_projects_need(vbstudy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda program, path=None: None)
    missing = {check["what"]: check["missing"] for check in json.loads(vbstudy("--json", "doctor")[1])}
    assert missing["exact mode"] == "apt install g++"
    assert missing["try --replay"] == "apt install gcc libc6-dev"
    assert missing["projects by git URL"] == "apt install git"
    (tmp_path / "cache" / "vbstudy" / "exact").mkdir(parents=True)
    (tmp_path / "cache" / "vbstudy" / "exact" / "exact-0.so").touch()
    again = {check["what"]: check["missing"] for check in json.loads(vbstudy("--json", "doctor")[1])}
    assert again["exact mode"] == "apt install g++; without it, what was compiled before is used"


@pytest.mark.parametrize(
    ("installed", "framework"),
    [({"torch", "tensorflow"}, "torch"), ({"tensorflow"}, "tensorflow"), ((), "torch")],
)
def test_the_default_study_is_of_a_framework_that_is_installed(
    vbstudy, tmp_path, monkeypatch, installed, framework
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in installed else None)
    assert vbstudy("init")[0] == 0
    assert schema.load(tmp_path / "study.toml").workload[0].framework == framework


@pytest.mark.parametrize("command", [["status"], ["plan"], ["analyze"], ["verify"], ["export", "all.zip"]])
@pytest.mark.parametrize("folder", ["runs", "runs/net/fixed-seed/cpus-1"])
def test_runs_that_cannot_be_read_are_told_and_not_taken_for_missing(vbstudy, study, command, folder):
    (study / folder).parent.mkdir(parents=True, exist_ok=True)
    (study / folder).symlink_to(study / folder)  # a loop: what even root cannot list
    status, out, error = vbstudy(*command)
    assert (status, out) == (6, "")
    assert f"{study / folder}: cannot be read: Too many levels of symbolic links" in error


def test_commands_to_copy_name_the_folder_that_was_given(tmp_path):
    text = "one; next: it\n  vbstudy trace -- echo vbstudy try\n  export A=b"
    located = "one; next: it\n  vbstudy -C '/a b' trace -- echo vbstudy try\n  export A=b"
    assert Options(directory=Path("/a b")).in_folder(text) == located
    assert Options().in_folder(text) == text
    quoted = "`vbstudy exact -- a.py` shows why; see `vbstudy scan`"
    assert Options(directory=Path("b")).in_folder(quoted) == quoted.replace("exact", "-C b exact")
    asked = "a: there are no guests yet; run `vbstudy provision` first"
    assert Options(directory=Path("b")).in_folder(asked) == asked.replace("provision", "-C b provision")


def test_a_table_that_no_study_has_is_refused_before_anything_is_read(vbstudy):
    status, out, err = vbstudy("analyze", "--table", "findings,tim")
    assert (status, out) == (2, "")
    assert "there is no table 'tim'; `vbstudy analyze --list-tables` lists all" in err


@pytest.mark.needs("studies", long=True)
def test_the_three_commands_make_a_report_and_destroy_keeps_it(vbstudy, study, monkeypatch, capsys):
    assert vbstudy("provision", "--cpus", "1,2")[0] == 0
    status, out, _ = vbstudy("sweep", "--runs", "1")
    assert status == 0
    assert "2 runs done in" in out
    planned = json.loads(vbstudy("--json", "plan", "--runs", "3")[1])
    assert (planned["runs"], planned["to_do"]) == (6, 4)
    assert planned["hours"] > 0
    run = study / "runs/net/fixed-seed/cpus-1/0001"
    assert planned["sets"][0]["run_bytes"] == sum(path.stat().st_size for path in run.iterdir())
    assert out.endswith(f"next: vbstudy -C {study} analyze\n")
    status, out, err = vbstudy("analyze")
    assert status == 0
    assert out.splitlines()[-1] == f"report: {study / 'report' / 'index.html'}"
    with monkeypatch.context() as within:
        within.chdir(study)  # commands to copy do not name a long folder there
        assert cli.run(["analyze"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 43
    status, out, err = vbstudy("analyze", "--table", "time, churn")
    assert status == 0
    assert "Time of a run" in out
    assert "Findings" not in out
    assert f"report: {study / 'report' / 'index.html'}" in err
    status, out, _ = vbstudy("analyze", "--tables", "all", "--format", "json")
    assert {"findings", "tables"} <= set(json.loads(out))
    status, out, _ = vbstudy("analyze", "--table", "findings", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) >= 5
    assert "no table 'hardening' in this study" in vbstudy("analyze", "--table", "hardening")[2]
    for several in ("all", "time,churn"):
        assert "CSV is one table a call" in vbstudy("analyze", "--table", several, "--format", "csv")[2]
    assert re.search(r"^ *churn +On how many samples", vbstudy("analyze", "--list-tables")[1], re.MULTILINE)
    for name in ("index.html", "findings.json", "tables/findings.csv", "tables/performance.csv"):
        assert (study / "report" / name).is_file()
    assert list((study / "report" / "figures").glob("*.svg"))
    status, out, err = vbstudy("analyze", "--against", "issre2021")
    assert (status, out) == (2, "")
    assert "no published numbers 'issre2021'; there are: issre21" in err
    assert vbstudy("destroy")[0] == 0
    assert not (study / "guests").exists()
    against = ("--against", "issre21", "--allow-mixed", "--output", str(study / "elsewhere"))
    status, out, _ = vbstudy("analyze", "--format", "json", *against)
    assert status == 0
    assert {finding["id"] for finding in json.loads(out)["findings"]} == {"F1", "F2", "F3", "F4", "F5", "F6"}
    assert "Ours beside the published (issre21)" in (study / "elsewhere" / "index.html").read_text()
    assert "Ours beside the published (issre21)" in vbstudy("analyze", *against)[1]


@pytest.mark.needs("studies")
def test_runs_that_wait_for_guests_end_with_1_and_one_next_step(vbstudy, study):
    assert vbstudy("provision", "--cpus", "1")[0] == 0
    study_file = study / "study.toml"
    study_file.write_text(study_file.read_text().replace("cpus = [1]", "cpus = [1, 2]"))
    status, out, _ = vbstudy("sweep", "--runs", "1")
    assert status == 1
    assert out.endswith(f"were not started (cpus-2); next: vbstudy -C {study} provision\n")
    assert out.count("next:") == 1
    assert vbstudy("status")[1].startswith("1 of 4 runs are done, 3 to do; 1 guest provisioned.")


@pytest.mark.needs("studies")
def test_a_store_of_a_newer_schema_is_told_and_left_alone(vbstudy, study):
    vbstudy("provision", "--cpus", "1")
    vbstudy("sweep", "--runs", "1")
    record = study / "runs/net/fixed-seed/cpus-1/0001" / RECORD
    record.write_text(
        record.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 999', 1)
    )
    for command in ("sweep", "analyze"):
        status, _, err = vbstudy(command)
        assert status == 6
        assert "newer than this vbstudy" in err
    assert record.exists()


def test_a_locked_study_names_the_holder(vbstudy, study):
    with Store(study).lock("vbstudy sweep"):
        status, _, err = vbstudy("provision")
    assert status == 2
    assert f"`vbstudy sweep`, process {os.getpid()}" in err


@pytest.mark.parametrize(
    "command", ["status", "plan", "doctor", "verify", "scan --check .", "--help", "--version"]
)
def test_a_reader_that_has_enough_ends_the_output_quietly(study, command):
    (study / "train.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "vbstudy", *command.split()]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(words, cwd=study, env=environment, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_output_that_is_full_is_named_by_verify(study):
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "vbstudy", "-C", str(study), "verify"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 6
    assert done.stderr.startswith("vbstudy: the output or a file: cannot be written: the disk is full;")


@pytest.mark.needs("studies")
def test_a_command_whose_output_is_closed_ends_quietly(study):
    done = subprocess.run(
        f"{sys.executable} -m vbstudy -C {study} plan >&-", shell=True, stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture(params=[os.pipe, pty.openpty])
def with_nobody_at_stderr(request, study):
    """Runs a command whose stderr was a pipe, or a terminal, that is closed; returns its exit code and
    stdout. Bars are drawn whatever it is."""

    def run(*arguments: str) -> tuple[int, str]:
        other_end, stderr = request.param()
        os.close(other_end)
        command = [sys.executable, "-m", "vbstudy", "-C", str(study), *arguments]
        environment = {**os.environ, "FORCE_COLOR": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        os.close(stderr)
        return done.returncode, done.stdout

    return run


def test_a_command_goes_on_when_nobody_reads_its_progress(with_nobody_at_stderr, study):
    status, out = with_nobody_at_stderr("provision")
    assert (status, out.partition(";")[0]) == (0, "2 guests ready")


def test_an_error_that_nobody_reads_keeps_its_exit_code(with_nobody_at_stderr):
    assert with_nobody_at_stderr("provision", "--cpus", "0") == (2, "")
    assert with_nobody_at_stderr("sweep") == (2, "")


@pytest.mark.needs("studies")
def test_a_sweep_goes_on_when_nobody_reads_its_progress(vbstudy, with_nobody_at_stderr, study):
    vbstudy("provision")
    status, _ = with_nobody_at_stderr("sweep")
    assert status == 0
    assert len(list(Store(study).records())) == 4


def test_a_folder_that_was_removed_is_named_as_the_cause(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; {sys.executable} -m vbstudy doctor"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, shell=True, cwd=gone, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "vbstudy: the current folder was removed; change to another one\n",
    )


def test_ctrl_c_while_it_starts_stops_it_in_a_line(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "vbstudy", "plan"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "vbstudy: stopped\n")


def test_the_backend_of_a_notebook_of_another_environment_does_not_matter(vbstudy, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://no_such.backend_inline")
    vbstudy("doctor")
    subprocess.run([sys.executable, "-c", "import matplotlib"], check=True)


def test_a_width_of_no_columns_is_none(vbstudy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    _, out, _ = vbstudy("doctor")
    assert "CPU" in out


def test_a_folder_in_place_of_the_study_file_is_told(vbstudy, tmp_path):
    (tmp_path / "study.toml").mkdir()
    status, _, err = vbstudy("init", "--force")
    assert status == 2
    assert f"{tmp_path / 'study.toml'}: Is a directory" in err


def test_a_name_that_is_no_text_has_a_mark_of_its_own(tmp_path):
    assert host_name(tmp_path / "\udce9") != host_name(tmp_path / "\udcea")
