"""Killed with SIGKILL at every step of a run's life, a sweep that is run again leaves the study as if nothing
had happened."""

import pytest

from tests.faults.points import POINTS, Point
from tests.faults.scenes import KILLED, PROJECT, TORCH, Scene, require_whole

ALWAYS = (  # those that run on each change; the rest takes minutes
    "orchestrator weights.safetensors half received",
    "orchestrator before the rename",
    "orchestrator after the rename",
    "agent result half sent",
    "guest killed, epoch told",
)
IN_TORCH = ("orchestrator after the rename", "agent training step 3", "guest killed, epoch told")


def param(point: Point):
    """Kills of a project's run, and of one that failed or was damaged, take the same steps: they are long."""
    if point.crash.name in ALWAYS:
        mark = pytest.mark.needs("studies")
    else:
        mark = pytest.mark.needs("faults", long=point.scene != "sweep")
    return pytest.param(point, id=point.crash.name, marks=mark)


def of(scene: str):
    return [param(point) for point in POINTS if point.scene == scene]


def disturb(scene: Scene, point: Point) -> None:
    """The sweep in which it happens."""
    dies = point.side == "orchestrator"
    host = point.crash if point.side in ("orchestrator", "guest") else None
    status, said = scene.sweep(host=host, guest=point.crash if point.side == "agent" else None)
    assert scene.was_reached(point.crash), f"nothing was killed; the sweep said {said}"
    assert status == (KILLED if dies else 0), said
    assert "Traceback" not in said


@pytest.mark.parametrize("point", of("sweep"))
def test_a_kill_costs_no_run_and_no_bit(scene, whole, point):
    disturb(scene, point)
    require_whole(scene, whole.bits())


@pytest.mark.needs("faults", long=True)
@pytest.mark.parametrize("name", IN_TORCH)
def test_a_kill_costs_no_bit_of_a_network_in_torch(tmp_path, swept, name):
    (point,) = [point for point in POINTS if point.crash.name == name]
    whole = swept(TORCH)
    scene = Scene(tmp_path / "scene", TORCH)
    scene.provision(whole)
    disturb(scene, point)
    require_whole(scene, whole.bits())


@pytest.mark.parametrize("point", of("retry"))
def test_a_kill_while_evidence_of_a_failure_is_kept_leaves_whole_evidence_or_none(scene, whole, point):
    scene.fail_first_attempt()
    disturb(scene, point)
    require_whole(scene, whole.bits())


@pytest.mark.parametrize("point", of("damaged"))
def test_a_kill_while_a_damaged_run_is_set_aside_leaves_it_in_one_place_with_the_reason(scene, whole, point):
    scene.take_runs(whole)
    damaged = scene.flip("predictions.npz")
    disturb(scene, point)
    require_whole(scene, whole.bits())
    (kept,) = scene.store.quarantined.glob("*/*/*/*/predictions.npz")
    assert kept.read_bytes() == damaged


@pytest.mark.parametrize("point", of("project"))
def test_a_kill_costs_no_run_and_no_bit_of_a_project(tmp_path, swept, point):
    whole = swept(PROJECT)
    scene = Scene(tmp_path / "scene", PROJECT)
    scene.provision(whole)
    disturb(scene, point)
    require_whole(scene, whole.bits())
