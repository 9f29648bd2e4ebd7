"""A program of the user's does not outlive the vbstudy that runs it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from guest.projects.command import descendants
from orchestrator.programs.watcher import end_marked, watched
from tests.processes import ends, wait_until

# It is ready when it has started another process, which is in a session of its own.
PROGRAM = """\
import pathlib, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
COMMANDS = {
    "try": ["try"],
    "harden": ["harden", "--cpus", "1,2"],
    "record": ["record", "--level", "python", "--output", "made.rec"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_program_ends_with_all_it_started_when_vbstudy_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    ready, folder, temporary = (tmp_path / name for name in ("ready", "program", "temporary"))
    folder.mkdir()
    temporary.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    argv = [sys.executable, "-m", "vbstudy", *command, "--", sys.executable, "train.py", str(ready)]
    vbstudy = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, vbstudy)
    finally:
        started = [*descendants(vbstudy.pid)]
        vbstudy.kill()
        vbstudy.wait()
        left = [pid for pid in started if not ends(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert (len(started), left) == (3, [])  # the program, what it started, and what ends them


def test_a_program_that_itself_runs_vbstudy_keeps_both_marks() -> None:
    with watched() as outer, watched() as inner:
        assert len(outer | inner) == 2


def test_a_mark_that_others_may_have_ends_nothing() -> None:
    with pytest.raises(ValueError, match="VBSTUDY_OWNER_"):
        end_marked("VBSTUDY_OWNER_=1")
