"""The same on many hosts: schedulers, workers and sweeps are processes of their own, and are killed."""

import contextlib
import subprocess

import pytest

from tests.faults.arming import Mishap, Place
from tests.faults.points import POINTS
from tests.faults.scenes import KILLED, PATIENCE_S, Scene, require_whole
from tests.orchestrator.fleet.fleets import Fleet, fleet, wait_until

pytestmark = pytest.mark.needs("faults")
SLOW_STEP = Mishap(
    name="the scheduler forgets",
    place=Place(point="step done", doing="__import__('time').sleep(3)"),
)


def of(side: str):
    there = [point for point in POINTS if point.scene == "hosts" and point.side == side]
    return [pytest.param(point, id=point.crash.name) for point in there]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("hosts")) as there:
        there.scheduler()
        yield there


@contextlib.contextmanager
def worker(hosts: Fleet, scene: Scene):
    """A host's worker, which leaves nothing behind when it is ended."""
    name = f"worker-{len(list(hosts.folder.iterdir()))}"
    process = hosts._start(
        name, "-m", "tests.faults.host_main", str(scene.arms), "worker",
        "worker", hosts.address, "--folder", str(scene.folder / "host"), "--cores", "0",
    )  # fmt: skip
    try:
        wait_until(lambda: "at work" in hosts.log(name), process)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def finish(sweep: subprocess.Popen) -> None:
    said = sweep.communicate(timeout=PATIENCE_S)[0]
    assert sweep.returncode == 0, said


@pytest.mark.parametrize("point", of("worker"))
def test_a_killed_worker_costs_no_run_and_no_bit(scene, whole, hosts, point):
    scene.arm("worker", point.crash)
    with worker(hosts, scene) as first:
        sweep = scene.start("sweep", "--scheduler", hosts.address)
        wait_until(lambda: first.poll() is not None)
        assert (first.returncode, scene.was_reached(point.crash)) == (KILLED, True)
    scene.disarm()
    with worker(hosts, scene):
        finish(sweep)
    require_whole(scene, whole.bits())
    assert not list(scene.folder.glob("host/*/slot-*"))


@pytest.mark.needs("faults", long=True)
@pytest.mark.parametrize("point", of("orchestrator"))
def test_a_killed_sweep_takes_up_what_its_hosts_have(scene, whole, hosts, point):
    with worker(hosts, scene):
        first = scene.start("sweep", "--scheduler", hosts.address, host=point.crash)
        said = first.communicate(timeout=PATIENCE_S)[0]
        assert (first.returncode, scene.was_reached(point.crash)) == (KILLED, True), said
        scene.disarm()
        finish(scene.start("sweep", "--scheduler", hosts.address))
    require_whole(scene, whole.bits())
    assert not list(scene.folder.glob("host/*/slot-*"))


def test_a_scheduler_that_forgets_everything_costs_no_run_and_no_bit(tmp_path, scene, whole):
    with fleet(tmp_path / "fleet") as there:
        scheduler = there.scheduler()
        scene.arm("guest", SLOW_STEP)
        with worker(there, scene):
            sweep = scene.start("sweep", "--scheduler", there.address)
            wait_until(lambda: scene.was_reached(SLOW_STEP), sweep)
            scheduler.kill()
            scheduler.wait()
            there.scheduler()
            finish(sweep)
    require_whole(scene, whole.bits())
