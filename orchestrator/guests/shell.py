"""A person's way into a guest."""

from __future__ import annotations

import subprocess

from guest.records import bounded
from orchestrator.cores.leases import CoreLeases
from orchestrator.errors import PrerequisiteError, UsageError
from orchestrator.guests.provision import read_guests
from orchestrator.inventory import Guest, Inventory, parse_guest_name, read_inventory
from orchestrator.providers import cores_of, machine_of, make
from orchestrator.providers.machines import tail
from orchestrator.store.store import Store
from orchestrator.study.messages import did_you_mean
from orchestrator.study.schema import Study
from orchestrator.text import Say


def _find(inventory: Inventory, name: str) -> Guest:
    guests = inventory.by_name()
    if not guests:
        raise UsageError("there are no guests; run `vbstudy provision`")
    if name not in guests:
        raise UsageError(
            f"there is no guest {name!r}; there are {', '.join(guests)}{did_you_mean(name, guests)}"
        )
    return guests[name]


def enter(study: Study, store: Store, name: str, command: tuple[str, ...], say: Say) -> int:
    """Starts the guest on cores that nobody uses, runs a command (or a shell) in it in the user's terminal,
    stops it. Returns the command's exit status. The caller holds the study's lock. Raises UsageError that
    names the guests there are."""
    guest = _find(read_guests(study, store), name)
    provider = make(study, store)
    leases = CoreLeases(cores_of(provider, guest), machine_of(provider, guest.spec), waiting=say)
    with leases.wait_for(name, guest.spec.cpus) as lease:
        connection = provider.start(guest.spec, lease.cores)
        try:
            argv, folder = connection.terminal(command)
            return subprocess.run(argv, cwd=folder, check=False).returncode
        except FileNotFoundError:
            raise PrerequisiteError(f"there is no {argv[0]}; install it") from None
        finally:
            connection.close()
            provider.stop(guest.spec)


def logs(store: Store, name: str) -> str:
    """A guest's console and hypervisor logs, each under its name, also of one that could not be provisioned;
    nothing where there is no console."""
    folder = store.guests / name
    if parse_guest_name(name) is None or not folder.is_dir():
        folder = store.guests / _find(read_inventory(store.guests_file), name).spec.name
    parts = []
    for file in sorted(folder.glob("*.log")) if folder.is_dir() else ():
        text = tail(file, bounded.CONSOLE.bytes).rstrip()
        if text:
            parts.append(f"==> {file.name}\n{text}")
    return "\n".join(parts)
