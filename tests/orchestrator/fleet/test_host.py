"""A host executes a run once, whoever asks and how often: with real guests and real training."""

import contextlib
import dataclasses
import errno
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from analysis.load.failures import EVIDENCE
from guest.records.run import RECORD, Message, decode_record
from orchestrator.agent import archive
from orchestrator.cli import main as cli
from orchestrator.engine.attempts import Attempts
from orchestrator.errors import GuestError
from orchestrator.fleet import host as hosts
from orchestrator.fleet import slots as slots_
from orchestrator.fleet.host import Host
from orchestrator.fleet.orders import Order
from orchestrator.fleet.slots import Place, Slots
from orchestrator.fleet.tasks import EXTENSION
from orchestrator.fleet.worker import dask_setup
from orchestrator.guests.provision import ORDERED
from orchestrator.inventory import guest_spec
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import parse
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY
from tests.processes import wait_until

STUDY_OF_ONE = parse(STUDY.replace("cpus = [1, 2]", "cpus = [1]"))
SPEC = plan(STUDY_OF_ONE)[0]


@pytest.fixture(scope="module")
def agent_sha256():
    return archive.build().sha256


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path / "host")
    yield made
    made.end()


def order(agent_sha256, **changes):
    values = {"study": STUDY_OF_ONE.model_dump_json(exclude_unset=True), "key": "key", "spec": SPEC}
    return Order(**values | {"agent_sha256": agent_sha256} | changes)


