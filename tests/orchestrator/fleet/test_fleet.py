"""What comes back from hosts is published when every byte is right, and done again when it is not."""

import dataclasses
import json
import os
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from guest.datasets import datasets
from guest.records.codec import from_json, seal, to_json
from guest.records.run import ARTIFACTS, HISTORY, LOG
from orchestrator.engine import Summary
from orchestrator.engine.packing import Room
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.fleet import fleet as fleets
from orchestrator.fleet import host as hosts
from orchestrator.fleet import tasks
from orchestrator.fleet.dask import DaskEngine
from orchestrator.fleet.dispatch import Landed, SchedulerLostError
from orchestrator.fleet.events import Events
from orchestrator.fleet.fleet import MAX_LOST, Fleet
from orchestrator.fleet.host import Host
from orchestrator.fleet.orders import FailedAttempt, Order, Receipt, decode_receipt
from orchestrator.store.index import Checked
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable
from orchestrator.study.schema import Study, parse
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY

HOST = "tcp://host:1"
SLURM = {"kind": "slurm", "jobs": 1, "cores": 1, "memory_mib": 1}


class Told:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.finished_runs, self.failed_runs, self.seen = [], [], []

    def finished(self, spec, result):
        self.finished_runs.append(spec.run_id)

    def failed(self, spec, reason, kept, *, again):
        self.failed_runs.append((reason, again))

    def started(self, guest, spec, cores):
        self.seen.append(("started", guest, cores))

    def message(self, guest, message):
        self.seen.append((message.kind, guest))


@pytest.fixture
def fleet(tmp_path):
    store = Store(tmp_path)
    checked = Checked(store.runs, {}, None)
    made = Fleet(parse(STUDY), store, "key", Told(), Summary(), checked, lambda text: None)
    made.expect([factories.spec(cpus=1)])
    made.packing.add_host(HOST, Room(cpus=1))
    return made


@pytest.fixture
def spec():
    return factories.spec(cpus=1)


def receipt(tmp_path, spec, **changes):
    folder = tmp_path / "on-the-host"
    folder.mkdir(exist_ok=True)
    names = [HISTORY, LOG] if spec.workload.project else ARTIFACTS
    record = factories.record(spec, factories.result(factories.fill(folder, names=names)))
    files = {name: (folder / name).read_bytes() for name in names}
    values = {"host": "host", "record": seal(record), "files": files}
    return Receipt(**values | changes)


def land(fleet, spec, what):
    assert list(fleet.packing.start()) == [(spec.run_id, HOST)]
    fleet.packing.ended(HOST, spec.run_id)
    fleet._take(Landed(run=spec.run_id, host=HOST, value=dataclasses.asdict(what)))


def evidence(tmp_path):
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("failed/*/*/*/*/error.json"))]


def test_what_came_as_bytes_is_checked_and_published(tmp_path, fleet, spec):
    land(fleet, spec, receipt(tmp_path, spec))
    assert Store(tmp_path).check(spec).spec == spec
    assert fleet.summary.done_now == 1
    assert fleet.checked.holds(spec)
    assert fleet.over == {spec.run_id}
    assert fleet.observer.finished_runs == [spec.run_id]
    assert not fleet.packing.waiting()
    assert fleet.take_delivered(HOST) == (spec.run_id,)
    assert fleet.take_delivered(HOST) == ()


def test_what_was_left_in_the_store_is_checked_and_published(tmp_path, fleet, spec):
    store = Store(tmp_path)
    folder = store.new_incoming()
    record = factories.record(spec, factories.result(factories.fill(folder)))
    land(fleet, spec, Receipt(host="host", record=seal(record), incoming=folder.name))
    assert store.check(spec) == record


def test_a_run_keeps_the_errors_that_its_host_counted(tmp_path, fleet, spec):
    store = Store(tmp_path)
    folder = store.new_incoming()
    record = factories.record(spec, factories.result(factories.fill(folder)))
    record = dataclasses.replace(record, attempt=2, failures={"RuntimeError": 1})
    store.keep_failure(spec, 1, store.new_incoming(), {"kind": "of an earlier sweep"})
    land(fleet, spec, Receipt(host="host", record=seal(record), incoming=folder.name))
    assert store.check(spec) == record


def damaged_byte(good):
    files = dict(good.files) | {ARTIFACTS[0]: good.files[ARTIFACTS[0]][:-1] + b"?"}
    return dataclasses.replace(good, files=files)


def missing_file(good):
    return dataclasses.replace(good, files={})


def damaged_record(good):
    return dataclasses.replace(good, record=good.record.replace('"attempt": 1', '"attempt": 2'))


def elsewhere(good):
    return dataclasses.replace(good, incoming="../../etc")


