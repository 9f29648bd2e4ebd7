import contextlib
import errno
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from guest.records import bounded
from guest.records.run import ARTIFACTS, HISTORY, LOG, PREDICTIONS, RECORD, SCHEMA_VERSION, decode_record
from orchestrator.errors import ProtocolError, StoreError, UsageError
from orchestrator.store.integrity import DamagedRunError, read_record
from orchestrator.store.store import Store
from tests import factories
from tests.faults.damage import flip


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def publish(store, spec=None):
    """One finished run; returns its spec."""
    spec = spec or factories.spec()
    incoming = store.new_incoming()
    names = [HISTORY, LOG] if spec.workload.project else ARTIFACTS
    record = factories.record(spec, factories.result(factories.fill(incoming, names=names)))
    assert store.publish(incoming, record)
    return spec


def test_a_published_run_is_read_back_whole(store):
    spec = publish(store)
    assert store.has(spec)
    assert store.check(spec).spec == spec
    assert sorted(p.name for p in store.folder(spec).iterdir()) == sorted([*ARTIFACTS, RECORD])


def test_publishing_twice_keeps_the_first_and_counts_once(store):
    spec = publish(store)
    before = (store.folder(spec) / RECORD).read_bytes()
    incoming = store.new_incoming()
    again = factories.record(spec, factories.result(factories.fill(incoming, "other")))
    assert not store.publish(incoming, again)
    assert (store.folder(spec) / RECORD).read_bytes() == before
    assert not incoming.exists()


def test_files_that_are_not_what_the_manifest_says_are_not_published(store):
    spec = factories.spec()
    incoming = store.new_incoming()
    record = factories.record(spec, factories.result(factories.fill(incoming)))
    (incoming / PREDICTIONS).write_bytes(b"predictions.npz bytez\n")
    with pytest.raises(DamagedRunError, match="predictions.npz does not match its SHA-256"):
        store.publish(incoming, record)
    assert not store.folder(spec).exists()


def test_a_record_that_could_not_be_read_back_is_not_published(store):
    incoming = store.new_incoming()
    result = factories.result(factories.fill(incoming), environment={"x": [0] * bounded.RECORD.items})
    record = factories.record(factories.spec(), result)
    with pytest.raises(ProtocolError, match="the result cannot be stored: more than 200000 items"):
        store.publish(incoming, record)
    assert not store.runs.exists()


def test_a_result_that_could_not_be_read_back_is_not_written(store):
    many = [factories.measurement(repetition=n, error="x" * bounded.RECORD.bytes) for n in (1, 2)]
    with pytest.raises(ProtocolError, match="the result cannot be stored: larger than"):
        store.hardenings.write("lenet5", factories.hardening(many))
    assert store.hardenings.read("lenet5") is None


DAMAGE = {
    "a flipped byte": flip,
    "a cut file": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "a missing file": Path.unlink,
    "a folder in place of the file": lambda path: (path.unlink(), path.mkdir()),
    "a link in place of the file": lambda path: (
        path.rename(path.with_suffix(".x")),
        path.symlink_to(path.with_suffix(".x")),
    ),
}


@pytest.mark.parametrize("name", [*ARTIFACTS, RECORD])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_any_file_is_detected(store, name, damage):
    spec = publish(store)
    DAMAGE[damage](store.folder(spec) / name)
    with pytest.raises(DamagedRunError):
        store.check(spec)


def test_a_damaged_run_is_set_aside_with_its_reason(store):
    spec = publish(store)
    kept = store.quarantine(spec, "a flipped byte")
    assert not store.has(spec)
    assert (kept / "reason.txt").read_text() == "a flipped byte\n"
    assert (kept / PREDICTIONS).is_file()


def test_a_run_made_with_other_settings_is_refused_by_name(store):
    publish(store)
    changed = factories.spec(workload=factories.workload(epochs=9))
    with pytest.raises(UsageError, match=r"was run with epochs = 2 \(the study says 9\)"):
        store.check(changed)


def test_a_run_planned_by_an_older_schema_is_still_this_study_s(store):
    spec = publish(store, factories.spec(schema_version=0))
    assert store.check(factories.spec()).spec == spec


def test_a_run_of_a_newer_schema_is_an_error_and_not_damage(store):
    spec = publish(store)
    path = store.folder(spec) / RECORD
    path.write_text(
        path.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99', 1)
    )
    with pytest.raises(StoreError, match="newer than this vbstudy"):
        store.check(spec)


@pytest.mark.parametrize("step", ["mkdir", "rename", "fsync"])
def test_a_full_disk_while_publishing_publishes_nothing(store, monkeypatch, step):
    spec = factories.spec()
    incoming = store.new_incoming()
    record = factories.record(spec, factories.result(factories.fill(incoming)))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, step, full)
    with pytest.raises(StoreError, match="the disk is full"):
        store.publish(incoming, record)
    monkeypatch.undo()
    assert not store.folder(spec).exists()


