"""The same with a guest behind sshd, which dies with all its sessions and comes back."""

import threading

import pytest

from tests import sshd
from tests.faults.arming import SSHD_PID
from tests.faults.points import POINTS
from tests.faults.scenes import PATIENCE_S, RUNS, Scene, require_whole

pytestmark = pytest.mark.faults
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("whole") / "scene", RUNS)
    scene.provision()
    assert scene.vbstudy("sweep") == 0
    return scene


@pytest.mark.parametrize(
    "point", [pytest.param(point, id=point.crash.name) for point in POINTS if point.scene == "ssh"]
)
def test_a_connection_that_dies_costs_no_run_and_no_bit(tmp_path, monkeypatch, whole, point):
    with sshd.running(tmp_path / "sshd") as server:
        folder = tmp_path / "scene"
        scene = Scene(folder, RUNS, PROVIDER.format(server=server, folder=folder / "there"))
        scene.provision()
        monkeypatch.setenv(SSHD_PID, str(tmp_path / "sshd" / "sshd.pid"))
        died, back = server.process, threading.Event()

        def come_back() -> None:
            died.wait(PATIENCE_S)
            server.start()
            back.set()

        threading.Thread(target=come_back, daemon=True).start()
        status, said = scene.sweep(host=point.crash)
        assert scene.was_reached(point.crash), said
        assert back.wait(PATIENCE_S)
        assert "Traceback" not in said
        assert status in (0, 4), said  # 4: no guest can be made, at the start of a session
        require_whole(scene, whole.bits())
