"""The wire of dask: who listens where, and peers that are no scheduler, or lack the certificate."""

import contextlib
import http.client
import shutil
import socket
import struct
import time

import pytest

from orchestrator.errors import GuestError
from orchestrator.fleet import clusters
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable
from tests.orchestrator.fleet.fleets import fleet
from tests.orchestrator.fleet.test_dask import ONE_CPU, certificates, made
from tests.orchestrator.sweep.test_pipeline import records
from tests.security.peers import listening

SECURITY = 'ca = "ca.pem"\ncert = "cert.pem"\nkey = "key.pem"\n'
NOISE = {
    "another server": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100,
    "a message of 4 EiB": struct.pack("<Q", 2**62),
    "a frame of 1 TiB": struct.pack("<QQQ", 16, 1, 2**40) + b"\xc1" * 1000,
    "a list of 4 billion": struct.pack("<QQQ", 13, 1, 5) + b"\xdd\xff\xff\xff\xff",
    "frames without end": struct.pack("<QQQQ", 24, 2**61, 2**40, 2**40),
}


@contextlib.contextmanager
def peer(says: bytes):
    """An address at which something says this and then nothing."""

    def talk(connection, ends):
        connection.sendall(says)
        ends.wait(1200)

    with listening(talk) as port:
        yield f"tcp://127.0.0.1:{port}"


@pytest.mark.parametrize("kind", NOISE)
def test_what_is_no_scheduler_is_told_at_once(kind):
    with peer(NOISE[kind]) as address, pytest.raises(GuestError, match="is no dask scheduler"):
        clusters._connect(address, None, 3.0, print)


def test_who_is_silent_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_TIMEOUT_S", 1.0)
    began = time.monotonic()
    with peer(b"") as address, pytest.raises(GuestError, match="does not answer: is it running"):
        clusters._connect(address, None, 0.0, print)
    assert time.monotonic() - began < 600


@pytest.mark.needs("dask")
@pytest.mark.parametrize("kind", [None, "another server"])
def test_a_worker_of_what_is_no_scheduler_ends_when_it_has_waited(tmp_path, kind):
    with peer(NOISE[kind] if kind else b"") as address, fleet(tmp_path) as there:
        there.address = address
        assert there.start_worker("host", "--wait", "3").wait(600) == 4
        assert f"the scheduler {address} did not answer within --wait 3 s" in there.log("host")
        assert len(there.log("host").splitlines()) < 5


@pytest.mark.needs("dask")
def test_a_worker_listens_only_where_its_scheduler_reaches_it(tmp_path):
    import psutil

    with fleet(tmp_path) as there:
        there.scheduler()
        worker = there.worker("host", "--cores", "0")
        open_ = {each.laddr.ip for each in psutil.Process(worker.pid).net_connections() if not each.raddr}
    assert open_ == {"127.0.0.1"}


@pytest.mark.needs("dask")
def test_who_has_no_certificate_gets_nothing_from_a_scheduler_with_tls_and_disturbs_nobody(tmp_path):
    keys = certificates(tmp_path / "tls")
    certificates(tmp_path / "others")
    mixed = tmp_path / "mixed"  # trusts the scheduler, and proves itself by another authority's
    shutil.copytree(tmp_path / "others", mixed)
    shutil.copy(tmp_path / "tls/ca.pem", mixed)
    for folder in (tmp_path / "tls", tmp_path / "others", mixed):
        (folder / "security.toml").write_text(SECURITY)
    directory = made(tmp_path / "study", ONE_CPU)
    with fleet(tmp_path / "fleet", protocol="tls", tls=keys) as there:
        there.scheduler()
        plain = there.address.replace("tls", "tcp")
        there.worker("host", "--security", str(tmp_path / "tls/security.toml"))
        for says in (b"", b"x" * 100_000, struct.pack("<Q", 2**62), b"\x16\x03\x01\xff\xff"):
            with socket.create_connection(("127.0.0.1", there.port)) as connection:
                connection.sendall(says)
        connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=600)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b""
        connection.close()
        for address, security in (
            (plain, None),
            (there.address, clusters.read_security(tmp_path / "others/security.toml")),
            (there.address, clusters.read_security(mixed / "security.toml")),
        ):
            with pytest.raises(GuestError, match="do both ends use TLS with certificates of one authority"):
                clusters._connect(address, security, 1.0, print)
        worker = there.start_worker("other", "--wait", "5", "--security", str(mixed / "security.toml"))
        assert worker.wait(600) == 4
        sweep = there.sweep(directory, "--runs", "1", "--security", str(tmp_path / "tls/security.toml"))
        assert sweep.wait(600) == 0, there.log("sweep")
    assert len(records(directory)) == 1


@pytest.mark.needs("dask")
def test_another_account_gets_nothing_from_a_cluster_that_was_started_for_a_sweep(tmp_path):
    settings = EngineTable(kind="dask")
    with (
        clusters.scheduler(settings, Store(tmp_path), print) as connect,
        contextlib.closing(connect(600.0)) as client,
    ):
        client.wait_for_workers(1, timeout=600)
        workers = client.scheduler_info()["workers"]
        for address in (client.scheduler.address, *workers, *(each["nanny"] for each in workers.values())):
            plain = address.replace("tls://", "tcp://")
            with pytest.raises(GuestError, match="do both ends use TLS with certificates of one authority"):
                clusters._connect(plain, None, 0.0, print)
