"""Makes the guests that the study asks for, observes them, and writes the inventory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path

from guest.datasets import datasets
from guest.records.run import RECORD
from orchestrator.cores.leases import CoreLeases, Lease, MachineCores
from orchestrator.cores.parallel import Job, ParallelJobs
from orchestrator.errors import GuestError, PrerequisiteError, UsageError, for_each
from orchestrator.files import expand
from orchestrator.inventory import (
    INVENTORY_VERSION,
    DamagedInventoryError,
    Guest,
    GuestSpec,
    Inventory,
    Observation,
    guest_spec,
    parse_guest_name,
    read_inventory,
    write_inventory,
)
from orchestrator.providers import Elsewhere, Provider, former_table, machine_of, make_former
from orchestrator.store.store import Store, now
from orchestrator.study.providers import machine_settings
from orchestrator.study.schema import Study
from orchestrator.text import Say

ORDERED = "study.json"  # in a worker's folder of a study: how its guests are removed
OnGuest = Callable[[Guest], None]
OnDownload = Callable[[str, int, int], None]


def provision(
    study: Study, store: Store, provider: Provider, on_guest: OnGuest, on_download: OnDownload, say: Say
) -> Inventory:
    """Makes `guests.json` true to the study: one guest for each count in `cpus` (and CPU model, where
    several are compared), no others; side by side as far as there are cores. Data sets that are not on
    this machine are downloaded. The caller holds the study's lock."""
    check(provider)
    fetch_datasets(study, store, on_download)
    wanted = [guest_spec(cpus, model) for model in study.cpu_models for cpus in study.cpus]
    kind, former = _former(study, store)
    unwanted = [spec for spec in former if spec not in wanted or kind != provider.name]
    for_each(lambda spec: make_former(kind, study, store).destroy(spec), unwanted)
    kept: tuple[Guest, ...] = ()
    with contextlib.suppress(UsageError, DamagedInventoryError):  # none, of other machines, or unreadable
        kept = tuple(guest for guest in read_guests(study, store).guests if guest.spec in wanted)
    inventory = Inventory(
        version=INVENTORY_VERSION,
        provider=provider.name,
        guests=kept,
        settings=machine_settings(study.provider),
        hosts={spec.name: provider.host(spec) for spec in wanted} if isinstance(provider, Elsewhere) else {},
    )
    write_inventory(store.guests_file, inventory)  # now, so that what a killed process leaves is known
    made = inventory.by_name()

    def keep(guest: Guest) -> None:
        made[guest.spec.name] = guest
        on_guest(guest)

    try:
        make_all(wanted, provider, keep, say)
    finally:  # those that were made are kept where another one failed
        guests = tuple(made[spec.name] for spec in wanted if spec.name in made)
        inventory = dataclasses.replace(inventory, guests=guests)
        write_inventory(store.guests_file, inventory)
    return inventory


def check(provider: Provider) -> None:
    """Raises PrerequisiteError where it cannot make guests."""
    if problems := provider.check():
        raise PrerequisiteError("; ".join(problems))


def check_former(study: Study, store: Store, provider: str) -> None:
    """Raises UsageError where the guests that are there could not be removed with another provider."""
    kind, former = _former(study, store)
    if former and kind != provider:
        former_table(kind)


def read_guests(study: Study, store: Store) -> Inventory:
    """The inventory, where its guests are those of the study's provider. Raises UsageError where they are
    not, and what `read_inventory` raises."""
    inventory, now_asked = read_inventory(store.guests_file), machine_settings(study.provider)
    for key, made in ({"kind": inventory.provider} | inventory.settings).items():
        if now_asked.get(key, made) != made:
            raise UsageError(
                f"{store.guests_file}: its guests were made with provider.{key} = {made!r}, study.toml has "
                f"{now_asked[key]!r}; run `vbstudy provision`"
            )
    return inventory


def make_all(
    specs: list[GuestSpec], provider: Provider, on_guest: OnGuest, say: Say | None = None
) -> tuple[Guest, ...]:
    """In the order of `specs`."""
    made: dict[str, Guest] = {}

    def make(spec: GuestSpec, lease: Lease) -> None:
        made[spec.name] = make_guest(spec, provider, lease.cores)
        on_guest(made[spec.name])

    leases: dict[MachineCores | None, CoreLeases] = {}
    jobs = []
    for spec in specs:
        machine = machine_of(provider, spec)
        if machine not in leases:
            leases[machine] = CoreLeases(provider.cores(spec), machine, waiting=say)
        jobs.append(Job(guest=spec, leases=leases[machine], work=functools.partial(make, spec)))
    ParallelJobs(provider.stop, say).run(jobs)
    return tuple(made[spec.name] for spec in specs)