@pytest.mark.parametrize("spoilt", [damaged_byte, missing_file, damaged_record, elsewhere])
def test_what_is_damaged_is_not_published_and_done_again(tmp_path, fleet, spec, spoilt):
    good = receipt(tmp_path, spec)
    land(fleet, spec, spoilt(good))
    assert not Store(tmp_path).has(spec)
    (kept,) = evidence(tmp_path)
    assert "was damaged" in kept["message"]
    land(fleet, spec, good)
    assert Store(tmp_path).check(spec).spec == spec


def test_a_run_that_is_lost_too_often_has_failed(tmp_path, fleet, spec):
    for _ in range(MAX_LOST):
        land(fleet, spec, damaged_byte(receipt(tmp_path, spec)))
    assert fleet.summary.failed == [spec.run_id]
    assert [again for _, again in fleet.observer.failed_runs] == [True] * (MAX_LOST - 1) + [False]
    assert not fleet.packing.waiting()


def test_a_run_of_another_plan_is_not_taken(tmp_path, fleet, spec):
    other = dataclasses.replace(spec, workload=factories.workload(epochs=9))
    land(fleet, spec, receipt(tmp_path, other))
    assert "of another plan" in evidence(tmp_path)[0]["message"]
    assert not list(tmp_path.glob("runs/*"))


def test_a_run_that_a_host_kept_is_taken_though_a_limit_was_raised_since(tmp_path, fleet, spec):
    project = factories.project(timeout_s=9.0)
    fleet.specs[spec.run_id] = asked = dataclasses.replace(spec, workload=factories.workload(project=project))
    kept = dataclasses.replace(spec, workload=factories.workload(project=factories.project()))
    land(fleet, spec, receipt(tmp_path, kept))
    assert Store(tmp_path).check(asked).spec == kept


def test_failed_attempts_bring_their_evidence(tmp_path, fleet, spec):
    error = {"kind": "ValueError", "message": "no", "traceback": "Traceback"}
    failures = tuple(
        FailedAttempt(attempt=n, error=error, log=b"the log", again=again)
        for n, again in ((1, True), (2, False))
    )
    land(fleet, spec, Receipt(host="host", failures=failures))
    assert sorted(kept["attempt"] for kept in evidence(tmp_path)) == [1, 2]
    assert all(path.read_bytes() == b"the log" for path in tmp_path.glob("failed/*/*/*/*/log.txt"))
    assert fleet.summary.failed == [spec.run_id]
    assert not fleet.packing.waiting()


def test_a_run_that_was_stopped_is_done_again(fleet, spec):
    land(fleet, spec, Receipt(host="host", stopped=True))
    assert fleet.packing.waiting() == 1
    assert fleet.summary.failed == []


def test_a_host_in_trouble_gets_no_more_runs_and_another_one_takes_over(tmp_path, fleet, spec):
    land(fleet, spec, Receipt(host="host", trouble=("PrerequisiteError", "there is no qemu", "")))
    assert list(fleet.packing.start()) == []
    fleet._idle_since -= 1000
    with pytest.raises(PrerequisiteError, match="host host: there is no qemu"):
        fleet._require_hosts(False)
    fleet.packing.add_host("tcp://host:2", Room(cpus=1))
    assert list(fleet.packing.start()) == [(spec.run_id, "tcp://host:2")]


def test_attempts_that_failed_before_a_host_was_in_trouble_keep_their_evidence(tmp_path, fleet, spec):
    failed = FailedAttempt(attempt=1, error={"kind": "Lost", "message": "no"}, log=b"the log", again=True)
    land(fleet, spec, Receipt(host="host", failures=(failed,), trouble=("GuestError", "does not start", "")))
    assert [kept["message"] for kept in evidence(tmp_path)] == ["no"]
    assert (fleet.packing.waiting(), fleet.summary.failed) == (1, [])


def test_a_host_that_did_not_answer_is_asked_again_and_takes_part_when_it_does(fleet, spec, monkeypatch):
    other, asked, answers = "tcp://host:2", [], []

    def ask(client, task, *arguments, host, **how):
        asked.append(task)
        if not answers:
            raise TimeoutError
        return {"host": "host2", "provider": "", "cpu": "x"} if task is tasks.describe else []

    monkeypatch.setattr(fleets, "ask", ask)
    for _ in range(3):
        fleet._found(None, None, other, Room(cpus=1))
    assert (asked, fleet.packing.hosts()) == ([tasks.describe], [HOST])
    monkeypatch.setattr(fleets.time, "monotonic", lambda now=time.monotonic: now() + fleets.ASK_AGAIN_S)
    answers.append("it is back")
    fleet._found(None, None, other, Room(cpus=1))
    assert fleet.packing.open_hosts() == [HOST, other]
    assert not fleet._unfit


