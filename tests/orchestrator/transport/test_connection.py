import errno
import io
import os
import signal
import sys

import pytest

from orchestrator.errors import GuestError
from orchestrator.transport.connection import LocalConnection
from tests.processes import alive, ends, wait_until


@pytest.fixture
def connection(tmp_path):
    core = min(os.sched_getaffinity(0))
    opened = LocalConnection(tmp_path, sys.executable, (core,), None, {"VBSTUDY_GUEST": "test"})
    yield opened
    opened.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_command_has_only_its_cores_its_folder_and_its_environment(connection, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    code = (
        "import os; print(len(os.sched_getaffinity(0)), os.getcwd(), os.environ['HOME'], "
        "os.environ.get('OMP_NUM_THREADS'), os.environ['KNOB'])"
    )
    done = connection.run(python(code), {"KNOB": "3"}, 30)
    assert done.stdout.split() == ["1", str(tmp_path), str(tmp_path), "None", "3"]
    assert len(os.sched_getaffinity(0)) >= 1


def test_the_affinity_of_the_caller_is_given_back(connection):
    before = os.sched_getaffinity(0)
    connection.run(python("pass"), {}, 30)
    assert os.sched_getaffinity(0) == before


def test_a_command_that_does_not_end_is_killed(connection):
    with pytest.raises(GuestError, match="did not end within"):
        connection.run(python("import time; time.sleep(6000)"), {}, 0.3)


def test_a_command_that_does_not_exist_is_told(connection):
    with pytest.raises(GuestError, match="cannot be started"):
        connection.run(["/nonexistent/program"], {}, 1)


def test_lines_go_in_and_come_out_and_the_end_stays_the_end(connection):
    stream = connection.open(
        python("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"), {}
    )
    stream.send("hello")
    assert stream.receive(120) == b"HELLO\n"
    assert stream.receive(0.05) is None
    stream.kill()
    assert stream.receive(120) == b""
    assert stream.receive(120) == b""
    with pytest.raises(GuestError, match="ended"):
        stream.send("more")


def test_a_killed_stream_takes_its_children_along(connection):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(6000)'])\n"
        "print(child.pid, flush=True); time.sleep(6000)"
    )
    stream = connection.open(python(code), {})
    child = int(stream.receive(120))
    assert alive(child)
    stream.kill()
    assert ends(child)


def test_a_killed_stream_takes_along_what_left_its_session_its_environment_and_its_parent(connection):
    code = (
        "import ctypes, subprocess, time\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # as agents of projects do
        "child = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n"
        "shell = ['sh', '-c', 'env -i setsid sleep 600 > /dev/null & echo $!']\n"
        "print(child.pid, flush=True)\n"
        "print(int(subprocess.run(shell, stdout=subprocess.PIPE).stdout), flush=True); time.sleep(600)"
    )
    stream = connection.open(python(code), {})
    children = [int(stream.receive(120)) for _ in range(2)]
    wait_until(lambda: os.getsid(children[1]) == children[1])
    stream.kill()
    left = [child for child in children if not ends(child)]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left


def test_the_tail_of_stderr_is_kept_also_of_what_comes_after_the_end_of_stdout(connection):
    code = "import os, sys, time; os.close(1); time.sleep(0.5); sys.stderr.write('x' * 100000 + 'the end')"
    stream = connection.open(python(code), {})
    assert stream.receive(120) == b""
    tail = stream.stderr()
    assert tail.endswith("the end")
    assert len(tail) <= 8192


def test_files_are_put_and_got_whole(connection, tmp_path):
    local = tmp_path / "source"
    local.write_bytes(b"abc")
    connection.put(local, "sub/file")
    connection.get("sub/file", tmp_path / "back", max_bytes=3)
    assert (tmp_path / "back").read_bytes() == b"abc"


def test_a_file_that_grew_or_is_a_link_is_not_fetched(connection, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 10)
    with pytest.raises(GuestError, match="larger than the 9 bytes"):
        connection.get("large", tmp_path / "back", max_bytes=9)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(GuestError, match="not a plain file"):
        connection.get("link", tmp_path / "back", max_bytes=10**6)
    assert not (tmp_path / "back").exists()


def test_an_error_of_reading_in_the_guest_is_no_error_of_the_file_to_write(connection, tmp_path, monkeypatch):
    class Broken(io.BytesIO):
        def read(self, _):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "weights").write_bytes(b"abc")
    monkeypatch.setattr(os, "fdopen", lambda *_: Broken())
    with pytest.raises(GuestError, match="weights: cannot be read in the guest: Input/output error"):
        connection.get("weights", tmp_path / "back", max_bytes=3)


def test_a_guest_that_is_stopped_while_a_command_starts_leaves_no_process(tmp_path):
    gone = tmp_path / "removed" / "cgroup.procs"
    core = min(os.sched_getaffinity(0))
    connection = LocalConnection(tmp_path, sys.executable, (core,), gone, {})
    with pytest.raises(GuestError, match="the guest was stopped"):
        connection.open(python("import time; time.sleep(6000)"), {})
