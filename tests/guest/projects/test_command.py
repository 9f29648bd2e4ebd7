import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guest.projects import command
from guest.projects.command import CommandError, Limits
from tests.needs import needs_root
from tests.processes import alive


def run(tmp_path, code: str, *, timeout_s=None, disk_bytes=1 << 30, on_line=None, argv=None, check=None):
    log = io.BytesIO()
    limits = Limits(timeout_s=timeout_s, disk_bytes=disk_bytes)
    if check is not None:
        limits.check = check
    argv = argv or [sys.executable, "-c", code]
    ended = command.run(argv, tmp_path, {"PATH": "/usr/bin:/bin"}, log, limits, on_line or (lambda *_: None))
    return ended, log.getvalue()


def test_lines_are_seen_as_they_are_printed_and_kept_in_the_log(tmp_path):
    seen = []
    ended, log = run(tmp_path, "print('a'); print('b\\rc')", on_line=lambda line, _: seen.append(line))
    assert seen == ["a", "b", "c"]
    assert log == b"a\nb\rc\n"
    assert ended.last_lines == "a\nb\nc"
    assert ended.cpu_s > 0


def test_lines_are_seen_without_their_colours_which_the_log_keeps(tmp_path):
    seen = []
    _, log = run(tmp_path, "print('\x1b[1ma\x1b[0m: 1')", on_line=lambda line, _: seen.append(line))
    assert seen == ["a: 1"]
    assert log == b"\x1b[1ma\x1b[0m: 1\n"


def test_a_log_that_cannot_be_written_ends_the_command(tmp_path):
    argv = [sys.executable, "-uc", "import time; print(1); time.sleep(600)"]
    limits, env = Limits(timeout_s=None, disk_bytes=1 << 30), {"PATH": "/usr/bin:/bin"}
    with Path("/dev/full").open("wb", 0) as log, pytest.raises(OSError, match="No space left"):
        command.run(argv, tmp_path, env, log, limits, lambda *_: None)


def test_the_current_folder_has_the_same_name_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PWD", "/")
    _, log = run(tmp_path, "import os; print(os.environ['PWD'])")
    assert log.decode() == f"{tmp_path}\n"


def test_a_command_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(CommandError, match="trian: command not found") as caught:
        run(tmp_path, "", argv=["trian", "--epochs", "1"])
    assert caught.value.kind == "CommandNotFound"


def test_a_command_in_quotes_is_to_be_written_without_them(tmp_path):
    with pytest.raises(CommandError, match=r"python t\.py: command not found, .*; .* go without quotes"):
        run(tmp_path, "", argv=["python t.py"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("t.py", "write: python t.py"),
        ("./run.sh", "write: bash ./run.sh"),
        ("t", "as in python"),
        ("a.ipynb", "nbconvert --to script a.ipynb"),
    ],
)
def test_a_file_that_cannot_be_executed_is_not_said_to_be_missing(tmp_path, name, told):
    (tmp_path / name).touch()
    with pytest.raises(
        CommandError, match=f"is a (file that cannot be executed|notebook); .*{told}"
    ) as caught:
        run(tmp_path, "", argv=[name])
    assert caught.value.kind == "CommandNotFound"


def test_a_failing_command_is_told_with_its_status_and_last_lines(tmp_path):
    with pytest.raises(CommandError, match=r"(?s)ended with status 3; last lines:\nthe reason") as caught:
        run(tmp_path, "import sys; print('the reason'); sys.exit(3)")
    assert caught.value.kind == "ProjectFailed"


def test_a_traceback_is_shown_from_its_beginning_without_frames_of_the_agent(tmp_path):
    agent = tmp_path / "agent-1f.pyz" / "guest"
    agent.mkdir(parents=True)
    (agent / "between.py").write_text("def call(f):\n    return f()\n")
    code = (
        "import sys\nprint('before\\n' * 40)\nsys.path.append('agent-1f.pyz/guest')\nimport between\n"
        "def first(): between.call(second)\ndef second(): deep(30)\n"
        "def deep(n): deeper(n) if n else 1 / 0\ndef deeper(n): deep(n - 1)\nfirst()"
    )
    (tmp_path / "train.py").write_text(code)
    with pytest.raises(CommandError) as caught:
        run(tmp_path, "", argv=[sys.executable, "train.py"])
    last = str(caught.value).partition("last lines:\n")[2]
    assert last.startswith(command.TRACEBACK)
    assert "line 9, in <module>" in last
    assert "line 6, in second" in last
    assert last.endswith("ZeroDivisionError: division by zero")
    assert "pyz" not in last
    assert "return f()" not in last


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path):
    code = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); "
        "time.sleep(600)"
    )
    pids, timeout_s = [], 1
    while not pids:  # on a busy machine it may be ended before it has started anything
        with pytest.raises(CommandError, match=rf"not done within timeout_s = {timeout_s}") as caught:
            run(tmp_path, code, timeout_s=timeout_s, on_line=lambda line, _: pids.append(int(line)))
        assert caught.value.kind == "Timeout"
        timeout_s *= 4
    assert not alive(pids[0])


