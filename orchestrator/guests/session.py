"""One guest while it runs: started with the agent and the data in it, and started again after it was lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from guest.machine import fingerprint
from guest.records.printable import counted
from orchestrator.agent import data
from orchestrator.agent.archive import AgentArchive
from orchestrator.agent.executor import OUT, Executor, GuestContext
from orchestrator.cores import load
from orchestrator.cores.leases import CoreLeases
from orchestrator.cores.load import HostLook
from orchestrator.errors import GuestError
from orchestrator.guests.provision import data_folders
from orchestrator.inventory import Guest
from orchestrator.providers import Provider, Resolving, Virtual, cores_of, machine_of
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import Connection

MAX_WORKERS = 4  # warm ones in a guest: one for each environment of its runs
WORKER_MIB = 1024  # what one may need of a guest's memory with a run in it


@dataclass(slots=True, eq=False)
class Session:
    """Used by one thread. `close` leaves the guest stopped, whatever happened before."""

    study: Study
    store: Store
    provider: Provider
    guest: Guest
    cores: tuple[int, ...]
    agent: AgentArchive
    _connection: Connection | None = field(default=None, init=False)
    _executor: Executor | None = field(default=None, init=False)

    def executor(self) -> Executor:
        """Starts the guest where it does not run. Raises GuestError when it cannot be started, and where it
        would have another number of cores than it was made with, or another accelerator or cpuset: records
        have those of the inventory."""
        if self._executor is not None:
            return self._executor
        spec, observed = self.guest.spec, self.guest.observed
        made = len(observed.machine_cores) if observed.oversubscribed else spec.cpus
        if min(len(self.cores), spec.cpus) != made:
            raise GuestError(
                f"guest {spec.name} would get {counted(len(self.cores), 'core')} and had {made} when it was "
                f"made: allow this process {counted(made, 'core')} (taskset, container), or run "
                "`vbstudy provision` again"
            )
        # point: former guest stopped
        self.provider.stop(self.guest.spec)  # what a killed orchestrator may have left running
        self._require_as_made()
        # point: guest started
        self._connection = connection = self.provider.start(self.guest.spec, self.cores)
        connection.remove(OUT)
        folder = self.store.new_incoming()  # where it is swept away, should this process be killed
        try:
            connection.put(self.agent.write(folder), self.agent.name)  # point: agent put
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        # point: data put
        folders = data.bring(self.study, data_folders(self.study, self.store), connection)
        details = observed.details
        context = GuestContext(
            visible_cpus=observed.guest_cpus,
            oversubscribed=observed.oversubscribed,
            cpu_vendor=observed.cpu_vendor or fingerprint.cpu()["vendor"],
            data_folders=folders,
            engine=self.study.engine,
            emulated_model=str(details.get("cpu_model", "")) if details.get("accelerator") == "tcg" else "",
            projects=data.bring_projects(self.study, self.store, connection),
            warm_workers=self._warm_workers(),
        )
        self._executor = Executor(connection, self.agent, context)  # point: executor made
        return self._executor

    def _require_as_made(self) -> None:
        if isinstance(self.provider, Resolving):
            name, made = self.guest.spec.name, self.guest.observed.details
            for key, now in self.provider.resolved(self.guest.spec, self.cores).items():
                if made.get(key, now) != now:
                    raise GuestError(
                        f"guest {name}: was made with {key} = {made[key]!r}, now it is {now!r}; try again "
                        "where it is as before, or run `vbstudy provision`"
                    )

    def _warm_workers(self) -> int:
        memory_mib = self.study.guest_memory_mib
        return max(1, min(MAX_WORKERS, memory_mib // WORKER_MIB)) if memory_mib else MAX_WORKERS

    def host_snapshot(self) -> HostLook | None:
        """Of its cores, from the machine below it. None where a guest sees as much itself, where that
        machine is not this one, and where the hypervisor does not answer: no run fails for that."""
        if not isinstance(self.provider, Virtual):
            return None
        try:
            processes = self.provider.processes(self.guest.spec)
        except GuestError:
            return None
        return load.look(self.cores, processes)

    def close(self) -> None:
        """Stops the guest; the next run starts it again."""
        connection, self._connection, self._executor = self._connection, None, None
        try:
            if connection is not None:
                connection.close()
        finally:
            self.provider.stop(self.guest.spec)  # point: guest stopped


@contextlib.contextmanager
def alone(
    study: Study,
    store: Store,
    provider: Provider,
    guest: Guest,
    agent: AgentArchive,
    say: Say,
) -> Iterator[Session]:
    """A guest at work with all cores of its machine held for it, once they are free."""
    cores, machine = cores_of(provider, guest), machine_of(provider, guest.spec)
    leases = CoreLeases(cores, machine, settings=EngineTable(side_by_side=False), waiting=say)
    with leases.wait_for(guest.spec.name, guest.spec.cpus) as lease:
        session = Session(study, store, provider, guest, lease.cores, agent)
        try:
            yield session
        finally:
            session.close()
