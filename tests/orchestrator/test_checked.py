import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guest.records import ARTIFACTS, LOG, RECORD
from orchestrator.checked import opened
from orchestrator.resume import resume
from orchestrator.store import Store
from tests import factories
from tests.orchestrator.test_store import DAMAGE, publish

SPECS = [factories.spec(repetition=n) for n in (1, 2, 3, 4)]


@pytest.fixture
def store(tmp_path):
    """Three of four planned runs, found whole."""
    store = Store(tmp_path)
    for spec in SPECS[:3]:
        publish(store, spec)
    assert look(store).read == 3
    return store


def look(store, specs=SPECS):
    with opened(store.checked_file, store.runs) as checked:
        return resume(store, specs, checked)


def test_what_was_found_whole_is_not_read_again_and_what_is_missing_is_left_to_run(store):
    found = look(store)
    assert (found.read, found.damaged) == (0, [])
    assert found.done == SPECS[:3]


def test_without_the_file_all_is_read_and_the_file_is_there_again(store):
    store.checked_file.unlink()
    assert (look(store).read, look(store).read) == (3, 0)


@pytest.mark.parametrize("name", [*ARTIFACTS, RECORD])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_any_file_is_found_whatever_is_known_of_the_run(store, name, damage):
    if name == RECORD and "link" in damage:
        return  # a record behind a link still carries its own checksum
    DAMAGE[damage](store.folder(SPECS[1]) / name)
    found = look(store)
    assert [spec for spec, _ in found.damaged] == [SPECS[1]]
    assert (found.read, found.done) == (1, [SPECS[0], SPECS[2]])
    assert look(store).damaged == found.damaged  # and found again


def test_a_flipped_bit_shows_though_size_and_time_are_put_back(store):
    path = store.folder(SPECS[0]) / LOG
    kept = path.stat()
    DAMAGE["a flipped byte"](path)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert [spec for spec, _ in look(store).damaged] == [SPECS[0]]


def test_a_run_that_was_only_touched_is_read_and_known_again(store):
    os.utime(store.folder(SPECS[0]) / LOG)
    assert (look(store).read, look(store).read) == (1, 0)


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


def test_runs_of_another_folder_in_its_place_are_read(store, tmp_path):
    """The store was copied, or the folders were exchanged: equal bytes, other inodes."""
    first, second = (store.folder(spec) for spec in SPECS[:2])
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    with opened(store.checked_file, store.runs) as checked:
        assert [checked.holds(spec) for spec in SPECS[:3]] == [False, False, True]


def test_a_file_cut_anywhere_costs_a_reading_and_no_mistake(store):
    whole = store.checked_file.read_bytes()
    for length in range(len(whole)):
        store.checked_file.write_bytes(whole[:length])
        found = look(store)
        assert (found.done, found.damaged) == (SPECS[:3], [])
        assert store.checked_file.read_bytes().count(b"\n") == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(junk=st.binary(max_size=200), behind=st.booleans())
def test_no_content_of_the_file_makes_a_run_done_or_stops_the_sweep(store, junk, behind):
    store.checked_file.write_bytes((store.checked_file.read_bytes() if behind else b"") + junk)
    found = look(store)
    assert (found.done, found.damaged) == (SPECS[:3], [])


def test_a_file_that_cannot_be_written_costs_a_reading(store):
    store.checked_file.unlink()
    store.checked_file.mkdir()
    assert (look(store).read, look(store).read) == (3, 3)
