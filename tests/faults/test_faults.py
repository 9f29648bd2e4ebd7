"""Whatever else happens to a sweep: it copes alone or ends with a clear message, and run again it leaves the
study as if nothing had happened."""

import os
import shutil
import subprocess

import pytest

from guest.records.run import HISTORY, PREDICTIONS, RECORD
from tests.faults import damage
from tests.faults.mishaps import CLOCKS, FAULTS, FLIPPED, FULL_DISKS_KIB
from tests.faults.scenes import require_whole
from tests.mounts import mounted

pytestmark = pytest.mark.needs("faults")
ANALYSED = (RECORD, HISTORY, PREDICTIONS)  # of a run that nothing is compared with, the rest is not read


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.mishap.name) for fault in FAULTS])
def test_a_fault_is_coped_with_or_told_and_costs_no_run_and_no_bit(scene, whole, fault):
    sides = {fault.side: fault.mishap}
    status, said = scene.sweep(host=sides.get("host"), guest=sides.get("guest"))
    assert scene.was_reached(fault.mishap), f"it did not happen; the sweep said {said}"
    assert "Traceback" not in said
    assert status == fault.status, said
    require_whole(scene, whole.bits())


def test_runs_of_a_clock_that_was_set_are_analysed_and_shown_on_the_timeline(scene, whole):
    (fault,) = [fault for fault in CLOCKS if "back a day during a run" in fault.mishap.name]
    status, said = scene.sweep(host=fault.mishap)
    assert status == 0, said
    records = scene.records().values()
    assert any(record.finished_at < record.started_at for record in records), "the clock went back in it"
    assert scene.vbstudy("analyze") == 0
    assert (scene.store.report / "index.html").is_file()


# ---- file systems of their own ---------------------------------------------------------------------


def move_onto(folder, scene) -> None:
    """The study on that file system."""
    shutil.copytree(scene.directory, folder, dirs_exist_ok=True)
    shutil.rmtree(scene.directory)
    scene.directory.symlink_to(folder)


@pytest.mark.parametrize("left_kib", FULL_DISKS_KIB)
def test_a_disk_that_fills_up_is_told_and_the_sweep_goes_on_when_there_is_room(
    tmp_path, scene, whole, left_kib
):
    disk = tmp_path / "disk"
    with mounted(disk, 4096):
        move_onto(disk, scene)
        status, said = scene.sweep()
        assert status == 0, "there is room for all"
        for path in (scene.store.runs, scene.store.guests):
            shutil.rmtree(path)
        scene.store.checked_file.unlink()
        free = os.statvfs(disk)
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * max(free.f_bavail * free.f_frsize - left_kib * 1024, 0))
        status, said = scene.sweep()
        assert status in (1, 6), said
        assert "Traceback" not in said
        assert "full" in said or "failed" in said
        ballast.unlink()
        require_whole(scene, whole.bits())


def test_a_store_that_is_mounted_read_only_is_told(tmp_path, scene, whole):
    disk = tmp_path / "disk"
    with mounted(disk, 8192):
        move_onto(disk, scene)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        status, said = scene.sweep()
        assert (status, "Traceback" in said) == (6, False), said
        assert "cannot be written: Read-only file system" in said
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        require_whole(scene, whole.bits())


# ---- what is stored --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLIPPED)
def test_a_flipped_bit_is_named_by_verify_left_out_by_analyze_and_redone_by_sweep(scene, whole, name, capsys):
    scene.take_runs(whole)
    assert scene.vbstudy("sweep") == 0
    damaged = scene.flip(name)
    capsys.readouterr()
    assert scene.vbstudy("verify") == 6
    told = capsys.readouterr()
    assert f"runs/one/fixed-seed/cpus-1/0001: {name}" in told.out + told.err
    if name in ANALYSED:
        assert scene.vbstudy("analyze") == 0
        told = capsys.readouterr()
        assert f"one/fixed-seed/cpus-1/0001: {name}" in " ".join((told.out + told.err).split())
    require_whole(scene, whole.bits())
    (kept,) = scene.store.quarantined.glob(f"*/*/*/*/{name}")
    assert kept.read_bytes() == damaged


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_the_index_is_never_the_truth(scene, whole, how):
    scene.take_runs(whole)
    assert scene.vbstudy("sweep") == 0
    if how == "gone":
        scene.store.checked_file.unlink()
    for at in (0.1, 0.3, 0.5, 0.7, 0.9) if how == "damaged" else ():
        damage.flip(scene.store.checked_file, at)
    scene.flip("weights.safetensors")
    require_whole(scene, whole.bits())
    assert len(list(scene.store.quarantined.glob(f"*/*/*/*/{RECORD}"))) == 1


def test_a_damaged_inventory_is_told_and_written_anew(scene, whole, capsys):
    damage.flip(scene.store.guests_file, 0.0)
    assert scene.vbstudy("sweep") == 6
    assert "run `vbstudy -C" in capsys.readouterr().err
    scene.provision()
    require_whole(scene, whole.bits())


def test_a_run_that_comes_back_from_elsewhere_is_not_computed_again(scene, whole):
    """Finished here, lost, swept anew, and then restored from a backup of this machine or another one."""
    scene.take_runs(whole)
    shutil.rmtree(scene.store.runs / "one")
    shutil.copytree(whole.store.runs / "one", scene.store.runs / "one")
    before = {run: record.finished_at for run, record in whole.records().items()}
    require_whole(scene, whole.bits())
    assert {run: record.finished_at for run, record in scene.records().items()} == before
