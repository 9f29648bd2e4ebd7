"""Guests and the inventory, `guests.json`: what was asked for and what was observed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from guest.records.codec import from_json, to_json
from guest.records.run import RunSpec
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import write_durably

INVENTORY_VERSION = 3  # 2: GuestSpec.cpu_model; 3: Inventory.settings
GUEST_MARK = "VBSTUDY_GUEST"  # in the environment of every process of a guest


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSpec:
    """A guest as asked for."""

    name: str
    cpus: int
    cpu_model: str = ""  # where the study compares CPU models


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is really there. `provider_cpus` is the count as the provider enforces it, `guest_cpus`
    as a process inside counts it; they must agree. `machine` is the one whose cores the guest uses, ""
    for this one; `machine_cores` are those it may be given there."""

    provider_cpus: int
    guest_cpus: int
    oversubscribed: bool
    start_s: float
    details: dict[str, Any]
    machine: str = ""
    machine_cores: tuple[int, ...] = ()
    cpu_vendor: str = ""  # as the guest sees it; "" when it is this machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A machine at this moment, as its hypervisor shows it. `port` leads to its SSH, 0 where none does;
    `process` is what runs it, 0 where nothing does."""

    state: str
    cpus: int
    memory_mib: int
    port: int
    uptime_s: float
    process: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One line of the inventory."""

    spec: GuestSpec
    observed: Observation
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """`guests.json`: written before the first guest is made, and again when all are or one failed."""

    version: int
    provider: str
    guests: tuple[Guest, ...]
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # `machine_settings` they were made by; {}: unknown
    hosts: dict[str, str] = field(
        default_factory=dict
    )  # by guest, as `Observation.machine`: where it is made

    def by_name(self) -> dict[str, Guest]:
        return {guest.spec.name: guest for guest in self.guests}

    def placed(self) -> dict[str, str]:
        """Guests by name, and the other machines that they are on."""
        return {guest.spec.name: m for guest in self.guests if (m := guest.observed.machine)} | self.hosts


class DamagedInventoryError(StoreError):
    """`guests.json` cannot be read; provisioning writes it again."""


def host_name(folder: Path) -> str:
    """What a guest's cgroup, processes or machine are called on its host, from its folder: unique
    there, and found again after a crash."""
    return f"vbstudy-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]}"


def guest_spec(cpus: int, cpu_model: str = "") -> GuestSpec:
    """The guest with this CPU count, under the name that it always has."""
    on = f"-on-{cpu_model}" if cpu_model else ""
    return GuestSpec(name=f"cpus-{cpus}{on}", cpus=cpus, cpu_model=cpu_model)


def guest_for(spec: RunSpec) -> str:
    """The name of the guest that a run needs."""
    return guest_spec(spec.threads.cpus, spec.cpu_model).name


def parse_guest_name(name: str) -> GuestSpec | None:
    """The guest that has this name; None when none has."""
    found = re.fullmatch(r"cpus-([1-9][0-9]{0,5})(?:-on-(.+))?", name)
    return guest_spec(int(found[1]), found[2] or "") if found else None


def read_inventory(path: Path) -> Inventory:
    """Raises UsageError when nothing was provisioned, DamagedInventoryError, and
    StoreError for the file of a newer vbstudy."""
    try:
        data = plain_json.parse(read_bounded(path, bounded.INVENTORY), bounded.INVENTORY)
        version = data.get("version") if isinstance(data, dict) else None
        if isinstance(version, int) and version > INVENTORY_VERSION:
            raise StoreError(f"{path}: version {version} is newer than this vbstudy; upgrade it")
        return from_json(Inventory, data, path.name)
    except FileNotFoundError:
        raise UsageError(f"{path}: there are no guests yet; run `vbstudy provision` first") from None
    except (OSError, ValueError) as error:
        raise DamagedInventoryError(f"{path}: {error}; run `vbstudy provision` to write it again") from None


def write_inventory(path: Path, inventory: Inventory) -> None:
    write_durably(path, json.dumps(to_json(inventory), indent=1) + "\n")
