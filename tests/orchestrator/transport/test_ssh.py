"""The SSH connection, against a real sshd on the loopback."""

import dataclasses
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import GuestError, StoreError
from orchestrator.store.store import Store
from orchestrator.transport import connection as connection_module
from orchestrator.transport.keys import StudyKeys, key_pair, parse_public
from orchestrator.transport.ssh import SshConnection
from tests import sshd
from tests.mounts import mounted
from tests.needs import needs_root
from tests.orchestrator.transport.test_connection import (
    python,
    test_a_killed_stream_takes_its_children_along,  # noqa: F401 (both ends of the protocol do that)
    test_lines_go_in_and_come_out_and_the_end_stays_the_end,  # noqa: F401
    test_the_tail_of_stderr_is_kept_also_of_what_comes_after_the_end_of_stdout,  # noqa: F401
)
from tests.processes import ends

pytestmark = pytest.mark.needs("sshd")


@pytest.fixture
def keys(tmp_path):
    return StudyKeys.of(Store(tmp_path))


@pytest.fixture
def target(server, keys):
    return server.target(keys, connect_timeout_s=60, patience_s=3)


@pytest.fixture
def guest(tmp_path):
    return tmp_path / "guest folder; with 'signs'"


@pytest.fixture
def connection(target, guest):
    opened = SshConnection(target, str(guest), sys.executable, mark={"VBSTUDY_GUEST": "test"})
    yield opened
    opened.close()


def test_a_command_has_its_folder_and_only_the_given_environment(connection, guest):
    code = (
        "import os; print(os.getcwd(), os.environ['HOME'], os.environ['KNOB'], os.environ['VBSTUDY_GUEST'], "
        "'SSH_CONNECTION' in os.environ, sep='|')"
    )
    done = connection.run(python(code), {"KNOB": "3"}, 30)
    assert done.stdout.strip().split("|") == [str(guest), str(guest), "3", "test", "False"]


@pytest.mark.parametrize(
    "nasty", ["a b", "'; touch broken; '", '"$(touch broken)"', "$HOME", "a\nb", "`id`", "*", ""]
)
def test_no_argument_or_setting_is_ever_read_by_a_shell(connection, guest, nasty):
    code = "import os, sys; sys.stdout.write(repr((sys.argv[1], os.environ['KNOB'])))"
    done = connection.run([*python(code), nasty], {"KNOB": nasty}, 30)
    assert done.stdout == repr((nasty, nasty))
    assert not (guest / "broken").exists()


def test_status_output_and_errors_of_a_command_come_back(connection):
    done = connection.run(python("import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"), {}, 30)
    assert (done.status, done.stdout, done.stderr) == (3, "out\n", "err")


def test_a_command_that_does_not_end_is_killed(connection, guest):
    began = time.monotonic()
    with pytest.raises(GuestError, match="did not end within"):
        connection.run(["sh", "-c", "echo $$ > pid; sleep 6000; :"], {}, 1.5)
    assert time.monotonic() - began < 600
    assert ends(int((guest / "pid").read_text()))


def test_a_command_that_does_not_exist_is_told_by_its_status(connection):
    assert connection.run(["/nonexistent/program"], {}, 10).status == 127


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 8)", "killed by SIGRTMIN+8"),
    ],
)
def test_how_a_command_ended_is_known(connection, code, how):
    stream = connection.open(python(code), {})
    assert stream.receive(120) == b""
    assert stream.how_it_ended() == how


def test_a_line_without_an_end_does_not_fill_the_memory(connection, monkeypatch):
    monkeypatch.setattr(connection_module, "MAX_LINE_BYTES", 1000)
    stream = connection.open(python("print('x' * 2500, flush=True)"), {})
    assert [len(stream.receive(120)) for _ in range(3)] == [1000, 1000, 501]