def test_a_host_keeps_what_the_store_lacks_also_where_it_is_not_asked_for(tmp_path, fleet, spec, monkeypatch):
    other, wanted, unasked = "tcp://host:2", factories.spec(cpus=1, repetition=2), "unasked/0001"
    land(fleet, spec, receipt(tmp_path, spec))
    assert fleet.take_delivered(HOST) == (spec.run_id,)
    fleet.expect([wanted])
    kept = [spec.run_id, wanted.run_id, unasked]
    described = {"host": "host2", "provider": "", "cpu": "x"}
    monkeypatch.setattr(fleets, "ask", lambda _, task, *a, **h: described if task is tasks.describe else kept)
    handed = SimpleNamespace(hand_out=lambda run, host: seen.append((run, host)))
    seen = []
    fleet._found(None, handed, other, Room(cpus=1))
    assert (fleet.take_delivered(other), seen) == ((spec.run_id,), [(wanted.run_id, other)])


def test_a_host_that_answered_what_keeps_it_from_the_study_is_not_asked_again(fleet, monkeypatch):
    asked = []
    monkeypatch.setattr(fleets, "ask", lambda *_, **how: (asked.append(how), {"trouble": "is no worker"})[1])
    for _ in range(3):
        fleet._found(None, None, "tcp://host:2", Room(cpus=1))
    assert len(asked) == 1


def test_an_answer_that_is_an_error_is_the_hosts_trouble(fleet, spec):
    assert list(fleet.packing.start()) == [(spec.run_id, HOST)]
    fleet.packing.ended(HOST, spec.run_id)
    fleet._take(Landed(run=spec.run_id, host=HOST, error="ImportError: no module"))
    assert fleet.packing.open_hosts() == []


@pytest.mark.parametrize("away", ["lost", "silent", "behind a lost scheduler"])
def test_an_unfit_host_ends_nothing_while_another_may_come_back(fleet, monkeypatch, away):
    monkeypatch.setattr(fleets, "ask", Mock(side_effect=TimeoutError))
    if away == "behind a lost scheduler":
        dispatch = Mock(step=Mock(side_effect=SchedulerLostError))
        with pytest.raises(SchedulerLostError):
            fleet.run(None, dispatch)
    fleet.packing.drop_host(HOST)
    if away == "lost":
        fleet._host_lost(HOST, [])
    fleet._refuse("tcp://host:2", PrerequisiteError("host 2: there is no qemu"))
    if away == "silent":
        fleet._found(None, None, "tcp://host:3", Room(cpus=1))
    fleet._idle_since -= fleets.PATIENCE_S + 1
    fleet._require_hosts(False)
    fleet._idle_since -= fleet.study.engine.workers_wait_s
    with pytest.raises(PrerequisiteError, match="no qemu"):
        fleet._require_hosts(False)


def test_a_host_that_comes_back_unfit_is_not_waited_for(fleet, monkeypatch):
    monkeypatch.setattr(fleets, "ask", Mock(return_value={"trouble": "there is no qemu"}))
    fleet.packing.drop_host(HOST)
    fleet._host_lost(HOST, [])
    fleet._found(None, None, "tcp://host:2", Room(cpus=1))
    fleet._idle_since -= fleets.PATIENCE_S + 1
    with pytest.raises(PrerequisiteError, match="no qemu"):
        fleet._require_hosts(False)


def test_an_unfit_host_that_the_scheduler_has_no_more_is_forgotten(fleet):
    fleet._refuse("tcp://host:2", PrerequisiteError("host 2: there is no qemu"))
    fleet._refuse("tcp://host:3", PrerequisiteError("host 3: there is no qemu"))
    dispatch = Mock(listed=frozenset({HOST, "tcp://host:3"}), step=Mock(side_effect=[[], KeyboardInterrupt]))
    with pytest.raises(KeyboardInterrupt):
        fleet.run(None, dispatch)
    assert list(fleet._unfit) == ["tcp://host:3"]


