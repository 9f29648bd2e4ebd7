"""The host under the machines: its cores, its kernel driver, and the processes that run machines."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.cores import topology
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.providers import processes

DRIVER = Path("/dev/vboxdrv")
PIN_TIMEOUT_S = 5.0


def cores() -> tuple[int, ...]:
    """One hyper-thread of each physical core that we may use: two virtual CPUs on the threads of one core
    would slow each other down, and VirtualBox is not to be given more CPUs than there are cores."""
    there = topology.read(host_cores())
    return tuple(sorted({min(domains.core & there.keys()) for domains in there.values()}))


def processes_of(machine: str, folder: Path, uuid: str = "") -> list[int]:
    """The VBoxHeadless processes of a machine, which have its name or number in their command line. One that
    ends loses that first, and its disks last: until then it is known by its files in the machine's folder."""
    names = {machine, uuid} - {""}
    found = processes.matching(lambda words: "--startvm" in words and bool(names & set(words)))
    return sorted({*found, *filter(_is_ending, _holders("VBoxHeadless", folder))})


def _is_ending(process: int) -> bool:
    try:
        return not Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False  # it has ended


def pin(process: int, wanted: Sequence[int], about: str) -> None:
    """Holds all threads of a VBoxHeadless to these cores, and each virtual CPU (thread EMT-n) to one of its
    own as far as there are; verified. VirtualBox itself cannot do that."""
    deadline = time.monotonic() + PIN_TIMEOUT_S
    while True:
        try:
            loose = _pin_threads(process, wanted)
        except PermissionError:
            raise GuestError(
                f"{about}: its process {process} belongs to another user and cannot be held to its cores: "
                "run vbstudy as the user who owns VirtualBox's machines"
            ) from None
        except (ProcessLookupError, FileNotFoundError):
            raise GuestError(f"{about}: its machine ended while it was started") from None
        if not loose:  # a pass over all threads that found nothing to do: none was started meanwhile
            return
        if time.monotonic() > deadline:
            raise GuestError(f"{about}: its threads cannot be held to cores {list(wanted)}")


def _pin_threads(process: int, wanted: Sequence[int]) -> bool:
    """Whether a thread had to be pinned."""
    loose = False
    threads = sorted(int(entry.name) for entry in Path(f"/proc/{process}/task").iterdir())
    for thread in threads:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
            cores = _cores_of(process, thread, wanted)
            if os.sched_getaffinity(thread) != cores:
                os.sched_setaffinity(thread, cores)
                loose = True
    if not threads:
        raise ProcessLookupError(process)
    return loose


def _cores_of(process: int, thread: int, wanted: Sequence[int]) -> set[int]:
    name = Path(f"/proc/{process}/task/{thread}/comm").read_text().strip()
    found = re.fullmatch(r"EMT(?:-(\d+))?", name)
    if not found:
        return set(wanted)
    return {wanted[int(found[1] or 0) % len(wanted)]}


def listens(process: int, port: int) -> bool:
    """Whether this process has the loopback port. Where its descriptors may not be read (a hardened
    VBoxHeadless), whether anybody has it."""
    inodes = _listening(port)
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if str(entry.readlink()) in wanted:
                    return True
    except PermissionError:
        return bool(inodes)
    except FileNotFoundError:  # the process ended
        return False
    return False


def is_taken(process: int, port: int) -> bool:
    """Whether another process listens there."""
    return bool(_listening(port)) and not listens(process, port)


def _listening(port: int) -> set[str]:
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        address, state, inode = fields[1], fields[3], fields[9]
        if state == "0A" and int(address.rpartition(":")[2], 16) == port:
            found.add(inode)
    return found


def service_writes_to(folder: Path) -> bool:
    """Whether VirtualBox's service has a file in this folder open."""
    return bool(_holders("VBoxSVC", folder))


def _holders(program: str, folder: Path) -> list[int]:
    """Processes of this program that have a file in the folder open."""
    inside, found = f"{folder.resolve()}/", []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if (process / "comm").read_text().strip() == program and any(
                file.startswith(inside) for file in _open_files(process)
            ):
                found.append(int(process.name))
    return found


def _open_files(process: Path) -> Iterator[str]:
    """Of all threads: the first may be gone, and files are closed with the last."""
    for thread in (process / "task").iterdir():
        with contextlib.suppress(OSError):
            for file in (thread / "fd").iterdir():
                yield str(file.readlink())
