import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guest.datasets import datasets
from orchestrator.cli import main as cli
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError, PrerequisiteError, UsageError
from orchestrator.guests import provision, temporary
from orchestrator.inventory import (
    GUEST_MARK,
    INVENTORY_VERSION,
    Guest,
    Inventory,
    Observation,
    guest_spec,
    host_name,
    read_inventory,
    write_inventory,
)
from orchestrator.providers import local
from orchestrator.providers.local import LocalProvider
from orchestrator.store.store import Store
from orchestrator.study import schema
from orchestrator.study.providers import machine_settings
from tests.orchestrator.cores.test_leases import OTHER

TEXT = '[[workload]]\nmodel = "lenet5"\ndataset = "mnist"\n'


def test_data_is_looked_for_in_the_study_s_folder_first_and_in_the_user_s_cache_always(tmp_path, monkeypatch):
    folders = provision.data_folders(schema.parse("[data]\nfolder = 'mine'\n" + TEXT), Store(tmp_path))
    assert folders == (tmp_path / "mine", datasets.default_folder())
    monkeypatch.setenv("HOME", "/home/me")
    folders = provision.data_folders(schema.parse("[data]\nfolder = '~/data'\n" + TEXT), Store(tmp_path))
    assert folders[0] == Path("/home/me/data")
    assert provision.data_folders(schema.parse(TEXT), Store(tmp_path)) == (datasets.default_folder(),)


def test_a_data_set_that_cannot_be_fetched_is_a_missing_prerequisite(tmp_path, monkeypatch):
    def refuse(name, folder, progress):
        raise datasets.DatasetError(f"{name}: no connection; put its files into {folder}")

    monkeypatch.setattr(datasets, "find", lambda name, folders: None)
    monkeypatch.setattr(datasets, "download", refuse)
    with pytest.raises(PrerequisiteError, match="mnist: no connection; put its files into"):
        provision.fetch_datasets(schema.parse(TEXT), Store(tmp_path), lambda *_: None)


def test_a_data_set_that_is_here_is_not_fetched_again(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(datasets, "find", lambda name, folders: Path("/somewhere"))
    monkeypatch.setattr(datasets, "download", lambda *arguments: fetched.append(arguments))
    provision.fetch_datasets(schema.parse(TEXT), Store(tmp_path), lambda *_: None)
    assert fetched == []


NET = 'cpus = [1, 2]\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


def with_guests(store, table, **changes):
    """A study of the table whose guests are in the inventory, as if its provider had made them."""
    seen = Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1.0, details={})
    study = schema.parse(NET + table)
    inventory = Inventory(
        version=INVENTORY_VERSION,
        provider=study.provider.kind,
        guests=tuple(Guest(spec=guest_spec(n), observed=seen, created_at="now") for n in (1, 2)),
        settings=machine_settings(study.provider),
    )
    write_inventory(store.guests_file, dataclasses.replace(inventory, **changes))


@pytest.mark.parametrize(
    "command",
    ["sweep", "status", "trace --cpus 1,2", "harden --runs 1", "ssh cpus-1 true"],
)
def test_guests_of_another_provider_are_refused(tmp_path, capsys, command):
    store = Store(tmp_path)
    with_guests(store, "")
    store.study_file.write_text(NET + '[provider]\nkind = "qemu"\n')
    assert cli.run(["-C", str(tmp_path), *command.split()]) == 2
    assert (
        "guests were made with provider.kind = 'local', study.toml has 'qemu'; "
        f"run `vbstudy -C {tmp_path} provision`" in capsys.readouterr().err
    )
    assert not store.runs.exists()


HOST = '[[provider.hosts]]\nhost = "{}"\ncpus = {}\n'
SSH = '[provider]\nkind = "ssh"\n' + HOST.format("a", 8)


@pytest.mark.parametrize(
    ("made", "now", "named"),
    [
        ('kind = "qemu"', 'kind = "qemu"\ncpu_model = "Haswell"', "provider.cpu_model = 'max'"),
        ('kind = "qemu"', 'kind = "qemu"\naccelerator = "tcg"', "provider.accelerator = 'auto'"),
        (SSH.partition("\n")[2], 'kind = "ssh"\n' + HOST.format("a", 4), "provider.hosts a:22 cpus = 8"),
    ],
)
def test_guests_that_today_s_settings_would_make_another_way_are_refused(tmp_path, made, now, named):
    store = Store(tmp_path)
    with_guests(store, "[provider]\n" + made)
    with pytest.raises(UsageError, match=named):
        provision.read_guests(schema.parse(NET + "[provider]\n" + now), store)


