"""The embedded default: a guest is a process sandbox on this machine, with a working folder and an
environment of its own, held to its cores by affinity and, where the system permits it, by a cgroup
cpuset. A guest with more CPUs than the host has cores gets all cores and is marked oversubscribed."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from guest.machine.folders import remove_folder
from orchestrator.cores.cpuset import Cpuset, CpusetUnavailable
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.files import expand, is_own
from orchestrator.inventory import GUEST_MARK, GuestSpec, Observation, host_name
from orchestrator.providers import inside, processes
from orchestrator.store.store import Store
from orchestrator.study.providers import LocalTable
from orchestrator.study.schema import Study
from orchestrator.transport.connection import Connection, LocalConnection
from vbstudy import caches

STOP_TIMEOUT_S = 10
SHORT_PATH = 32  # characters: what libraries add in TMPDIR to name a socket has to fit into its 107 bytes


class LocalProvider:
    name = "local"

    def __init__(self, study: Study, store: Store) -> None:
        self._settings = study.provider if isinstance(study.provider, LocalTable) else LocalTable()
        self._store = store
        self._python = self._interpreter()
        self._frameworks = {f.value for f in study.frameworks}

    def _interpreter(self) -> str:
        """A path counts from the study's folder. Links stay: they say which virtual environment it is."""
        named = self._settings.python
        if named and "/" in named:
            return str(self._store.directory.absolute() / expand(named))
        return named or sys.executable

    def check(self) -> list[str]:
        if shutil.which(self._python) is None:
            return [f"provider.python = {self._python!r}: there is no such interpreter"]
        with tempfile.TemporaryDirectory() as folder:
            guest = LocalConnection(Path(folder), self._python, host_cores(), None, {})
            try:
                inside.inspect("check", guest)
                home = str(caches.home())
                problems = inside.framework_problems(guest, sorted(self._frameworks), home, "provider.python")
            except GuestError as error:
                return [error.message]
        if self._settings.cpuset == "cgroup":
            try:
                self._cpuset(GuestSpec(name="check", cpus=1)).probe()
            except CpusetUnavailable as error:
                problems.append(f"provider.cpuset = 'cgroup': {error}; use 'auto' or 'affinity'")
        return problems

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:  # noqa: ARG002
        return host_cores()

    def create(self, guest: GuestSpec) -> None:
        self._folder(guest).mkdir(parents=True, exist_ok=True)  # point: guest folder made

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        self.create(guest)
        procs = self._procs(guest, cores)
        mark = {GUEST_MARK: self._cpuset(guest).name}
        return LocalConnection(self._folder(guest), self._python, cores, procs, mark, self._temporary(guest))

    def resolved(self, guest: GuestSpec, cores: tuple[int, ...]) -> dict[str, str]:
        return {"cpuset": "cgroup" if self._procs(guest, cores) else "affinity"}

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        began = time.perf_counter()
        seen = inside.inspect(guest.name, connection)
        cores = len(host_cores())
        enforced = min(guest.cpus, cores)
        if seen.cpus != enforced:
            raise GuestError(f"guest {guest.name}: sees {seen.cpus} cores, {enforced} were given to it")
        return Observation(
            provider_cpus=enforced,
            guest_cpus=seen.cpus,
            oversubscribed=guest.cpus > cores,
            start_s=time.perf_counter() - began,
            machine_cores=host_cores(),
            details={
                "python": seen.python,
                "cpuset": "cgroup" if self._cpuset(guest).exists() else "affinity",
                "folder": str(self._folder(guest).relative_to(self._store.directory)),
            },
        )

    def stop(self, guest: GuestSpec) -> None:
        # What a killed orchestrator left is found by its cgroup, or by the mark in its environment.
        cpuset = self._cpuset(guest)
        processes.end(partial(processes.marked_with_descendants, cpuset.name), f"guest {guest.name}")
        cpuset.remove(STOP_TIMEOUT_S)
        if is_own(self._temporary(guest)):
            remove_folder(self._temporary(guest))

    def destroy(self, guest: GuestSpec) -> None:
        self.stop(guest)
        remove_folder(folder := self._folder(guest))
        if folder.exists():
            raise GuestError(f"{folder}: cannot be removed; does it hold files of another user?")

    def _folder(self, guest: GuestSpec) -> Path:
        return self._store.guests / guest.name

    def _procs(self, guest: GuestSpec, cores: tuple[int, ...]) -> Path | None:
        """The file by which processes join the guest's cgroup; None where it has none."""
        if self._settings.cpuset != "affinity":
            try:
                return self._cpuset(guest).create(cores)
            except CpusetUnavailable as error:
                if self._settings.cpuset == "cgroup":
                    raise GuestError(f"guest {guest.name}: {error}") from None
        return None

    def _temporary(self, guest: GuestSpec) -> Path:
        """The programs' TMPDIR. Not in the guest's folder, which may lie too deep for sockets: the
        workers of a DataLoader would wait for ever."""
        usual = tempfile.gettempdir()
        return Path(usual if len(usual) <= SHORT_PATH else "/tmp") / host_name(self._folder(guest))  # noqa: S108

    def _cpuset(self, guest: GuestSpec) -> Cpuset:
        return Cpuset(host_name(self._folder(guest)))
