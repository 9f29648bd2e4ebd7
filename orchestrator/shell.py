"""A person's way into a guest."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.errors import PrerequisiteError, UsageError
from orchestrator.guests import Guest, Inventory
from orchestrator.providers import Provider
from orchestrator.study_messages import did_you_mean


def find(inventory: Inventory, name: str) -> Guest:
    """The guest of this name. Raises UsageError that names those there are."""
    guests = {guest.spec.name: guest for guest in inventory.guests}
    if name not in guests:
        raise UsageError(
            f"there is no guest {name!r}; there are {', '.join(guests)}{did_you_mean(name, guests)}"
        )
    return guests[name]


def enter(provider: Provider, guest: Guest, command: tuple[str, ...]) -> int:
    """Starts the guest, runs a command (or a shell) in it in the user's terminal, stops it. Returns
    the command's exit status."""
    cores = provider.cores(guest.spec)[: guest.spec.cpus]
    connection = provider.start(guest.spec, cores)
    try:
        argv, folder = connection.terminal(command)
        return subprocess.run(argv, cwd=folder, check=False).returncode
    except FileNotFoundError:
        raise PrerequisiteError(f"there is no {argv[0]}; install it") from None
    finally:
        connection.close()
        provider.stop(guest.spec)


def logs(folder: Path) -> str:
    """What a guest's machine has said, each file under its name."""
    parts = []
    for file in sorted(folder.glob("*.log")) if folder.is_dir() else ():
        text = file.read_text(errors="replace").rstrip()
        if text:
            parts.append(f"==> {file.name}\n{text}")
    return "\n".join(parts)
