import dataclasses

import pytest

from orchestrator.inventory import Guest, GuestSpec, Observation
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import parse
from orchestrator.sweep.status import as_tables, examine, set_status
from tests import factories
from tests.orchestrator.store.test_store import publish
from tests.orchestrator.sweep.test_pipeline import STUDY

SET = factories.spec().set_id


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_runs_and_failed_attempts_are_counted_by_the_names_of_their_folders(store):
    for repetition in (1, 3, 12, 10000):
        publish(store, factories.spec(repetition=repetition))
    for repetition in (2, 2, 40):
        store.keep_failure(factories.spec(repetition=repetition), 1, store.new_incoming(), {"kind": "x"})
    status = set_status(store, SET, 12)
    assert (status.planned, status.done, status.failed_attempts, status.to_do) == (12, 3, 2, 9)
    assert set_status(store, SET, 20000).done == 4


def test_names_that_no_run_has_are_not_counted(store):
    publish(store, factories.spec())
    for name in ("1", "00002", "0003.part", "x", ".0004", "٠٠٠٥", "-001", "0000x"):
        (store.runs / SET / name).mkdir()
        (store.failed / SET / name).mkdir(parents=True)
    assert store.repetitions(SET) == {1}


def test_a_study_is_examined_while_a_sweep_holds_its_lock(store):
    study = parse(STUDY)
    publish(store, plan(study)[0])
    with store.lock("vbstudy sweep"):
        status = examine(study, store)
        assert [(each.done, each.to_do) for each in status.sets] == [(1, 1), (0, 2)]
        assert [each.planned for each in examine(study, store, 5).sets] == [5, 5]


def test_the_cpus_given_and_those_seen_inside_have_columns_of_their_own(store):
    observed = Observation(provider_cpus=3, guest_cpus=2, oversubscribed=False, start_s=1.0, details={})
    guest = Guest(spec=GuestSpec(name="cpus-4", cpus=4), observed=observed, created_at="")
    status = dataclasses.replace(examine(parse(STUDY), store), guests=(guest,))
    cells = as_tables(status)[0].frame.iloc[0]
    assert [column.header for column in as_tables(status)[0].columns[1:4]] == [
        "CPUs",
        "CPUs given",
        "CPUs seen inside",
    ]
    assert (cells.cpus, cells.given, cells.inside) == (4, 3, 2)


def test_a_store_without_runs_has_everything_to_do(store):
    assert [(each.done, each.failed_attempts) for each in examine(parse(STUDY), store).sets] == [(0, 0)] * 2