def test_what_a_session_leaves_has_the_mark_by_which_ci_finds_it(tmp_path, keys, monkeypatch):
    monkeypatch.setenv("VBSTUDY_CI", "ssh-12")
    with sshd.running(tmp_path / "sshd") as server:
        connection = SshConnection(server.target(keys), str(tmp_path / "guest"), sys.executable)
        assert connection.shell('echo "$VBSTUDY_CI"') == "ssh-12\n"
        connection.close()


# ---- files -----------------------------------------------------------------------------------


def test_files_are_put_and_got_whole(connection, guest, tmp_path):
    data = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(data)
    connection.put(tmp_path / "source", "sub/file")
    assert (guest / "sub/file").read_bytes() == data
    connection.get("sub/file", tmp_path / "back", max_bytes=len(data))
    assert (tmp_path / "back").read_bytes() == data
    assert sorted(p.name for p in (guest / "sub").iterdir()) == ["file"]


def test_a_file_that_is_there_is_not_sent_again(connection, guest, tmp_path):
    (tmp_path / "source").write_bytes(b"abc")
    connection.put(tmp_path / "source", "file")
    before = (guest / "file").stat()
    connection.put(tmp_path / "source", "file")
    assert (guest / "file").stat().st_ino == before.st_ino


def test_a_file_that_arrives_changed_is_refused(connection, guest, tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(b"abc")
    honest = SshConnection._sha256
    monkeypatch.setattr(
        SshConnection,
        "_sha256",
        lambda self, path, size: (
            (Path(path).exists() and Path(path).write_bytes(b"abd")),
            honest(self, path, size),
        )[1],
    )
    with pytest.raises(
        GuestError, match=f"SHA-256 .* arrived, {hashlib.sha256(b'abc').hexdigest()} was sent"
    ):
        connection.put(tmp_path / "source", "file")
    assert not (guest / "file").exists()


@needs_root  # to mount
@pytest.mark.parametrize("kib", [64, 8192])
def test_a_full_disk_of_the_guest_is_named_with_how_much_arrived(connection, guest, tmp_path, kib):
    """Of a few requests, and of so many that the server's answers come during the transfer."""
    size = (kib << 10) + 100_000
    (tmp_path / "source").write_bytes(bytes(size))
    with mounted(guest, kib):
        with pytest.raises(GuestError, match=rf": file: only \d+ of {size} bytes arrived; is") as caught:
            connection.put(tmp_path / "source", "file")
        assert f"is the disk of {guest} there full?" in str(caught.value)
        connection.drop()
        assert not (guest / "file").exists()
    (tmp_path / "source").write_bytes(b"abc")
    connection.put(tmp_path / "source", "file")
    assert (guest / "file").read_bytes() == b"abc"


def test_a_file_that_is_missing_too_large_or_a_link_is_not_fetched(connection, guest, tmp_path):
    guest.mkdir()
    (guest / "large").write_bytes(b"x" * 10)
    with pytest.raises(GuestError, match="larger than the 9 bytes"):
        connection.get("large", tmp_path / "back", max_bytes=9)
    (guest / "link").symlink_to("/etc/passwd")
    (guest / "folder").mkdir()
    for name in ("link", "folder", "missing"):
        with pytest.raises(GuestError, match="not a plain file"):
            connection.get(name, tmp_path / "back", max_bytes=10**6)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b"])
def test_no_path_leads_out_of_the_guests_folder(connection, tmp_path, path):
    (tmp_path / "source").write_bytes(b"abc")
    for attempt in (
        lambda: connection.put(tmp_path / "source", path),
        lambda: connection.get(path, tmp_path / "back", 10),
        lambda: connection.remove(path),
    ):
        with pytest.raises(GuestError, match="leads out"):
            attempt()


def test_a_full_disk_on_this_side_is_not_blamed_on_the_guest(connection, guest):
    guest.mkdir()
    (guest / "file").write_bytes(b"x" * 100_000)
    assert Path("/dev/full").exists()
    with pytest.raises(StoreError, match="the disk is full; finished runs are safe"):
        connection.get("file", Path("/dev/full"), 10**6)


def test_folders_are_removed_without_following_links(connection, guest, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (guest / "out").mkdir(parents=True)
    (guest / "out" / "link").symlink_to(tmp_path / "outside")
    connection.remove("out")
    assert not (guest / "out").exists()
    assert (tmp_path / "outside" / "kept").exists()


# ---- trust -----------------------------------------------------------------------------------


def test_a_host_that_shows_another_key_is_refused(target, keys, guest, tmp_path):
    other = key_pair(tmp_path / "other" / "key")
    keys.pin("127.0.0.1", target.port, other.public)
    with pytest.raises(GuestError, match=r"shows the host key SHA256:.*, SHA256:.* is pinned in "):
        SshConnection(target, str(guest), sys.executable).connect()
    assert not guest.exists()


def test_a_host_whose_key_is_not_pinned_is_refused_and_not_learned(target, keys, guest, server):
    keys.known_hosts.unlink()
    with pytest.raises(GuestError, match="its host key is not known") as caught:
        SshConnection(target, str(guest), sys.executable).connect()
    assert parse_public(server.host.public) in caught.value.message  # what to write down, when it is right
    assert not keys.known_hosts.exists()


def test_a_key_that_the_host_does_not_know_is_told(target, guest, tmp_path):
    import dataclasses

    other = dataclasses.replace(target, key=key_pair(tmp_path / "other" / "key").private)
    with pytest.raises(GuestError, match="refuses the key"):
        SshConnection(other, str(guest), sys.executable).connect()


def test_an_agent_and_the_users_own_keys_play_no_part(target, guest, server, tmp_path, monkeypatch):
    import dataclasses

    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host 127.0.0.1\n  Port 1\n  User nobody\n  ForwardAgent yes\n")
    (home / ".ssh" / "id_ed25519").write_bytes(server.client.private.read_bytes())
    (home / ".ssh" / "id_ed25519").chmod(0o600)
    monkeypatch.setenv("HOME", str(home))
    connection = SshConnection(target, str(guest), sys.executable)
    assert connection.run(["true"], {}, 20).status == 0  # neither the port nor the user of ~/.ssh/config
    assert "SSH_AUTH_SOCK" not in connection.run(["env"], {}, 20).stdout
    connection.close()
    other = dataclasses.replace(target, key=key_pair(tmp_path / "other" / "key").private)
    with pytest.raises(GuestError, match="refuses the key"):  # ~/.ssh/id_ed25519 would have done
        SshConnection(other, str(guest), sys.executable).connect()


def test_private_keys_are_for_their_owner_only(tmp_path):
    keys = StudyKeys.of(Store(tmp_path))
    pair = keys.client()
    assert pair.private.stat().st_mode & 0o777 == 0o600
    assert pair.private.parent.stat().st_mode & 0o777 == 0o700
    assert keys.client() == pair  # made once
    assert pair.public.startswith("ssh-ed25519 AAAA")


# ---- faults ----------------------------------------------------------------------------------


def test_a_server_that_dies_ends_the_stream_with_the_reason(connection, server, target):
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    stream = connection.open(python(program), {})
    pid = int(stream.receive(120))
    server.kill()
    assert stream.receive(120) == b""
    assert stream.how_it_ended() == f"the connection to {target} was lost"
    stream.kill()
    os.kill(pid, signal.SIGKILL)  # nobody else is there to end it


def test_a_command_that_loses_its_connection_ends_with_the_reason(connection, target, monkeypatch):
    shut = paramiko.Channel.shutdown_write

    def cut(channel: paramiko.Channel) -> None:
        channel.get_transport().sock.shutdown(socket.SHUT_RDWR)
        channel.get_transport().join(60)
        shut(channel)
        raise EOFError  # as paramiko does where the connection ends a moment later

    monkeypatch.setattr(paramiko.Channel, "shutdown_write", cut)
    with pytest.raises(GuestError, match=f"the connection to {target} was lost"):
        connection.run(["sleep", "1"], {}, 20)


def test_a_stream_whose_connection_is_lost_while_it_is_killed_is_killed(connection, monkeypatch):
    def cut(channel: paramiko.Channel) -> None:
        raise EOFError

    stream = connection.open(["sleep", "600"], {})
    with monkeypatch.context() as patch:
        patch.setattr(paramiko.Channel, "close", cut)
        stream.kill()
    assert stream.receive(120) == b""


def test_a_command_that_is_killed_before_it_has_begun_does_not_begin(target, guest, tmp_path):
    os.mkfifo(tmp_path / "cgroup")  # the shell waits here for a reader
    connection = SshConnection(target, str(guest), sys.executable, join=str(tmp_path / "cgroup"))
    connection.open(["touch", str(tmp_path / "ran")], {}).kill()
    shell = int((tmp_path / "cgroup").read_text())
    assert ends(shell)
    assert not (tmp_path / "ran").exists()
    assert not list((guest / ".pids").iterdir())
    connection.close()


def test_a_server_without_sftp_is_named(tmp_path, keys):
    with sshd.running(tmp_path / "bare", "") as server:
        connection = SshConnection(server.target(keys), str(tmp_path / "guest"), sys.executable)
        (tmp_path / "file").touch()
        with pytest.raises(GuestError, match="has no SFTP; its sshd_config needs a line `Subsystem sftp`"):
            connection.put(tmp_path / "file", "file")
        connection.close()


def test_a_server_that_comes_back_is_found_again(connection, server, target):
    connection.target = dataclasses.replace(target, patience_s=120)
    assert connection.run(["true"], {}, 20).status == 0
    server.kill()
    again = threading.Timer(1.0, server.start)
    again.start()
    assert connection.run(["echo", "back"], {}, 20).stdout == "back\n"
    again.join()


def test_a_server_that_stays_silent_after_its_greeting_is_told_when_connect_timeout_s_is_over(target, guest):
    def greet(channel: socket.socket) -> None:
        with channel.accept()[0] as asked:
            asked.sendall(b"SSH-2.0-silent\r\n")
            while asked.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as silent:
        answering = threading.Thread(target=greet, args=[silent])
        answering.start()
        port = silent.getsockname()[1]
        hasty = dataclasses.replace(target, port=port, connect_timeout_s=0.5, patience_s=0)
        began = time.monotonic()
        with pytest.raises(GuestError, match="cannot be reached"):
            SshConnection(hasty, str(guest), sys.executable).connect()
        assert time.monotonic() - began < 14  # paramiko's own limit is 15 s
        answering.join()


def test_a_server_that_stays_away_is_told_after_a_while(connection, server):
    connection.connect()
    server.kill()
    began = time.monotonic()
    with pytest.raises(GuestError, match="cannot be reached"):
        connection.run(["true"], {}, 20)
    assert 1 < time.monotonic() - began < 600


def test_a_port_that_answers_with_something_else_is_told(target, guest):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = dataclasses.replace(
            target, port=silent.getsockname()[1], connect_timeout_s=0.5, patience_s=0.5
        )
        with pytest.raises(GuestError, match="cannot be reached"):
            SshConnection(other, str(guest), sys.executable).connect()


def test_a_closed_connection_stays_closed(connection):
    connection.connect()
    connection.close()
    with pytest.raises(GuestError, match="was closed"):
        connection.run(["true"], {}, 5)


def test_the_users_own_ssh_enters_a_guest_of_a_study_whose_path_has_spaces_and_percent_signs(
    server, tmp_path
):
    keys = StudyKeys.of(Store(tmp_path / "50%d of a study"))
    keys.folder.mkdir(parents=True)
    target = server.target(keys)
    own = keys.folder / "id_ed25519"
    own.write_bytes(server.client.private.read_bytes())
    own.chmod(0o600)
    connection = SshConnection(dataclasses.replace(target, key=own), str(tmp_path), sys.executable)
    argv, folder = connection.terminal(["echo", "in"])
    done = subprocess.run(
        argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