@pytest.mark.needs("studies")
def test_two_orders_for_one_run_are_one_training_and_a_third_is_answered_from_what_is_kept(
    tmp_path, host, agent_sha256
):
    events = []
    host.tell = lambda key, event: events.append(event)
    receipts = []
    both = [
        threading.Thread(target=lambda: receipts.append(host.perform(order(agent_sha256)))) for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert host.at_hand("key") == [SPEC.run_id]
    store = Store(tmp_path / "study")
    store.directory.mkdir()
    seen = {"directory": str(store.directory), "token": store.leave_token()}
    receipts.append(host.perform(order(agent_sha256, **seen)))
    assert [receipt.trouble for receipt in receipts] == [None] * 3
    assert len({receipt.record for receipt in receipts}) == 1
    events = [event for event in events if "run" in event]  # it may have waited for tests beside it
    (start,) = [event for event in events if "kind" not in event]  # it was started once
    assert start["guest"] == "cpus-1.1"
    assert len(start["cores"]) == 1
    assert {event["guest"] for event in events} == {"cpus-1.1"}
    assert receipts[0].files == receipts[1].files
    assert not receipts[2].files, "whoever sees the store gets no bytes"
    record = decode_record(receipts[2].record)
    assert store.publish(store.collected(receipts[2].incoming), record)
    assert store.check(SPEC).result.hashes == record.result.hashes
    host.delivered("key", [SPEC.run_id])
    assert host.at_hand("key") == []
    host.end()
    assert not list((tmp_path / "host").glob("*/slot-*"))


def test_a_host_with_other_sources_or_another_provider_says_so_and_runs_nothing(tmp_path, host, agent_sha256):
    receipt = host.perform(order("0" * 64))
    assert receipt.trouble is not None
    assert receipt.trouble[0] == "PrerequisiteError"
    assert "another version of vbstudy" in receipt.trouble[1]
    other = Host(tmp_path / "other", provider="qemu")
    assert "start `vbstudy worker --provider local`" in str(other.perform(order(agent_sha256)).trouble)
    other.end()


@pytest.mark.needs("studies")
def test_what_is_kept_of_other_settings_is_not_handed_over(host, agent_sha256):
    first = host.perform(order(agent_sha256))
    other = dataclasses.replace(SPEC, workload=dataclasses.replace(SPEC.workload, epochs=1))
    second = host.perform(order(agent_sha256, spec=other))
    assert decode_record(first.record).spec == SPEC
    assert decode_record(second.record).spec == other


def test_a_stopped_run_ends_soon_and_says_that_it_was_stopped(tmp_path, host, agent_sha256):
    slow = dataclasses.replace(SPEC, workload=dataclasses.replace(SPEC.workload, epochs=100_000))
    receipts = []
    running = threading.Thread(target=lambda: receipts.append(host.perform(order(agent_sha256, spec=slow))))
    started = threading.Event()
    host.tell = lambda key, event: started.set()
    running.start()
    assert started.wait(600)
    host.stop("key")
    running.join(600)
    assert receipts[0].stopped
    assert not receipts[0].record
    assert not receipts[0].failures


@pytest.mark.parametrize("how", ["stop", "end"])
def test_orders_whose_study_is_still_made_ready_are_stopped_and_so_are_those_behind_them(
    tmp_path, agent_sha256, monkeypatch, how
):
    host, receipts, trained = Host(tmp_path / "host"), [], []
    began, released = threading.Event(), threading.Event()

    def fetch(study, store, on_download, into):
        began.set()
        while not released.wait(0.01):
            on_download("file", 0, 1)

    def warm(*_):
        trained.append("a run")
        return contextlib.nullcontext()

    monkeypatch.setattr(hosts, "fetch_datasets", fetch)
    monkeypatch.setattr(Slots, "warm", warm)
    specs = SPEC, dataclasses.replace(SPEC, repetition=2)
    orders = [
        threading.Thread(
            target=lambda spec=spec: receipts.append(host.perform(order(agent_sha256, spec=spec)))
        )
        for spec in specs
    ]
    for thread in orders:
        thread.start()
    assert began.wait(600)
    wait_until(lambda: len(host._under_way) == len(specs))
    host.stop("key") if how == "stop" else host.end()
    released.set()
    for thread in orders:
        thread.join(600)
    host.end()
    assert [(receipt.stopped, receipt.trouble) for receipt in receipts] == [(True, None)] * 2
    assert not trained


def test_a_worker_that_ends_waits_for_the_guest_that_it_makes_and_takes_no_more_orders(
    tmp_path, agent_sha256, monkeypatch
):
    host, done, began, asked = Host(tmp_path / "host"), [], threading.Event(), threading.Event()

    def destroy(spec):
        done.append("removed")
        asked.set()

    def make_guest(*_):
        began.set()
        assert asked.wait(600)
        done.append("made")
        return object()

    def stop(slots, key):
        asked.set()

    provider = SimpleNamespace(cores=lambda _: host.cores, check=list, destroy=destroy)
    monkeypatch.setattr(slots_, "make", lambda *_: provider)
    monkeypatch.setattr(slots_.provision, "make_guest", make_guest)
    monkeypatch.setattr(slots_, "Session", pytest.fail)
    monkeypatch.setattr(Slots, "stop", stop)
    receipts = []
    running = threading.Thread(target=lambda: receipts.append(host.perform(order(agent_sha256))))
    running.start()
    assert began.wait(600)
    host.end()
    running.join(600)
    assert done == ["made", "removed"]
    assert (receipts[0].stopped, receipts[0].trouble) == (True, None)
    assert not list((tmp_path / "host").glob("*/slot-*"))
    assert host.perform(order(agent_sha256)).trouble == ("GuestError", "its worker ends", "")


def test_a_worker_that_ends_leaves_only_studies_with_runs_that_are_not_delivered(tmp_path, agent_sha256):
    host = Host(tmp_path / "host")
    for key in ("delivered", "waiting"):
        store = Store(tmp_path / "host" / key)
        store.new_incoming()
        (store.directory / ORDERED).write_text(order(agent_sha256).study)
    folder = store.new_incoming()
    store.publish(folder, factories.record(SPEC, factories.result(factories.fill(folder))))
    host.end()
    assert [path.parent.name for path in (tmp_path / "host").glob(f"*/{ORDERED}")] == ["waiting"]
    assert not (tmp_path / "host" / "delivered").exists()
    assert store.has(SPEC)


@pytest.fixture
def kept(tmp_path):
    """A store of a host, with one finished run."""
    store, spec = Store(tmp_path / "kept"), factories.spec(cpus=1)
    folder = store.new_incoming()
    store.publish(folder, factories.record(spec, factories.result(factories.fill(folder))))
    return SimpleNamespace(store=store, spec=spec)


def refuse(*_, **__):
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (None, None),
        (os, "geteuid"),  # files of another account could not be moved by the sweep
        (Path, "is_dir"),  # a home of mode 0700
        (Path, "mkdir"),  # a folder that may only be read
        (shutil, "copyfile"),
    ],
)
def test_files_are_left_in_the_studys_folder_where_that_is_the_hosts_too_and_sent_elsewhere(
    tmp_path, host, agent_sha256, kept, monkeypatch, where, what
):
    study = Store(tmp_path / "study")
    asked = order(agent_sha256, spec=kept.spec, directory=str(study.directory), token=study.leave_token())
    with monkeypatch.context() as patch:
        if where is not None:
            patch.setattr(where, what, (lambda: -1) if where is os else refuse)
        receipt = host._receipt(asked, kept, hosts._Outcome())
    assert bool(receipt.incoming) is (where is None)
    folder = kept.store.folder(kept.spec)
    names = {name for name in os.listdir(folder) if name != RECORD}
    left = study.incoming / receipt.incoming
    assert (set(os.listdir(left)) if receipt.incoming else set(receipt.files)) == names


