"""What the providers of virtual machines share: a port for a machine's SSH, the wait until its sshd answers,
the connection to it, and the comparison of its CPUs with those that the study asks for."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from guest.records.printable import last_line
from orchestrator.errors import GuestError
from orchestrator.inventory import GuestSpec, Observation
from orchestrator.providers.inside import Inside
from orchestrator.providers.processes import TAIL_BYTES
from orchestrator.store.store import Store
from orchestrator.transport.keys import StudyKeys
from orchestrator.transport.ssh_connect import SshTarget

PATIENCE_S = 20.0
CONNECT_TIMEOUT_S = 60.0  # an emulated guest takes its time over a key exchange
# What a resumed guest must not share with others that were resumed from the same moment: its clock, and
# the state of its random generator, from which seeds that are left free are drawn (RNDRESEEDCRNG).
RESEED = (
    "import fcntl, os, sys; f = os.open('/dev/urandom', os.O_WRONLY); "
    "os.write(f, bytes.fromhex(sys.argv[1])); fcntl.ioctl(f, 0x5207)"
)


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


def wait_for_sshd(
    guest: GuestSpec,
    port: int,
    console: Path,
    stopped: Callable[[], str],
    *,
    began: float,
    timeout_s: float,
    probe_s: float = 1.0,
    pause_s: float = 0.1,
) -> None:
    """Until the guest's sshd speaks. `stopped` says why a machine does not run any more, "" while it runs.
    Raises GuestError with the end of the console, `timeout_s` after `began` at the latest."""
    while True:
        taken_s = time.perf_counter() - began
        # Each probe costs the guest a process, so one that boots slowly gets more time to answer.
        if speaks_ssh(port, min(max(probe_s, taken_s / 20), max(timeout_s - taken_s, 0.1))):
            return
        if (why := stopped()) or time.perf_counter() >= began + timeout_s:
            break
        time.sleep(pause_s)
    taken_s = time.perf_counter() - began
    what = f"{why}, and did not answer" if why else "did not answer"
    text = tail(console)
    raise GuestError(
        f"guest {guest.name}: {what} on port 22 within {taken_s:.0f} s of starting; the last line of its "
        f"console: {last_line(text) or 'nothing'!r} (all of it: {console})",
        evidence=text,
    )


def tail(path: Path, most_bytes: int = TAIL_BYTES) -> str:
    """The end of a text file; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode(errors="replace")
    except OSError:
        return ""


def target(
    keys: StudyKeys,
    folder: Path,
    port: int,
    *,
    user: str,
    host: str = "127.0.0.1",
    key: Path | None = None,
    host_key: str | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> SshTarget:
    """Where the sshd of the machine in `folder` answers. Its host key is pinned there; without
    `host_key`, that is the study's own."""
    pinned = StudyKeys(keys.folder, folder / "known_hosts")
    pinned.pin(host, port, host_key or keys.host().public)
    return SshTarget(
        host=host,
        port=port,
        user=user,
        key=key or keys.client().private,
        known_hosts=pinned.known_hosts,
        connect_timeout_s=connect_timeout_s,
        patience_s=PATIENCE_S,
    )


def observation(
    guest: GuestSpec,
    store: Store,
    seen: Inside,
    details: dict[str, Any],
    *,
    hypervisor: str,
    vcpus: int,
    cores: Sequence[int],
    start_s: float,
    advice: str = "",
) -> Observation:
    """Raises GuestError unless hypervisor and guest both count the CPUs that were asked for."""
    if not vcpus == seen.cpus == guest.cpus:
        raise GuestError(
            f"guest {guest.name}: {guest.cpus} CPUs were asked for, {hypervisor} has {vcpus}, the guest sees "
            f"{seen.cpus}{advice}"
        )
    common = {"python": seen.python, "cpu_model": seen.model, "cpuset": "affinity"}
    folder = (store.guests / guest.name).relative_to(store.directory)
    return Observation(
        provider_cpus=vcpus,
        guest_cpus=seen.cpus,
        oversubscribed=guest.cpus > len(cores),
        start_s=round(start_s, 2),
        machine_cores=tuple(cores),
        cpu_vendor=seen.vendor,
        details={**common, **details, "folder": str(folder)},
    )
