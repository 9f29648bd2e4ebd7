"""The same with a guest behind sshd: the server dies with all its sessions and comes back, or the
orchestrator does."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.arming import SSHD_PID
from tests.faults.points import OVER_SSH, SSHD
from tests.faults.scenes import KILLED, RUNS, Scene, require_whole

pytestmark = pytest.mark.needs("faults")
PROVIDER = """
[provider]
kind = "ssh"
patience_s = 10
[[provider.hosts]]
host = "127.0.0.1"
port = {server.port}
cpus = 1
key = "{server.client.private}"
host_key = "{server.host.public}"
python = "{{python}}"
folder = "{folder}"
"""


@pytest.fixture
def scene(tmp_path, server):
    folder = tmp_path / "scene"
    made = Scene(folder, RUNS, PROVIDER.format(server=server, folder=folder / "there"))
    made.provision()
    return made


@pytest.mark.parametrize("point", SSHD, ids=lambda point: point.crash.name)
def test_a_connection_that_dies_costs_no_run_and_no_bit(tmp_path, monkeypatch, server, scene, whole, point):
    monkeypatch.setenv(SSHD_PID, str(tmp_path / "sshd" / "sshd.pid"))
    died, over = server.process, threading.Event()

    def come_back() -> bool:
        while died.poll() is None:
            if over.wait(0.05) and died.poll() is None:
                return False
        server.start()
        return True

    with ThreadPoolExecutor(1) as pool:
        back = pool.submit(come_back)
        try:
            status, said = scene.sweep(host=point.crash)
        finally:
            over.set()
    assert scene.was_reached(point.crash), said
    assert back.result()
    assert "Traceback" not in said
    assert status in (0, 4), said  # 4: no guest can be made, at the start of a session
    require_whole(scene, whole.bits())


@pytest.mark.parametrize("point", OVER_SSH, ids=lambda point: point.crash.name)
def test_an_orchestrator_that_dies_costs_no_run_and_no_bit_of_a_guest_behind_sshd(scene, whole, point):
    status, said = scene.sweep(host=point.crash)
    assert scene.was_reached(point.crash), said
    assert status == KILLED, said
    require_whole(scene, whole.bits())