def test_what_keeps_a_guest_from_starting_again_comes_with_the_attempts_that_failed(
    tmp_path, host, agent_sha256, monkeypatch
):
    def fail(attempts, slot, spec):
        kept = tmp_path / "failed"
        kept.mkdir()
        (kept / EVIDENCE).write_text('{"kind": "RunLostError"}')
        attempts.reports.failed(spec, "it was lost", kept, again=True)
        raise GuestError("it does not start")

    monkeypatch.setattr(Attempts, "run_with_retries", fail)
    monkeypatch.setattr(Slots, "warm", lambda *_: contextlib.nullcontext(Mock(lease=Mock(cores=()))))
    receipt = host.perform(order(agent_sha256))
    assert receipt.trouble == ("GuestError", "it does not start", "")
    assert [(each.attempt, each.error["kind"], each.again) for each in receipt.failures] == [
        (1, "RunLostError", True)
    ]


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """What a host reports of a run; `clock` is its time, `bodies` are what it sent, with the kinds."""
    clock, bodies = SimpleNamespace(s=0.0), []
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: clock.s))

    def tell(_, event):
        if "kind" in event:
            bodies.append((event["kind"], event["body"]))

    made = hosts._Reports("key", tell, Store(tmp_path))

    def send(kind, **body):
        made.message("cpus-1", Message(kind=kind, run_id=SPEC.run_id, body=body))

    return SimpleNamespace(clock=clock, bodies=bodies, send=send, started=made.started)


def test_of_a_guests_messages_a_few_numbers_with_short_names_are_sent(reports):
    body = {"epoch": 1, "test_accuracy": 0.5, "text": "x" * 1000, "x" * 1000: 1, "list": [1]}
    reports.send("epoch", **body, **{f"test_{number}": number for number in range(1000)})
    ((_, sent),) = reports.bodies
    assert len(sent) == hosts.MOST_NUMBERS
    assert list(sent)[:3] == ["epoch", "test_accuracy", "test_0"]


def test_of_messages_in_a_flood_the_newest_of_each_kind_is_sent_and_no_more_often_than_once_a_second(reports):
    for epoch in range(1, 1000):
        reports.send("epoch", epoch=epoch)
    assert reports.bodies == [("epoch", {"epoch": 1})]
    reports.clock.s = hosts.SEND_EVERY_S
    reports.send("heartbeat", step=7)
    assert reports.bodies[1:] == [("epoch", {"epoch": 999}), ("heartbeat", {"step": 7})]


def test_messages_of_an_attempt_that_failed_are_not_sent_after_the_next_one_has_started(reports):
    for epoch in (1, 2):
        reports.send("epoch", epoch=epoch)
    reports.started("cpus-1", SPEC, (0,))
    reports.clock.s = hosts.SEND_EVERY_S
    reports.send("heartbeat", step=1)
    assert reports.bodies == [("epoch", {"epoch": 1}), ("heartbeat", {"step": 1})]


