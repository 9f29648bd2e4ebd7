import json

import pytest

from orchestrator import inventory as guests
from orchestrator.errors import StoreError, UsageError
from orchestrator.inventory import (
    INVENTORY_VERSION,
    DamagedInventoryError,
    Guest,
    Inventory,
    Observation,
    guest_for,
    guest_spec,
    host_name,
    parse_guest_name,
    read_inventory,
    write_inventory,
)
from tests import factories

SEEN = Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1.0, details={})


@pytest.mark.parametrize("spec", [guest_spec(1), guest_spec(12), guest_spec(2, "Haswell,+avx2")])
def test_a_guest_is_found_by_its_name(spec):
    assert parse_guest_name(spec.name) == spec


@pytest.mark.parametrize("name", ["cpus-", "cpus-0", "cpus-1x", "cpus-1-on-", "cpus-01", "other", ""])
def test_other_folders_are_no_guests(name):
    assert parse_guest_name(name) is None


def test_a_run_needs_the_guest_of_its_cpus_and_cpu_model():
    assert guest_for(factories.spec(cpus=2)) == "cpus-2"
    assert guest_for(factories.spec(cpus=2, cpu_model="EPYC")) == "cpus-2-on-EPYC"


def test_an_inventory_is_read_as_it_was_written(tmp_path):
    inventory = Inventory(
        version=INVENTORY_VERSION,
        provider="qemu",
        guests=(Guest(spec=guest_spec(1, "EPYC"), observed=SEEN, created_at="now"),),
    )
    write_inventory(tmp_path / "guests.json", inventory)
    assert read_inventory(tmp_path / "guests.json") == inventory


def test_an_inventory_of_version_1_knows_no_cpu_models(tmp_path):
    inventory = Inventory(
        version=1, provider="local", guests=(Guest(spec=guest_spec(1), observed=SEEN, created_at="now"),)
    )
    data = guests.to_json(inventory)
    del data["guests"][0]["spec"]["cpu_model"]
    (tmp_path / "guests.json").write_text(json.dumps(data))
    assert read_inventory(tmp_path / "guests.json") == inventory


def test_a_newer_inventory_is_told_from_a_damaged_and_a_missing_one(tmp_path):
    path = tmp_path / "guests.json"
    with pytest.raises(UsageError, match="run `vbstudy provision` first"):
        read_inventory(path)
    path.write_text(json.dumps({"version": INVENTORY_VERSION + 1, "something": "new"}))
    with pytest.raises(StoreError, match="newer than this vbstudy"):
        read_inventory(path)
    path.write_text('{"version": 1')
    with pytest.raises(DamagedInventoryError, match="run `vbstudy provision` to write it again"):
        read_inventory(path)


def test_guests_in_unlike_folders_have_unlike_names_on_their_host(tmp_path):
    assert host_name(tmp_path / "a") != host_name(tmp_path / "b")
