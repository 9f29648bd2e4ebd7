"""Clocks that were set: runs, files and a sweep's state from the future or the distant past are read by every
command, and decide nothing."""

import json
import os
from pathlib import Path

import pytest

from guest.records.codec import digest
from guest.records.run import RECORD
from guest.records.valid import YEARS
from orchestrator.cli import main as cli
from orchestrator.store.store import Store
from orchestrator.sweep.live import read_live
from tests.security.test_older_schemas import write_study

QUICK = ("verify", "status", "plan", "watch --once", "export x.zip")
TIMES = [  # from the future, back a day during the run, back to the beginning of clocks
    (f"{YEARS[-1]}-01-01T00:00:00+00:00", f"{YEARS[-1]}-01-01T00:00:10+00:00"),
    ("2026-01-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
    ("2026-01-01T00:00:00+00:00", f"{YEARS[0]}-01-01T00:00:00+00:00"),
]


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    return tmp_path


def rewritten(path: Path, **changes) -> None:
    record = json.loads(path.read_text()) | changes
    record.pop("record_sha256")
    path.write_text(json.dumps(record | {"record_sha256": digest(record)}))


@pytest.mark.needs("studies")
def test_every_command_reads_the_runs_of_a_clock_that_was_set(study, capsys):
    for path, (started, finished) in zip(sorted(study.glob(f"runs/*/*/*/*/{RECORD}")), TIMES, strict=False):
        rewritten(path, started_at=started, finished_at=finished)
    for command in (*QUICK, "analyze"):
        assert cli.run(command.split()) == 0, (command, capsys.readouterr().err)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_clock_shows_is_damage(study, capsys, at):
    rewritten(study / "runs/lenet5/fixed-seed/cpus-1/0001" / RECORD, started_at=at)
    assert cli.run(["verify"]) == 6
    assert f"started_at: '{at}' is no time" in capsys.readouterr().err


@pytest.mark.parametrize("time_s", [2**33, 1, -(2**31)])
def test_files_of_any_time_are_read(study, capsys, time_s):
    for path in [*study.rglob("*"), study]:
        os.utime(path, (time_s, time_s))
    for command in QUICK:
        assert cli.run(command.split()) == 0, (command, capsys.readouterr().err)


LIVE = {
    "version": 1, "state": "running", "process": 1, "host": "h", "cores": 2, "beat": 1, "planned": {},
    "took": {}, "running": [], "done_now": 0, "failed_now": 0, "waiting": "",
}  # fmt: skip


@pytest.mark.parametrize("time_s", [2**33, 1])
@pytest.mark.parametrize("beat", [0, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("at", ["2999-01-01T00:00:00+00:00", "0001-01-01T00:00:00+14:00", "x"])
def test_a_sweep_from_the_future_is_shown(study, capsys, at, beat, time_s):
    live = Store(study).live_file
    live.write_text(json.dumps(LIVE | {"started_at": at, "updated_at": at, "beat": beat}))
    os.utime(live, (time_s, time_s))
    assert read_live(live) is not None
    for command in ("status", "watch --once"):
        assert cli.run(command.split()) == 0, (command, capsys.readouterr().err)


def test_a_pipe_in_the_place_of_a_sweep_s_state_is_not_waited_for(study, capsys):
    os.mkfifo(Store(study).live_file)
    for command in ("status", "watch --once"):
        assert cli.run(command.split()) == 0, (command, capsys.readouterr().err)