def test_a_worker_removes_the_guests_that_a_killed_one_left(tmp_path, agent_sha256):
    left = tmp_path / "host" / "key" / "slot-1" / "guests" / "cpus-1"
    left.mkdir(parents=True)
    (tmp_path / "host" / "key" / ORDERED).write_text(order(agent_sha256).study)
    other = tmp_path / "host" / "other" / "slot-1"
    other.mkdir(parents=True)
    (tmp_path / "host" / "other" / ORDERED).write_text("of another vbstudy")
    Host(tmp_path / "host").end()
    assert not left.parents[1].exists()
    assert other.exists(), "what is not understood is left to an order for it"


def test_workers_that_dask_starts_have_a_folder_each_and_the_next_one_has_that_of_one_that_ended(tmp_path):
    def started(port):
        worker = SimpleNamespace(name=f"tcp://10.0.0.1:{port}", extensions={}, nanny=True)
        dask_setup.callback(worker, tmp_path, shares=1)
        return worker.extensions[EXTENSION]

    first, second = started(1), started(2)
    first.end()
    third = started(3)
    assert sorted(os.listdir(tmp_path)) == [f"{os.uname().nodename}-{number}" for number in (0, 1)]
    second.end()
    third.end()


def test_workers_have_their_folders_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = []
    monkeypatch.setattr("orchestrator.fleet.worker.serve", lambda _, folder, *rest: folders.append(folder))
    made = SimpleNamespace()
    monkeypatch.setattr("orchestrator.fleet.worker.Host", lambda folder: folders.append(folder) or made)
    assert cli.run(["worker", "tcp://127.0.0.1:1"]) == 0
    dask_setup.callback(SimpleNamespace(extensions={}, nanny=True), None, shares=1)
    name = os.uname().nodename
    assert folders == [tmp_path / "vbstudy" / "hosts" / each for each in (name, f"{name}-0")]


def test_an_idle_guest_that_cannot_be_stopped_is_reported_and_the_others_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "IDLE_S", 0.1)
    made, events, stopped = Host(tmp_path / "host"), [], threading.Event()
    made.tell = lambda key, event: events.append((key, event["waiting"]))

    class Session:
        def close(self):
            raise GuestError("it hangs")

    class Stopped:
        def close(self):
            stopped.set()

    class Provider:
        def destroy(self, spec):
            pass

    for number, session in enumerate((Session(), Session(), Stopped()), start=1):
        leased = {"provider": Provider(), "session": session, "lease": object(), "busy": False}
        made._slots._places.append(Place(key="key", number=number, spec=guest_spec(1), **leased))
    assert stopped.wait(60)
    made.end()
    assert events == [("key", f"idle guest cpus-1.{n} cannot be stopped: it hangs") for n in (1, 2)]


def test_a_guest_that_cannot_be_stopped_or_removed_keeps_no_other_one(tmp_path):
    made, done = Host(tmp_path / "host"), []

    class Provider:
        def __init__(self, number):
            self.number = number

        def stop(self, spec):
            done.append(("stop", self.number))
            if self.number == 1:
                raise GuestError("it hangs")

        def destroy(self, spec):
            done.append(("destroy", self.number))
            if self.number == 1:
                raise GuestError("it stays")

    for number in (1, 2):
        place = {"provider": Provider(number), "guest": object()}
        made._slots._places.append(Place(key="key", number=number, spec=guest_spec(1), **place))
    with pytest.raises(GuestError, match="it hangs"):
        made._slots.stop("key")
    with pytest.raises(GuestError, match="it stays"):
        made.end()
    assert done == [("stop", 1), ("stop", 2), ("destroy", 1), ("destroy", 2)]
    with Store(tmp_path / "host").lock("another worker"):  # the folder is free
        assert [place.number for place in made._slots._places] == [1]


def test_a_worker_s_guests_get_those_of_its_cores_that_their_provider_offers(tmp_path, monkeypatch):
    """A hypervisor may offer one hyper-thread of each core alone."""
    given = []
    monkeypatch.setattr("orchestrator.fleet.slots.CoreLeases", lambda cores, **_: given.append(cores))

    class Provider:
        def cores(self, spec):
            return (0, 1, 4)

    place = Place(key="key", number=1, spec=guest_spec(2), provider=Provider())
    Slots(tmp_path, (0, 1, 2, 3), print).leases(place, STUDY_OF_ONE)
    assert given == [(0, 1)]