def test_a_command_that_is_interrupted_while_it_starts_is_ended(tmp_path, monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "import time; time.sleep(600)")
    survived = alive(started[0].pid)
    started[0].kill()
    started[0].communicate()
    assert not survived


def test_a_command_that_dies_of_a_real_time_signal_is_reported_with_its_name(tmp_path):
    with pytest.raises(CommandError, match=r"the command was killed by SIGRTMIN\+2; last lines:"):
        run(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 2)")


def test_processes_that_are_left_running_are_ended_even_those_that_detached(tmp_path):
    code = (
        "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True, "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(p.pid)"
    )
    pids = []
    ended, _ = run(tmp_path, code, on_line=lambda line, _: pids.append(int(line)))
    assert ended.strays == 1
    assert not alive(pids[0])


@pytest.mark.parametrize("files", [1, 40])
def test_a_command_that_writes_too_much_is_ended(tmp_path, files):
    code = (
        f"import os, time\nfor i in range({files}):\n with open(f'f{{i}}', 'wb') as f:\n"
        f"  for _ in range({80 // files}): f.write(os.urandom(1 << 20)); f.flush()\ntime.sleep(0)"
    )
    with pytest.raises(CommandError) as caught:
        run(tmp_path, code, disk_bytes=16 << 20)
    assert caught.value.kind == "DiskLimit" or "File too large" in str(caught.value)
    assert command.disk_use(tmp_path) < 60 << 20 or files > 1


def test_what_lay_in_the_folder_before_counts_as_written_by_nobody(tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(3 << 20))
    (tmp_path / "old").write_bytes(bytes(1 << 20))
    code = "import os, time; open('new', 'wb').write(os.urandom(1 << 20)); time.sleep(1.5)"
    assert run(tmp_path, code, disk_bytes=2 << 20)[0].disk_bytes == 1 << 20
    assert run(tmp_path, "open('data', 'ab').write(bytes([1]) * 9)", disk_bytes=2 << 20)[0].disk_bytes == 9
    assert run(tmp_path, "import os; os.remove('old')", disk_bytes=2 << 20)[0].disk_bytes == 0
    with pytest.raises(CommandError, match="disk_limit_mib allows 2"):
        run(
            tmp_path, "for i in range(9): open('big', 'ab').write(bytes([1]) * (1 << 20))", disk_bytes=2 << 20
        )


def test_a_flood_of_output_does_not_fill_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LOG_LIMIT_BYTES", 1000)
    _, log = run(tmp_path, "for i in range(10000): print(i)")
    assert len(log) < 1100
    assert b"the log ends here" in log


def test_an_error_about_a_line_ends_the_command(tmp_path):
    def refuse(line: str, _: float) -> None:
        raise ValueError(line)

    began = time.monotonic()
    with pytest.raises(ValueError, match="x"):
        run(tmp_path, "import time; print('x', flush=True); time.sleep(600)", on_line=refuse)
    assert time.monotonic() - began < 300


def test_a_command_is_ended_when_a_check_says_so(tmp_path):
    def check():
        raise CommandError("Orphaned", "nobody waits")

    with pytest.raises(CommandError, match="nobody waits") as caught:
        run(tmp_path, "import time; time.sleep(600)", check=check)
    assert caught.value.kind == "Orphaned"


NOT_OURS = """
import io, os, sys
from pathlib import Path
from guest.projects import command
log, limits = io.BytesIO(), command.Limits(timeout_s=None, disk_bytes=1 << 30)
try:
    ended = command.run(sys.argv[1:], Path.cwd(), os.environ, log, limits, lambda line, seconds: None)
    print("done", ended.strays, ended.unended)
except command.CommandError as error:
    print(error.kind)
print(log.getvalue().decode())
"""
STAYS = """
import subprocess, sys
sudo = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "echo; exec sleep 600"]
started = subprocess.Popen(sudo, stdout=subprocess.PIPE)
started.stdout.readline()
print("left", started.pid)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.needs("studies")
@needs_root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
@pytest.mark.parametrize(("status", "outcome"), [(0, "done 0 1"), (3, "ProjectFailed")])
def test_a_process_that_cannot_be_ended_is_noted_and_the_outcome_stays(tmp_path, status, outcome):
    """As one that `sudo` started: it keeps the output open."""
    command_line = [sys.executable, "-c", NOT_OURS, sys.executable, "-c", STAYS, str(status)]
    limited = ["setpriv", "--bounding-set=-kill", *command_line]  # as a user who is not root
    printed = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    pid = int(re.search(r"left (\d+)", printed.stdout + "left 0")[1])
    if pid:
        os.kill(pid, signal.SIGKILL)
    lines = printed.stdout.split("\n")
    assert (lines[0], printed.stderr) == (outcome, "")
    assert f"[vbstudy] processes that cannot be ended: {pid}" in lines
