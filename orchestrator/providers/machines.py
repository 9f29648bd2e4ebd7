"""What the providers of virtual machines share: a port for a machine's SSH, whether its sshd speaks, what
its console said, its processes, and the comparison of the CPUs that were asked for with those that are."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import GuestError
from orchestrator.guests import GuestSpec

TAIL_BYTES = 4000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def speaks_ssh(port: int, timeout_s: float) -> bool:
    """A hypervisor takes connections before the guest does, so only sshd's own words count."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as probe:
            probe.settimeout(timeout_s)
            return probe.recv(4) == b"SSH-"
    except OSError:
        return False


def processes(chosen: Callable[[list[str]], bool], folder: Path | None = None) -> list[int]:
    """Those of this machine whose command line, as words, is chosen. One that ends loses that first, and its
    ports and the locks of its disks last: until then it counts by the `folder` that it works in."""
    found, home = [], folder and folder.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if line := (process / "cmdline").read_bytes():
                counts = chosen(line.decode(errors="replace").split("\0"))
            else:
                counts = home is not None and _works_in(process, home)
            if counts:
                found.append(int(process.name))
    return found


def _works_in(process: Path, folder: Path) -> bool:
    """Whether any of its threads does: files are closed with the last of them, and the first may be gone."""
    for thread in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # it has left it
            if (thread / "cwd").readlink() == folder:
                return True
    return False


def tail(path: Path) -> str:
    """The end of a text file; nothing where there is none."""
    try:
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""


def does_not_answer(what: str, console: Path) -> GuestError:
    """`what` went wrong, with the end of the machine's console."""
    said = tail(console)
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "nothing")
    return GuestError(
        f"{what}; the last line of its console: {last.strip()!r} (all of it: {console})", evidence=said
    )


def check_cpus(guest: GuestSpec, hypervisor: str, has: int, sees: int, advice: str = "") -> None:
    """Raises GuestError unless hypervisor and guest both count the CPUs that were asked for."""
    if not has == sees == guest.cpus:
        raise GuestError(
            f"guest {guest.name}: {guest.cpus} CPUs were asked for, {hypervisor} has {has}, the guest sees "
            f"{sees}{advice}"
        )