def test_a_provider_whose_settings_remove_its_guests_is_not_left_before_they_are_removed(tmp_path, capsys):
    store = Store(tmp_path)
    with_guests(store, SSH)
    store.study_file.write_text(NET + SSH)
    assert cli.run(["-C", str(tmp_path), "provision", "--provider", "local"]) == 2
    assert "made by provider 'ssh'" in (told := capsys.readouterr().err)
    assert f"`vbstudy -C {tmp_path} destroy` while its settings are in study.toml" in told
    assert store.study_file.read_text() == NET + SSH


def test_a_data_set_that_a_study_asks_for_since_is_missed_before_the_first_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda name, folders: None)
    store = Store(tmp_path)
    with_guests(store, "")
    store.study_file.write_text(NET.replace("digits", "mnist"))
    assert cli.run(["-C", str(tmp_path), "sweep"]) == 3
    assert f"mnist: not on this machine; run `vbstudy -C {tmp_path} provision`" in capsys.readouterr().err
    assert not store.runs.exists()


def test_how_guests_are_reached_may_change_and_hosts_may_be_added(tmp_path):
    store = Store(tmp_path)
    with_guests(store, SSH)
    more = SSH.replace("[[", "patience_s = 1\n[[", 1) + 'key = "id"\n' + HOST.format("b", 2)
    assert len(provision.read_guests(schema.parse(NET + more), store).guests) == 2


def test_an_inventory_without_settings_is_accepted_by_its_kind(tmp_path):
    store = Store(tmp_path)
    with_guests(store, '[provider]\nkind = "qemu"', version=2, settings={})
    study = schema.parse(NET + '[provider]\nkind = "qemu"\ncpu_model = "Haswell"\n')
    assert len(provision.read_guests(study, store).guests) == 2
    with pytest.raises(UsageError, match="kind = 'qemu'"):
        provision.read_guests(schema.parse(NET), store)


class Killed(BaseException):
    pass


class Other(LocalProvider):
    """Another provider than `local`, killed at its second guest."""

    name = "other"

    def create(self, guest):
        super().create(guest)
        if guest.cpus == 2:
            raise Killed


def test_what_a_killed_provisioning_left_belongs_to_its_provider_whatever_the_study_says_then(
    tmp_path, monkeypatch
):
    store, study, former = Store(tmp_path), schema.parse(NET), []
    with_guests(store, "")
    with pytest.raises(Killed):
        provision.provision(study, store, Other(study, store), print, print, print)
    assert (read_inventory(store.guests_file).provider, list(store.guests.glob("cpus-2"))) == (
        "other",
        [store.guests / "cpus-2"],
    )

    def make_former(kind, *arguments):
        former.append(kind)
        return LocalProvider(*arguments)

    monkeypatch.setattr(provision, "make_former", make_former)
    provision.provision(study, store, LocalProvider(study, store), print, print, print)
    assert former == ["other", "other"]


@pytest.fixture
def left(tmp_path):
    """A guest of a worker of a killed sweep, and a process in it."""
    store = Store(tmp_path)
    store.study_file.write_text(NET)
    guest = store.guests / "node-0" / "key" / "slot-1" / "guests" / "cpus-1"
    guest.mkdir(parents=True)
    (guest.parents[2] / provision.ORDERED).write_text(schema.parse(NET).model_dump_json(exclude_unset=True))
    process = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, GUEST_MARK: host_name(guest)}, start_new_session=True
    )
    yield guest, process
    process.kill()
    process.wait()


def test_guests_that_workers_of_a_killed_sweep_left_are_destroyed(tmp_path, left, capsys):
    _, process = left
    assert cli.run(["-C", str(tmp_path), "destroy"]) == 0
    assert "1 guest removed" in capsys.readouterr().out
    assert process.wait(10)
    assert not Store(tmp_path).guests.exists()


def test_the_next_sweep_removes_them_whatever_it_runs_on(tmp_path, left):
    guest, process = left
    assert cli.run(["-C", str(tmp_path), "-q", "sweep"]) == 2  # there are no guests of its own
    assert process.wait(10)
    assert not guest.exists()