def make_guest(spec: GuestSpec, provider: Provider, cores: tuple[int, ...]) -> Guest:
    """Makes one guest, observes it from inside, and leaves it stopped."""
    provider.create(spec)
    connection = provider.start(spec, cores)
    try:
        observed = provider.observe(spec, connection)
        _require_tools(spec, observed)
    finally:
        connection.close()
        provider.stop(spec)
    return Guest(spec=spec, observed=observed, created_at=now())


def _require_tools(spec: GuestSpec, observed: Observation) -> None:
    """Guests whose image is the user's own may lack what training needs."""
    missing = observed.details.get("missing", [])
    if missing:
        raise GuestError(
            f"guest {spec.name}: its image lacks {', '.join(missing)}: install it there, or name another "
            "interpreter as provider.python in study.toml"
        )


def destroy(study: Study, store: Store) -> list[str]:
    """Removes all guests and the inventory; runs and reports stay. Returns the guests' names. Where one
    cannot be removed, the others are, and the inventory stays."""
    kind, specs = _former(study, store)
    provider = make_former(kind, study, store)
    names = [spec.name for spec in specs]

    def remove(spec: GuestSpec | None) -> None:
        if spec is not None:
            provider.destroy(spec)
        else:
            names.extend(destroy_workers(store))

    for_each(remove, [*specs, None])
    store.guests_file.unlink(missing_ok=True)
    if store.guests.is_dir() and not any(store.guests.iterdir()):
        store.guests.rmdir()
    return sorted(names)


def destroy_workers(store: Store) -> list[str]:
    """Removes what the workers of a local cluster left when their sweep was killed, except finished runs,
    which the next one collects. Returns the guests' names. Raises UsageError while a worker is alive."""
    names: list[str] = []

    def remove_study(path: Path) -> None:
        with contextlib.suppress(ValueError):  # of another vbstudy, which knows what it is
            names.extend(destroy_slots(path.parent, Study.model_validate_json(path.read_bytes())))

    def remove_worker(worker: Path) -> None:
        with Store(worker).lock("vbstudy destroy"):
            for_each(remove_study, worker.glob(f"*/{ORDERED}"))
            if not any(worker.glob(f"*/{ORDERED}")):
                shutil.rmtree(worker)

    for_each(remove_worker, {path.parents[1] for path in store.guests.glob(f"*/*/{ORDERED}")})
    return names


def destroy_slots(folder: Path, study: Study) -> list[str]:
    """Removes the guests that a killed worker left in its folder of a study, and the folder where it has no
    finished run. Returns the guests' names."""
    names: list[str] = []

    def remove(slot: Path) -> None:
        names.extend(destroy(study, Store(slot)))
        shutil.rmtree(slot, ignore_errors=True)

    for_each(remove, folder.glob("slot-*"))
    if not any(folder.rglob(RECORD)):
        shutil.rmtree(folder, ignore_errors=True)
    return names


def _former(study: Study, store: Store) -> tuple[str, list[GuestSpec]]:
    """The guests that may be there, and the kind of provider that made them: those of the inventory,
    and those that a killed provisioning left, or an inventory that was damaged since, by their folders."""
    kind: str = study.provider.kind
    specs: dict[str, GuestSpec] = {}
    with contextlib.suppress(UsageError, DamagedInventoryError):  # none, or none that can be read
        inventory = read_inventory(store.guests_file)
        kind, specs = inventory.provider, {guest.spec.name: guest.spec for guest in inventory.guests}
    for folder in store.guests.glob("cpus-*"):
        if spec := parse_guest_name(folder.name):
            specs.setdefault(spec.name, spec)
    return kind, list(specs.values())


def data_folders(study: Study, store: Store) -> tuple[Path, ...]:
    """Where this study's data sets are looked for before the system's own places, and downloaded to
    (the first one). The user's cache is named because a guest has a home of its own."""
    folder = study.data.folder
    named = ((store.directory / expand(folder)).resolve(),) if folder else ()
    return (*named, datasets.default_folder())


def fetch_datasets(study: Study, store: Store, on_download: OnDownload, into: Path | None = None) -> None:
    """Downloads what no folder holds, into the first one or another that is given. Raises PrerequisiteError
    that says how to get it by hand."""
    folders = data_folders(study, store)
    for name in _missing_datasets(study, folders):
        try:
            datasets.download(name, into or folders[0], on_download)
        except (datasets.DatasetError, OSError) as error:
            raise PrerequisiteError(str(error)) from None


def require_datasets(study: Study, store: Store) -> None:
    """Raises PrerequisiteError where no folder holds one: the study may ask for another one now."""
    if missing := _missing_datasets(study, data_folders(study, store)):
        raise PrerequisiteError(
            f"{store.study_file}: {', '.join(missing)}: not on this machine; run `vbstudy provision`, which "
            "downloads what is missing"
        )


def _missing_datasets(study: Study, folders: tuple[Path, ...]) -> list[str]:
    names = dict.fromkeys(w.dataset for w in study.networks)
    return [n for n in names if not datasets.DATASETS[n].embedded and not datasets.find(n, folders)]
