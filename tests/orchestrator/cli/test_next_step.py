"""The next step that commands advise can be taken: by no advice is a command refused, or done in vain."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import tomllib

import pytest

from analysis.load.study import load_study
from analysis.report.methods import recipe
from guest.records.codec import to_json
from orchestrator.cli import main as cli
from orchestrator.store.store import Store, now
from orchestrator.study.edited import edited
from orchestrator.sweep.status import CHANGED, MISSING
from tests.analysis.conftest import Fabricator
from tests.orchestrator.study.test_edited import AS_RUN, change
from tests.orchestrator.sweep.test_watch import LIVE

WATCH = "a sweep is running"
MADE = 'has one that is made from them, under "To copy"'


@pytest.fixture
def study(tmp_path):
    """Two of four planned runs are done."""
    made = Fabricator(tmp_path)
    for cpus in (1, 2):
        made.run(cpus, workload="net")
    (tmp_path / "study.toml").write_text(AS_RUN)
    return tmp_path


@pytest.fixture
def vbstudy(study, capsys, monkeypatch):
    """Runs a command there; all that it prints, in one line."""
    monkeypatch.chdir(study)

    def run(*arguments: str) -> str:
        capsys.readouterr()
        cli.run(list(arguments))
        output = capsys.readouterr()
        return " ".join((output.err + output.out).split())

    return run


def sweep_begins(study):
    live = dataclasses.replace(LIVE, updated_at=now())
    (study / ".live").write_text(json.dumps(to_json(live)))


@pytest.mark.needs("studies")
def test_a_study_that_lacks_runs_is_swept(vbstudy):
    assert "2 of 4 planned runs are missing: net/fixed-seed/cpus-1 has 1 of 2" in vbstudy("analyze")
    assert "vbstudy sweep # 2 of 4 planned runs are missing" in vbstudy("analyze")
    assert "2 planned runs are missing; run `vbstudy sweep`" in vbstudy("verify")


@pytest.mark.needs("studies")
def test_a_finished_study_of_a_variant_with_fewer_runs_is_not_swept_again(vbstudy, study):
    change(study, "repetitions = 2", "repetitions = 2\nrepetitions_at_most = { fixed-seed = 1 }")
    assert "vbstudy sweep" not in vbstudy("analyze")
    assert vbstudy("status").endswith("next: vbstudy analyze")


@pytest.mark.needs("studies")
def test_while_a_sweep_runs_it_is_watched_and_its_lock_left_alone(vbstudy, study):
    sweep_begins(study)
    with Store(study).lock("vbstudy sweep"):
        for command in ("status", "plan"):
            assert vbstudy(command).endswith(f"{WATCH} next: vbstudy watch")
        assert f"2 planned runs are missing; {WATCH}; next: vbstudy watch" in vbstudy("verify")
        shown = vbstudy("analyze")
    assert f"Next vbstudy watch # {WATCH} vbstudy analyze --list-tables" in shown
    assert "vbstudy sweep" not in shown


def test_a_sweep_without_a_finished_run_is_watched(vbstudy, study):
    sweep_begins(study)
    (study / "runs").rename(study / "elsewhere")
    for command in (["analyze"], ["export", "s.zip"], ["export", "tables.parquet"], ["export", "mlruns"]):
        assert vbstudy(*command) == f"vbstudy: no run is finished yet; {WATCH}; next: vbstudy watch"


@pytest.mark.parametrize("command", [["analyze"], ["report"], ["export", "s.zip"]], ids=" ".join)
def test_without_a_run_the_first_step_is_named(vbstudy, study, command):
    (study / "runs").rename(study / "elsewhere")
    assert vbstudy(*command) == "vbstudy: no run is finished yet; next: vbstudy provision"
    (study / "study.toml").unlink()
    assert "there is no study here; `vbstudy init` writes one" in vbstudy(*command)


@contextlib.contextmanager
def at_work(study, command):
    """Another process holds the study's lock."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom orchestrator.store.store import Store\n"
        f"with Store(Path({str(study)!r})).lock({command!r}):\n    print(flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        other.stdout.readline()
        yield
        other.stdin.close()


@pytest.mark.needs("studies")
def test_while_another_command_has_the_study_it_is_waited_for(vbstudy, study):
    told = "`vbstudy harden` is running: wait for it"
    with at_work(study, "vbstudy harden"):
        for command in ("status", "plan"):
            assert vbstudy(command).endswith(f"{told} next: vbstudy status")
        assert f"2 planned runs are missing; {told}; next: vbstudy status" in vbstudy("verify")
        assert f"Next vbstudy status # {told}" in vbstudy("analyze")
        (study / "runs").rename(study / "elsewhere")
        for command in (["analyze"], ["export", "s.zip"]):
            assert vbstudy(*command) == f"vbstudy: no run is finished yet; {told}; next: vbstudy status"
    assert vbstudy("status").endswith("next: vbstudy provision")


