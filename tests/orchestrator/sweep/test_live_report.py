import contextlib
import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli import main as cli
from orchestrator.errors import UsageError
from orchestrator.sweep import live_report
from orchestrator.sweep.live_report import Server, Site, keep_building, serving
from tests.analysis.conftest import Fabricator
from tests.processes import wait_until

STUDY = """
name = "x"
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed"]
[[workload]]
name = "lenet5"
model = "lenet5"
dataset = "digits"
"""


@pytest.fixture
def server(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with serving(0) as server:
        server.site = Site(page=b"<p>page</p>", version="7", files={"tables/a.csv": tmp_path / "a.csv"})
        yield server


def ask(server: Server, path: str, method: str = "GET", host: str | None = None, **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{server.port}")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_it_listens_on_the_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}/{server.token}/"


def test_the_page_its_version_and_its_files_are_served(server):
    token = server.token
    status, body, headers = ask(server, f"/{token}/")
    assert (status, body) == (200, "<p>page</p>")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]
    assert ask(server, f"/{token}/version?x=1")[:2] == (200, "7")
    assert ask(server, f"/{token}/tables/a.csv")[:2] == (200, "a,b\n")
    assert ask(server, f"/{token}/", "HEAD")[:2] == (200, "")
    assert ask(server, f"/{token}/", host=f"localhost:{server.port}")[0] == 200


HOSTS = ("evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:{port}", "[::1]:{port}")


@pytest.mark.parametrize("host", HOSTS)
def test_requests_that_name_another_host_are_refused(server, host):
    """A page whose name was made to lead to 127.0.0.1 still says its own name."""
    status, body, _ = ask(server, f"/{server.token}/", host=host.format(port=server.port))
    assert status == 403
    assert "page" not in body


def test_a_request_without_a_host_or_with_two_is_refused(server):
    assert ask(server, f"/{server.token}/", host="")[0] == 400
    good = f"127.0.0.1:{server.port}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.putrequest("GET", f"/{server.token}/", skip_host=True)
    connection.putheader("Host", good)
    connection.putheader("Host", "evil.example")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/version",
        "/wrong/version",
        "/{token}",
        "/{token}/tables",
        "/{token}/tables/",
        "/{token}/tables/b.csv",
        "/{token}/../etc/passwd",
        "/{token}/tables/../../../../etc/passwd",
        "/{token}//etc/passwd",
        "/{token}/%2e%2e/etc/passwd",
        "/%ff/",
    ],
)
def test_nothing_else_is_there(server, path):
    status, body, _ = ask(server, path.format(token=server.token))
    if path == "/{token}":
        assert status in (200, 404)
    else:
        assert (status, body) == (404, "there is nothing here\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_nothing_can_be_done_but_read(server, method):
    assert ask(server, f"/{server.token}/", method)[0] == 501


def test_garbage_and_floods_leave_it_serving(server, monkeypatch):
    import socket

    for junk in (
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"",
    ):
        with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
            raw.sendall(junk)
    idle = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(3 * live_report.AT_ONCE)]
    time.sleep(0.5)
    assert threading.active_count() < 2 * live_report.AT_ONCE
    for each in idle:
        each.close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if ask(server, f"/{server.token}/")[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
    raise AssertionError("it serves no more")


def trickle(port, ends):
    """A client that sends a byte now and then, and never a whole request."""
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        while not ends.wait(0.1):
            slow.sendall(b"x")


def test_slow_clients_keep_nobody_out(server):
    ends = threading.Event()
    slow = [threading.Thread(target=trickle, args=(server.port, ends)) for _ in range(20)]
    for each in slow:
        each.start()
    time.sleep(0.5)
    try:
        for _ in range(5):
            assert ask(server, f"/{server.token}/")[0] == 200
    finally:
        ends.set()
        for each in slow:
            each.join()


def test_a_request_has_a_deadline_also_while_bytes_come(server, monkeypatch):
    monkeypatch.setattr(live_report, "REQUEST_TIMEOUT_S", 0.5)
    slow = threading.Thread(target=trickle, args=(server.port, threading.Event()))
    slow.start()
    slow.join(120)
    assert not slow.is_alive()


def test_a_port_that_is_taken_is_told(server):
    with pytest.raises(UsageError, match=f"--port {server.port}: "), serving(server.port):
        pass


class Frames:
    """A watcher that shows one moment after the other, and is interrupted after the last."""

    def __init__(self, *moments):
        self.moments = list(moments)

    def look(self):
        if not self.moments:
            raise KeyboardInterrupt
        return self.moments.pop(0)


def test_a_page_is_made_for_every_change_and_for_nothing_else(server, monkeypatch):
    monkeypatch.setattr(live_report.time, "sleep", lambda seconds: None)
    none, one = (SimpleNamespace(set_id="a", done=done, planned=2) for done in (0, 1))
    first = SimpleNamespace(sets=[none], alive=True)
    second = SimpleNamespace(sets=[one], alive=True)
    last = SimpleNamespace(sets=[one], alive=False)
    made = []

    def build(moment: SimpleNamespace, version: str, folder: Path) -> bytes:
        made.append((moment, version))
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        (folder / "tables" / "t.csv").write_text(version)
        (folder / "tables" / "secret.pem").write_text("no kind that is served")
        return version.encode()

    with pytest.raises(KeyboardInterrupt):
        keep_building(server, Frames(first, first, second, second, last, last), build)
    assert made == [(first, "1"), (second, "2"), (last, "3")]
    assert (server.site.page, server.site.version, list(server.site.files)) == (b"3", "3", ["tables/t.csv"])
    assert ask(server, f"/{server.token}/tables/t.csv")[0] == 404  # the folder has gone with its maker


@pytest.fixture
def study(tmp_path):
    """Three of four planned runs."""
    study = Fabricator(tmp_path)
    for cpus, repetition in ((1, 1), (1, 2), (2, 1)):
        study.run(cpus, repetition)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_without_live_the_report_is_written_and_its_path_printed(study, capsys, monkeypatch):
    monkeypatch.setattr(
        "analysis.report.report.write_figures", lambda analysis, folder: []
    )  # drawing takes long
    assert cli.run(["-C", str(study), "report"]) == 0
    assert capsys.readouterr().out == f"{study / 'report' / 'index.html'}\n"
    page = (study / "report" / "index.html").read_text()
    assert 'id="live"' not in page
    assert "connect-src" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--live", "--output", "x"], "it takes no --output"),
        (["--port", "80"], "--port needs --live"),
        (["--live", "--port", "70000"], "is not in the range"),
    ],
)
def test_options_that_do_not_go_together_are_told(study, capsys, arguments, message):
    assert cli.run(["-C", str(study), "report", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.needs("studies")
def test_ctrl_c_ends_it(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    process = subprocess.Popen(
        [sys.executable, "-m", "vbstudy", "-C", str(tmp_path), "report", "--live"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.+/)\n", process.stdout.readline())
        there = type("There", (), {"port": int(found[1])})
        wait_until(lambda: "no finished run" in ask(there, found[2])[1])
        assert "0 of 4 planned runs" in ask(there, found[2])[1]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0
    assert errors == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.toml"]


def test_before_the_first_run_the_live_page_says_so(tmp_path, monkeypatch):
    (tmp_path / "study.toml").write_text(STUDY)
    seen = []

    def once(server, watcher, build):
        seen.append(build(watcher.look(), "1", tmp_path / "r"))
        raise KeyboardInterrupt

    monkeypatch.setattr(live_report, "keep_building", once)
    assert cli.run(["-C", str(tmp_path), "report", "--live"]) == 0
    page = seen[0].decode()
    assert "no finished run in" in page
    assert "0 of 4 planned runs" in page
    assert 'data-version="1"' in page