@pytest.mark.parametrize(
    ("engine", "todo"),
    [
        ({"scheduler": "tcp://a:1"}, "start `vbstudy worker SCHEDULER` on the hosts"),
        ({"cluster": SLURM | {"queue": "long"}}, "`squeue` shows the jobs in long"),
        ({"cluster": SLURM}, "in the default queue that wait .*; of those that have ended, slurm-NUMBER.out"),
        ({}, "sweep again"),
    ],
)
def test_waiting_for_nothing_ends_with_what_to_do(fleet, engine, todo):
    table = EngineTable.model_validate({"kind": "dask", **engine})
    fleet.study = fleet.study.model_copy(update={"engine": table})
    fleet.packing.drop_host(HOST)
    fleet._require_hosts(False)
    fleet._idle_since -= 10_000
    with pytest.raises(GuestError, match=f"no worker came within engine.workers_wait_s = 600: .*{todo}"):
        fleet._require_hosts(False)


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ('kind = "qemu"\nimage = "images/a.qcow2"', "image", "{study}/images/a.qcow2"),
        ('kind = "qemu"\nimage = "/srv/a.qcow2"', "image", "/srv/a.qcow2"),
        ('kind = "qemu"\nimage = "~/a.qcow2"', "image", "~/a.qcow2"),
        ('kind = "virtualbox"\nbase = "a.vdi"', "base", "{study}/a.vdi"),
        ('kind = "virtualbox"\nbase = "a machine"', "base", "a machine"),
        ('kind = "virtualbox"\nbase = "a"\nkey = "id"', "key", "{study}/id"),
        ('kind = "local"\npython = "env/bin/python"', "python", "{study}/env/bin/python"),
        ('kind = "local"\npython = "~/env/bin/python"', "python", "~/env/bin/python"),
        ('kind = "local"\npython = "python3"', "python", "python3"),
    ],
)
def test_a_host_reads_the_files_that_the_study_names(fleet, spec, tmp_path, table, key, expected):
    study = parse(f"{STUDY}\n[provider]\n{table}\n")
    order = DaskEngine(study, Store(tmp_path), print)._orders(fleet)(spec.run_id, HOST)
    there = Study.model_validate_json(from_json(Order, order).study).provider
    assert str(getattr(there, key)) == expected.format(study=tmp_path.resolve())


def test_a_study_whose_path_is_not_utf8_has_a_name_for_hosts(tmp_path):
    names = (b"caf\xe9", b"caf\xe8")
    made = [DaskEngine(parse(STUDY), Store(tmp_path / os.fsdecode(name)), print) for name in names]
    assert len({each._key for each in made}) == 2


def test_a_host_looks_for_data_where_the_study_does_and_downloads_it_to_its_own_cache(
    fleet, spec, tmp_path, monkeypatch
):
    study = parse(f"{STUDY}\n[data]\nfolder = 'data'\n".replace('"digits"', '"mnist"'))
    made = DaskEngine(study, Store(tmp_path / "study"), print)._orders(fleet)(spec.run_id, HOST)
    order, looked, fetched = from_json(Order, made, "order"), [], []
    monkeypatch.setattr(datasets, "find", lambda name, folders: looked.append(folders))
    monkeypatch.setattr(datasets, "download", lambda name, folder, progress: fetched.append((name, folder)))
    host = Host(tmp_path / "host")
    try:
        host._open(order, hosts._UnderWay("key"))
    finally:
        host.end()
    assert looked[0] == (tmp_path / "study" / "data", datasets.default_folder())
    assert fetched == [("mnist", datasets.default_folder())]


def test_orders_and_receipts_come_back_as_they_went(tmp_path, spec):
    order = Order(study="{}", key="key", spec=spec, agent_sha256="a", delivered=("x", "y"))
    assert from_json(Order, json.loads(json.dumps(to_json(order))), "order") == order
    failure = FailedAttempt(attempt=1, error={"kind": "x"}, log=b"\xff", again=True)
    for sent in (receipt(tmp_path, spec), Receipt(host="h", failures=(failure,), trouble=("a", "b", "c"))):
        assert decode_receipt(dataclasses.asdict(sent)) == sent


def test_events_are_told_with_the_guest_and_its_host_and_a_start_before_anything_else(spec):
    told = Told()
    events = Events(told, {spec.run_id: spec}, ())
    said = {"run": spec.run_id, "host": "node1", "guest": "cpus-1.1", "kind": "epoch", "body": {"epoch": 1}}
    events((0.0, said))
    events((0.0, {**said, "run": "of/another/sweep/0001"}))
    assert told.seen == [("started", "cpus-1.1@node1", ()), ("epoch", "cpus-1.1@node1")]


def test_a_start_is_told_with_its_cores_and_again_for_the_next_attempt(spec):
    told = Told()
    events = Events(told, {spec.run_id: spec}, ())
    said = {"run": spec.run_id, "host": "node1", "guest": "cpus-1.1", "cores": [4]}
    events((0.0, said))
    events((0.0, said))
    assert told.seen == [("started", "cpus-1.1@node1", (4,))] * 2


def test_what_comes_late_of_a_run_that_is_over_is_not_told(spec):
    told = Told()
    events = Events(told, {spec.run_id: spec}, {spec.run_id})
    events((0.0, {"run": spec.run_id, "host": "node1", "guest": "cpus-1.1", "cores": [4]}))
    assert told.seen == []