def test_a_sweep_that_just_began_is_watched(vbstudy, study):
    with at_work(study, "vbstudy sweep"):
        assert vbstudy("status").endswith(f"{WATCH} next: vbstudy watch")


@pytest.mark.needs("studies")
def test_settings_that_a_sweep_refuses_are_to_be_set_back(vbstudy, study):
    change(study, "epochs = 2", "epochs = 3")
    for command in (["status"], ["plan"], ["status", "--runs", "1"], ["plan", "--runs", "1"]):
        assert vbstudy(*command).endswith(f"{CHANGED} next: vbstudy report")
    assert f"2 planned runs are missing; {CHANGED}; next: vbstudy report" in vbstudy("verify")
    assert "vbstudy sweep" not in vbstudy("analyze")
    assert "vbstudy report # a sweep refuses study.toml" in vbstudy("analyze")


@pytest.mark.needs("studies")
def test_where_runs_failed_their_cause_is_mended_first(vbstudy, study):
    store, set_id = Store(study), "net/fixed-seed/cpus-1"
    for repetition, error in (
        (2, "old"),
        (1, "mended"),
        (2, "it broke; last lines:\nTraceback\nOSError: boom"),
    ):
        error = {"kind": "CommandError", "message": error}
        spec = dataclasses.replace(next(store.records(set_id)).spec, repetition=repetition)
        kept = store.keep_failure(spec, 1, store.new_incoming(), error)
    evidence = kept.rename(kept.with_name("0002-20991231T000000-aaaaaa")).relative_to(study)
    why = (
        f"{set_id}/0002 failed with CommandError: it broke; last lines: OSError: boom (evidence: {evidence})"
    )
    why += "; mend the cause first"
    for command in ("status", "plan"):
        assert vbstudy(command).endswith(f"{why} next: vbstudy provision")
    assert f"2 planned runs are missing; {why}; next: vbstudy sweep" in vbstudy("verify")
    assert f"vbstudy sweep # {why}" in vbstudy("analyze")
    vbstudy("provision")
    for command in ("status", "plan"):
        assert vbstudy(command).endswith(f"{why} next: vbstudy sweep")
        assert vbstudy(command, "--runs", "1").endswith("next: vbstudy analyze")
    (study / "runs").rename(study / "elsewhere")
    for command in (["analyze"], ["export", "s.zip"]):
        assert vbstudy(*command) == f"vbstudy: no run is finished yet; {why}; next: vbstudy sweep"
    assert vbstudy("status", "--runs", "1").endswith("mend the cause first next: vbstudy sweep --runs 1")


def test_the_runs_that_are_planned_are_those_that_are_swept_next(vbstudy):
    vbstudy("provision")
    assert vbstudy("plan").endswith("next: vbstudy sweep")
    for command in ("plan", "status"):
        assert vbstudy(command, "--runs", "5").endswith("next: vbstudy sweep --runs 5")
    assert vbstudy("plan", "--runs", "1").endswith("next: vbstudy analyze")


def test_hosts_of_a_cluster_make_their_guests(vbstudy, study):
    with (study / "study.toml").open("a") as file:
        file.write('\n[engine]\nkind = "dask"\n')
    assert vbstudy("status").endswith("next: vbstudy sweep")


def test_runs_that_are_no_longer_planned_stop_no_sweep(vbstudy, study):
    change(study, "cpus = [1, 2]", "cpus = [1, 4]")
    assert vbstudy("status").endswith("next: vbstudy provision")


@pytest.mark.needs("studies")
def test_a_lost_study_file_is_made_from_the_runs(vbstudy, study):
    (study / "study.toml").unlink()
    shown = vbstudy("analyze")
    assert f"vbstudy report # {MISSING}" in shown
    assert "vbstudy sweep" not in shown
    for command in ("status", "sweep", "provision"):
        lost = f"there are runs here and no study file; `vbstudy report` {MADE}"
        assert lost in vbstudy(command)
        assert not (study / "study.toml").exists(), "a default study would be one of another program"
    (study / "study.toml").write_text(recipe(load_study(study)).study_file)
    assert tomllib.loads((study / "study.toml").read_text())["cpus"] == [1, 2]
    assert edited(Store(study)) == ""


def test_time_is_not_estimated_from_runs_with_other_settings(vbstudy, study):
    assert "2 of 4 planned runs are to do: about" in vbstudy("plan")
    change(study, "epochs = 2", "epochs = 3")
    assert "2 of 4 planned runs are to do: time unknown until one run is done" in vbstudy("plan")
