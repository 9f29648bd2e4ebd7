"""A cgroup that holds processes to given cores, where the system permits one (version 1 or 2).
Affinity alone can be undone by the program itself; a cpuset can not.

Hosts reached over SSH run this file's text: it imports the standard library alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MAX_CORES = 65_536
CGROUP_ROOT = Path("/sys/fs/cgroup")


class CpusetUnavailable(Exception):  # noqa: N818  (a state of this host, not a failure)
    """This host or this user cannot have one; the text says why."""


@dataclass(frozen=True, slots=True)
class Cpuset:
    """A cgroup of this name, which `inventory.host_name` makes from the guest's folder."""

    name: str

    def create(self, cores: tuple[int, ...]) -> Path:
        """Makes or re-uses it; returns the file that takes process ids."""
        parent, version = _parent()
        group = parent / self.name
        effective = ".effective" if version == 2 else ""
        try:
            if version == 2:
                control = parent / "cgroup.subtree_control"
                if "cpuset" not in control.read_text().split():
                    control.write_text("+cpuset")
            group.mkdir(exist_ok=True)
            (group / "cpuset.mems").write_text((parent / f"cpuset.mems{effective}").read_text().strip())
            (group / "cpuset.cpus").write_text(",".join(map(str, cores)))
            in_force = (group / f"cpuset.cpus{effective}").read_text()
        except OSError as error:
            with contextlib.suppress(OSError):
                group.rmdir()
            raise CpusetUnavailable(f"no cgroup cpuset below {parent}: {error.strerror}") from None
        if parse_cores(in_force) != set(cores):
            raise CpusetUnavailable(f"{group}: holds cores {in_force.strip()}, not {cores}")
        return group / "cgroup.procs"

    def probe(self) -> None:
        """Raises CpusetUnavailable when `create` would."""
        self.create((min(os.sched_getaffinity(0)),))
        self.remove(1)

    def exists(self) -> bool:
        return any(group.is_dir() for group in self._groups())

    def processes(self) -> list[int]:
        found: list[int] = []
        for group in self._groups():
            with contextlib.suppress(OSError):
                found += map(int, (group / "cgroup.procs").read_text().split())
        return found

    def remove(self, timeout_s: float) -> None:
        """Kills what runs in it and removes it; a process that was just killed holds it for a moment, and one
        that was just being started may join it after the first look."""
        for group in self._groups():
            deadline = time.monotonic() + timeout_s
            while group.is_dir():
                for process in self.processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                try:
                    group.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def _groups(self) -> list[Path]:
        try:
            return [_parent()[0] / self.name]
        except CpusetUnavailable:
            return []


def _parent() -> tuple[Path, int]:
    """The cgroup folder to make ours in, and the version of its interface."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        raise CpusetUnavailable("this system has no cgroups") from None
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    for controllers, path in paths.items():
        if "cpuset" in controllers.split(","):
            return CGROUP_ROOT / "cpuset" / path.lstrip("/"), 1
    if "" in paths and (CGROUP_ROOT / "cgroup.controllers").exists():
        return CGROUP_ROOT / paths[""].lstrip("/"), 2
    raise CpusetUnavailable("this system mounts no cpuset controller")


def parse_cores(text: str) -> set[int]:
    """`0-2,5` as the kernel writes it. Raises ValueError for what it does not write."""
    cores: set[int] = set()
    for piece in text.strip().split(","):
        first, _, last = piece.partition("-")
        if first:
            low, high = int(first), int(last or first)
            if high >= MAX_CORES:
                raise ValueError(f"there is no core {high}")
            cores.update(range(low, high + 1))
    return cores
