"""Makes the guests that the study asks for, looks at what is really there, writes the inventory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from guest import datasets
from orchestrator.errors import PrerequisiteError
from orchestrator.guests import (
    INVENTORY_VERSION,
    Guest,
    GuestSpec,
    Inventory,
    guest_name,
    read_inventory,
    write_inventory,
)
from orchestrator.providers import Provider, make_former
from orchestrator.store import Store, now
from orchestrator.study import Study

OnGuest = Callable[[Guest], None]
OnDownload = Callable[[str, int, int], None]


def provision(
    study: Study, store: Store, provider: Provider, on_guest: OnGuest, on_download: OnDownload
) -> Inventory:
    """Makes `guests.json` true to the study: one guest for each count in `cpus`, no others.
    Data sets that are not on this machine are downloaded. The caller holds the study's lock."""
    problems = provider.check()
    if problems:
        raise PrerequisiteError("; ".join(problems))
    fetch_datasets(study, store, on_download)
    wanted = [GuestSpec(name=guest_name(cpus), cpus=cpus) for cpus in study.cpus]
    if store.guests_file.exists():
        before = read_inventory(store.guests_file)
        former = make_former(before.provider, study, store)
        for guest in before.guests:
            if guest.spec not in wanted or before.provider != provider.name:
                former.destroy(guest.spec)
    guests = []
    for spec in wanted:
        guest = _make(spec, provider)
        guests.append(guest)
        on_guest(guest)
    inventory = Inventory(version=INVENTORY_VERSION, provider=provider.name, guests=tuple(guests))
    write_inventory(store.guests_file, inventory)
    return inventory


def _make(spec: GuestSpec, provider: Provider) -> Guest:
    provider.create(spec)
    connection = provider.start(spec, provider.cores(spec)[: spec.cpus])
    try:
        observed = provider.observe(spec, connection)
    finally:
        connection.close()
        provider.stop(spec)
    return Guest(spec=spec, observed=observed, created_at=now())


def destroy(study: Study, store: Store) -> list[str]:
    """Removes all guests and the inventory; runs and reports stay. Returns the guests' names."""
    specs: dict[str, GuestSpec] = {}
    kind: str = study.provider.kind
    if store.guests_file.exists():
        inventory = read_inventory(store.guests_file)
        specs = {guest.spec.name: guest.spec for guest in inventory.guests}
        kind = inventory.provider
    provider = make_former(kind, study, store)
    # A provisioning that was killed may have left folders that the inventory does not name.
    for folder in store.guests.glob("cpus-*") if store.guests.is_dir() else ():
        count = folder.name.removeprefix("cpus-")
        if count.isdigit():
            specs.setdefault(folder.name, GuestSpec(name=folder.name, cpus=int(count)))
    for spec in specs.values():
        provider.destroy(spec)
    store.guests_file.unlink(missing_ok=True)
    if store.guests.is_dir() and not any(store.guests.iterdir()):
        store.guests.rmdir()
    return sorted(specs)


def data_folders(study: Study, store: Store) -> tuple[Path, ...]:
    """Where this study's data sets are looked for before the system's own places, and downloaded to
    (the first one). The user's cache is named because a guest has a home of its own."""
    folder = study.data.folder
    named = ((store.directory / folder).resolve(),) if folder else ()
    return (*named, datasets.default_folder())


def fetch_datasets(study: Study, store: Store, on_download: OnDownload) -> None:
    """Downloads what no folder holds. Raises PrerequisiteError that says how to get it by hand."""
    folders = data_folders(study, store)
    for name in dict.fromkeys(w.dataset for w in study.workload):
        if datasets.DATASETS[name].embedded or datasets.find(name, folders):
            continue
        try:
            datasets.download(name, folders[0], on_download)
        except (datasets.DatasetError, OSError) as error:
            raise PrerequisiteError(str(error)) from None
