"""On which of its hosts a study's guest is made, and that it stays there."""

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory import (
    INVENTORY_VERSION,
    Guest,
    Inventory,
    Observation,
    guest_spec,
    write_inventory,
)
from orchestrator.providers.ssh import SshProvider
from orchestrator.store.store import Store
from orchestrator.study import schema


def provider(store: Store, cpus: list[int], *hosts: str) -> SshProvider:
    text = f'cpus = {cpus}\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n[provider]\nkind = "ssh"\n'
    tables = [f'[[provider.hosts]]\nhost = "{host}"\nuser = "me"\ncpus = 8\n' for host in hosts]
    return SshProvider(schema.parse(text + "".join(tables)), store)


def hosts(made: SshProvider, *cpus: int) -> list[str]:
    return [made.host(guest_spec(n)) for n in cpus]


def made_on(store: Store, placed: dict[int, str], version: int = INVENTORY_VERSION) -> None:
    """An inventory of guests that are there. Those of version 2 have nothing but what was observed."""
    seen = {"provider_cpus": 1, "guest_cpus": 1, "oversubscribed": False, "start_s": 1.0, "details": {}}
    guests = [
        Guest(spec=guest_spec(n), observed=Observation(**seen, machine=at), created_at="now")
        for n, at in placed.items()
    ]
    at_all = {guest.spec.name: guest.observed.machine for guest in guests}
    write_inventory(
        store.guests_file,
        Inventory(
            version=version,
            provider="ssh",
            guests=tuple(guests) if version < INVENTORY_VERSION else (),
            hosts=at_all if version == INVENTORY_VERSION else {},
        ),
    )
    for name in at_all:
        (store.guests / name).mkdir(parents=True)


A, B = "me@a:22", "me@b:22"


@pytest.mark.parametrize("version", [2, INVENTORY_VERSION])
def test_guests_stay_on_their_hosts_when_counts_are_dropped_or_hosts_added(tmp_path, version):
    store = Store(tmp_path)
    assert hosts(provider(store, [1, 2, 4], "a", "b"), 1, 2, 4) == [A, B, A]
    made_on(store, {1: A, 2: B, 4: A}, version)
    assert hosts(provider(store, [1, 4], "a", "b"), 1, 2, 4) == [A, B, A]
    assert hosts(provider(store, [1, 2, 4], "c", "b", "a"), 1, 2, 4) == [A, B, A]


def test_new_guests_are_spread_beside_those_that_stay(tmp_path):
    store = Store(tmp_path)
    made_on(store, {2: A})
    assert hosts(provider(store, [1, 2, 4], "a", "b"), 1, 2, 4) == [B, A, A]


def test_a_guest_whose_host_left_the_study_is_named_with_the_way_out(tmp_path):
    store = Store(tmp_path)
    made_on(store, {1: A, 2: B})
    with pytest.raises(UsageError, match="guest cpus-2 is on me@b:22, which is not among the hosts"):
        hosts(provider(store, [1, 2], "a"), 1, 2)
    (store.guests / "cpus-2").rmdir()  # as it says
    assert hosts(provider(store, [1, 2], "a"), 1, 2) == [A, A]