def test_those_of_a_worker_at_work_are_left_to_it_and_runs_that_wait_there_are_kept(tmp_path, left, capsys):
    guest, process = left
    worker = guest.parents[3]
    run = guest.parents[2] / "runs" / "run.json"
    run.parent.mkdir()
    run.touch()
    with Store(worker).lock("vbstudy worker"):
        assert cli.run(["-C", str(tmp_path), "destroy"]) == 2
    assert "`vbstudy worker`, process" in capsys.readouterr().err
    assert process.poll() is None
    assert cli.run(["-C", str(tmp_path), "destroy"]) == 0
    assert process.wait(10)
    assert (run.exists(), guest.exists()) == (True, False)


def cannot_be_removed(monkeypatch, *names):
    removed = LocalProvider.destroy

    def destroy(self, guest):
        if guest.name in names:
            raise GuestError(f"guest {guest.name}: its host cannot be reached")
        removed(self, guest)

    monkeypatch.setattr(LocalProvider, "destroy", destroy)


def test_a_guest_that_cannot_be_removed_keeps_no_other_one(tmp_path, left, monkeypatch):
    guest, process = left
    store, study = Store(tmp_path), schema.parse(NET)
    with_guests(store, "")
    for cpus in (1, 2, 4):
        (store.guests / f"cpus-{cpus}").mkdir()
    cannot_be_removed(monkeypatch, "cpus-1")
    with pytest.raises(GuestError, match="guest cpus-1: its host cannot be reached"):
        provision.destroy(study, store)
    assert sorted(path.name for path in store.guests.iterdir()) == ["cpus-1", "node-0"]
    assert guest.exists()
    assert store.guests_file.exists(), "the next `destroy` knows what is left"
    cannot_be_removed(monkeypatch, "cpus-2")  # beside the one before
    second = guest.parents[2] / "slot-2" / "guests" / "cpus-4"
    second.mkdir(parents=True)
    with pytest.raises(GuestError, match="guest cpus-1: "):
        provision.destroy(study, store)
    assert (guest.exists(), second.exists()) == (True, False)
    assert process.poll() is None
    monkeypatch.undo()
    assert provision.destroy(study, store) == ["cpus-1", "cpus-1", "cpus-2"]
    assert process.wait(10)
    assert not store.guests.exists()


def test_provisioning_removes_all_guests_but_those_that_cannot_be(tmp_path, monkeypatch):
    store, study = Store(tmp_path), schema.parse(NET)
    for cpus in (3, 4, 5):
        (store.guests / f"cpus-{cpus}").mkdir(parents=True)
    cannot_be_removed(monkeypatch, "cpus-3", "cpus-4")
    with pytest.raises(GuestError, match="its host cannot be reached"):
        provision.provision(study, store, LocalProvider(study, store), print, print, print)
    assert sorted(path.name for path in store.guests.iterdir()) == ["cpus-3", "cpus-4"]


def test_guests_that_were_made_are_in_the_inventory_where_another_one_failed(tmp_path):
    class Small(LocalProvider):
        def start(self, guest, cores):
            if guest.cpus == 2:
                raise GuestError(f"guest {guest.name}: no memory is left for it")
            return super().start(guest, cores)

    store, study = Store(tmp_path), schema.parse(NET)
    with pytest.raises(GuestError, match="guest cpus-2: no memory is left"):
        provision.provision(study, store, Small(study, store), print, print, print)
    assert list(provision.read_guests(study, store).by_name()) == ["cpus-1"]


def test_guests_that_wait_to_be_made_for_cores_of_another_study_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("VBSTUDY_CORE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr("orchestrator.cores.leases.REPORT_AFTER_S", 0)
    core, store, study = host_cores()[0], Store(tmp_path), schema.parse(NET)
    monkeypatch.setattr(local, "host_cores", lambda: (core,))
    told = []

    def and_then_it_ends(text: str) -> None:
        told.append(text)
        other.kill()

    command = [sys.executable, "-c", OTHER, str(core)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "leased\n"
        with temporary.guests(study, store, [guest_spec(1)], and_then_it_ends):
            pass
    assert told == [f"guest cpus-1 waits for cores: process {other.pid} on its machine leased {core}"]
