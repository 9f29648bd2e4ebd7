import os
import signal
import subprocess
import sys

import pytest

from analysis.results.temporary import PREFIX, clear, temporary

WRITES = """
import sys, time
from pathlib import Path
from analysis.results.temporary import temporary
with temporary(Path(sys.argv[1])) as part:
    part.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing `x`."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_what_a_live_process_is_writing_stays(tmp_path, writer):
    clear(tmp_path)
    with temporary(tmp_path / "y") as part:
        part.write_text("whole")
        part.rename(tmp_path / "y")
    (left,) = tmp_path.glob(f"{PREFIX}*")
    assert (left / "x").read_text() == "half"


def test_what_a_killed_process_was_writing_is_removed_by_the_next(tmp_path, writer):
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_what_failed(tmp_path):
    def fail():
        with temporary(tmp_path / "x") as part:
            part.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not list(tmp_path.iterdir())


def test_a_link_with_such_a_name_is_not_followed(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    (tmp_path / f"{PREFIX}x").symlink_to(tmp_path / "other")
    clear(tmp_path)
    assert (tmp_path / "other/file").exists()