def test_a_kill_at_any_file_operation_of_publishing_leaves_all_or_nothing(store, monkeypatch):
    """Each operation in turn is the last one that happens; afterwards the run exists whole or not at all."""

    class Killed(BaseException):
        pass

    operations = [
        (os, "fsync"),
        (os, "open"),
        (os, "close"),
        (Path, "rename"),
        (Path, "mkdir"),
        (Path, "open"),
    ]
    published = 0
    for repetition in range(1, 60):
        left = repetition
        spec = factories.spec(repetition=repetition)
        incoming = store.new_incoming()
        record = factories.record(spec, factories.result(factories.fill(incoming)))
        with monkeypatch.context() as patch:

            def counted(original):
                def call(*args, **kwargs):
                    nonlocal left
                    left -= 1
                    if left == 0:
                        raise Killed
                    return original(*args, **kwargs)

                return call

            for owner, name in operations:
                patch.setattr(owner, name, counted(getattr(owner, name)))
            with contextlib.suppress(Killed):
                store.publish(incoming, record)
        if store.folder(spec).exists():
            published += 1
            assert store.check(spec) == record
    assert 0 < published < 59


def test_a_rename_that_nfs_carried_out_and_told_to_have_failed_is_no_failure(store, monkeypatch):
    spec, incoming = factories.spec(), store.new_incoming()
    record = factories.record(spec, factories.result(factories.fill(incoming)))
    rename = Path.rename

    def asked_twice(path, target):
        rename(path, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", lambda p, t: (asked_twice if p == incoming else rename)(p, t))
    assert store.publish(incoming, record)
    assert store.check(spec) == record


def test_evidence_is_in_its_place_whole_or_not_at_all(store, monkeypatch):
    spec, incoming = factories.spec(), store.new_incoming()
    rename = Path.rename

    def stale(path, target):
        if target.is_relative_to(store.failed):
            raise OSError(errno.ESTALE, "Stale file handle")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", stale)
    with pytest.raises(StoreError, match="Stale file handle"):
        store.keep_failure(spec, 1, incoming, {"kind": "x"})
    assert store.failures(spec.set_id) == {}
    assert list(store.incoming.iterdir()) == [], "what takes space is gone, the disk may be full"


def test_what_lies_where_a_run_should_be_and_is_no_folder_is_set_aside_with_the_reason(store):
    spec = factories.spec()
    store.folder(spec).parent.mkdir(parents=True)
    store.folder(spec).write_text("not a folder")
    kept = store.quarantine(spec, "run.json is missing")
    assert (kept / "reason.txt").read_text() == "run.json is missing\n"
    assert (kept / store.folder(spec).name).read_text() == "not a folder"
    assert not store.folder(spec).exists()


def hold(directory, ready, release):
    with Store(directory).lock("vbstudy sweep"):
        ready.set()
        release.wait(120)


def test_a_second_orchestrator_is_told_who_holds_the_lock(store):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(store.directory, ready, release))
    holder.start()
    try:
        assert ready.wait(600)
        with (
            pytest.raises(UsageError, match=f"`vbstudy sweep`, process {holder.pid} on "),
            store.lock("vbstudy sweep"),
        ):
            pass
    finally:
        holder.kill()
        holder.join()
    with store.lock("vbstudy sweep"):  # the lock died with its holder
        pass


def test_a_failed_attempt_leaves_its_log_and_error_and_no_run(store):
    spec = factories.spec()
    incoming = store.new_incoming()
    (incoming / "log.txt").write_text("what it printed")
    kept = store.keep_failure(spec, 1, incoming, {"kind": "ValueError", "message": "no"})
    assert (kept / "log.txt").read_text() == "what it printed"
    assert '"kind": "ValueError"' in (kept / "error.json").read_text()
    assert store.failures(spec.set_id) == {1: 1}
    assert not store.has(spec)
    assert not incoming.exists()


def test_what_a_killed_orchestrator_was_collecting_is_swept_away(store):
    factories.fill(store.new_incoming())
    store.clear_incoming()
    assert not store.incoming.exists()


def test_what_a_host_leaves_while_the_rest_is_swept_away_stays(store, monkeypatch):
    store.new_incoming()
    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path, **how: (store.new_incoming(), rmtree(path, **how)))
    store.clear_incoming()
    assert len(list(store.incoming.iterdir())) == 1
    assert [path.name for path in store.directory.iterdir()] == ["incoming"]


def test_files_folders_and_links_of_others_stay_whatever_their_names(store, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "data").write_bytes(b"y")
    (store.directory / "thesis.zip.part").write_bytes(b"x")
    (store.directory / "cifar.part").mkdir()
    (store.directory / "cifar.part" / "data").write_bytes(b"y")
    (store.directory / f"{'0' * 32}.part").mkdir()
    for name in ("link.part", "guests.json.part", ".vbstudy-link"):
        (store.directory / name).symlink_to(elsewhere)
    before = sorted(store.directory.rglob("*"))
    factories.fill(store.new_incoming())
    store.clear_incoming()
    assert sorted(store.directory.rglob("*")) == before
    assert (elsewhere / "data").exists()


def test_files_half_written_under_the_lock_are_removed_and_those_of_others_stay(store):
    for name in ("guests.json", "sequential.json", ".checked", "known_hosts", ".live", "study.toml"):
        (store.directory / f"{name}.part").write_text("{")
    store.clear_incoming()
    assert {path.name for path in store.directory.iterdir()} == {".live.part", "study.toml.part"}


def test_a_link_in_place_of_incoming_is_reported_and_kept(store, tmp_path_factory):
    store.incoming.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(StoreError, match="incoming: is a link; remove it"):
        store.clear_incoming()
    assert store.incoming.is_symlink()


def test_a_record_on_disk_is_the_one_that_was_published(store):
    spec = publish(store)
    record = decode_record((store.folder(spec) / RECORD).read_bytes())
    assert read_record(store.folder(spec)) == record
