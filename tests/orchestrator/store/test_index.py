import hashlib
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guest.records.run import (
    ARTIFACTS,
    LOG,
    RECORD,
    RECORDING,
    SELECTED,
    WEIGHTS,
    Artifact,
    Random,
)
from orchestrator.store.index import opened
from orchestrator.store.store import Store
from orchestrator.sweep.pipeline import resume
from tests import factories
from tests.orchestrator.store.test_store import DAMAGE, publish

SPECS = [factories.spec(repetition=n) for n in (1, 2, 3, 4)]


@pytest.fixture
def store(tmp_path):
    """Three of four planned runs, found whole."""
    store = Store(tmp_path)
    for spec in SPECS[:3]:
        publish(store, spec)
    assert resumed(store).read == 3
    return store


def resumed(store, specs=SPECS):
    with opened(store.checked_file, store.runs) as checked:
        return resume(store, specs, checked)


def test_what_was_found_whole_is_not_read_again_and_what_is_missing_is_left_to_run(store):
    found = resumed(store)
    assert (found.read, found.damaged) == (0, [])
    assert found.done == SPECS[:3]


def test_without_the_file_all_is_read_and_the_file_is_there_again(store):
    store.checked_file.unlink()
    assert (resumed(store).read, resumed(store).read) == (3, 0)


@pytest.mark.parametrize("name", [*ARTIFACTS, RECORD])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_any_file_is_found_whatever_is_known_of_the_run(store, name, damage):
    DAMAGE[damage](store.folder(SPECS[1]) / name)
    found = resumed(store)
    assert [spec for spec, _ in found.damaged] == [SPECS[1]]
    assert (found.read, found.done) == (1, [SPECS[0], SPECS[2]])
    assert resumed(store).damaged == found.damaged  # and found again


def test_a_flipped_bit_shows_though_size_and_time_are_put_back(store):
    path = store.folder(SPECS[0]) / LOG
    kept = path.stat()
    DAMAGE["a flipped byte"](path)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert [spec for spec, _ in resumed(store).damaged] == [SPECS[0]]


def test_a_run_that_was_only_touched_is_read_and_known_again(store):
    os.utime(store.folder(SPECS[0]) / LOG)
    assert (resumed(store).read, resumed(store).read) == (1, 0)


def test_runs_asked_for_in_another_way_are_not_those_that_are_known(store):
    with opened(store.checked_file, store.runs) as checked:
        assert checked.holds(SPECS[0])
        for changed in (
            {"workload": factories.workload(epochs=9)},
            {"study_id": "other"},
            {"seeds": factories.spec().seeds.__class__()},
        ):
            assert not checked.holds(factories.spec(**changed))
        assert checked.holds(factories.spec(schema_version=0))  # it asks for nothing


def test_a_run_whose_limits_were_raised_since_is_not_read_again(store):
    spec, raised, other = (
        factories.spec(workload=factories.workload(name="mine", project=factories.project(**changes)))
        for changes in ({}, {"timeout_s": 9.0, "disk_limit_mib": 2}, {"command": ("python", "other.py")})
    )
    publish(store, spec)
    assert [resumed(store, [each]).read for each in (spec, raised)] == [1, 0]
    with opened(store.checked_file, store.runs) as checked:
        assert not checked.holds(other)


def test_runs_of_another_folder_in_its_place_are_read(store, tmp_path):
    """The store was copied, or the folders were exchanged: equal bytes, other inodes."""
    first, second = (store.folder(spec) for spec in SPECS[:2])
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    with opened(store.checked_file, store.runs) as checked:
        assert [checked.holds(spec) for spec in SPECS[:3]] == [False, False, True]


@pytest.mark.needs("studies")
def test_a_file_cut_anywhere_costs_a_reading_and_no_mistake(store):
    whole = store.checked_file.read_bytes()
    for length in range(len(whole)):
        store.checked_file.write_bytes(whole[:length])
        found = resumed(store)
        assert (found.done, found.damaged) == (SPECS[:3], [])
        assert store.checked_file.read_bytes().count(b"\n") == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(junk=st.binary(max_size=200), behind=st.booleans())
def test_no_content_of_the_file_makes_a_run_done_or_stops_the_sweep(store, junk, behind):
    store.checked_file.write_bytes((store.checked_file.read_bytes() if behind else b"") + junk)
    found = resumed(store)
    assert (found.done, found.damaged) == (SPECS[:3], [])


def test_a_file_that_cannot_be_written_costs_a_reading(store):
    store.checked_file.unlink()
    store.checked_file.mkdir()
    assert (resumed(store).read, resumed(store).read) == (3, 3)


def test_a_run_of_a_user_project_without_a_selected_model_is_known_too(store):
    project = factories.project(random=Random.REPLAY)
    spec = factories.spec(workload=factories.workload(name="mine", project=project))
    folder = store.new_incoming()
    manifest = factories.fill(folder)
    for name in (SELECTED, WEIGHTS):
        del manifest[name]
        (folder / name).unlink()
    (folder / RECORDING).write_bytes(b"drawn")
    manifest[RECORDING] = Artifact(sha256=hashlib.sha256(b"drawn").hexdigest(), size_bytes=5)
    assert store.publish(folder, factories.record(spec, factories.result(manifest)))
    assert [resumed(store, [spec]).read for _ in range(2)] == [1, 0]
    (store.folder(spec) / RECORDING).write_bytes(b"other")
    assert [run for run, _ in resumed(store, [spec]).damaged] == [spec]
