"""Machines that are there already: cluster nodes, cloud VMs, a colleague's workstation. A guest is a
folder on one of them and a limit to n of its cores, by affinity and, where permitted, by a cgroup."""

from __future__ import annotations

import contextlib
import functools
import getpass
import hashlib
import inspect
import os
import shlex
import tempfile
import time
from pathlib import Path, PurePosixPath

from orchestrator.cores import cpuset
from orchestrator.cores.remote import RemoteCores
from orchestrator.errors import GuestError, StoreError, UsageError
from orchestrator.files import expand
from orchestrator.inventory import GUEST_MARK, GuestSpec, Observation, guest_spec, read_inventory
from orchestrator.providers import inside
from orchestrator.store.store import Store
from orchestrator.study.providers import SshHostTable, SshTable
from orchestrator.study.schema import Study
from orchestrator.transport.connection import Connection
from orchestrator.transport.keys import StudyKeys
from orchestrator.transport.ssh import REMOVAL_TIMEOUT_S, SshConnection
from orchestrator.transport.ssh_connect import SshTarget, look_up
from orchestrator.transport.ssh_folders import private_removal, removal

STOP_TIMEOUT_S = 30
# Until none is found twice: a process that begins a program just then has no environment for a moment.
KILL = """
none=0
for again in 1 2 3 4 5 6 7 8 9 10 11; do
  found=$(grep -lzx {mark} /proc/[0-9]*/environ 2>/dev/null)
  if [ -n "$found" ]; then none=0; else none=$((none + 1)); fi
  [ $none -lt 2 ] || exit 0
  for file in $found; do
    pid=${{file#/proc/}}; pid=${{pid%/environ}}; kill -s KILL "$pid" 2>/dev/null
  done
  sleep 0.1
done
echo "process $pid does not end, although it was killed; see ps -l $pid there" >&2
exit 1
"""


class SshProvider:
    name = "ssh"

    def __init__(self, study: Study, store: Store) -> None:
        if not isinstance(study.provider, SshTable):
            raise UsageError("provider ssh needs [provider] kind = 'ssh' and its hosts in study.toml")
        self._settings = study.provider
        self._store = store
        self._keys = StudyKeys.of(store)
        self._frameworks = sorted(f.value for f in study.frameworks)
        self._placed, self._folders = self._read_placed()
        self._hosts = {self._name(host): host for host in study.provider.hosts}
        at = {cpus: self._placed.get(guest_spec(cpus).name, "") for cpus in study.cpus}
        stay = {cpus: self._hosts[name] for cpus, name in at.items() if name in self._hosts}
        self._assigned = _assign(study.cpus, study.provider.hosts, stay)
        self._cores: dict[SshHostTable, tuple[int, ...]] = {}
        self._machines: dict[str, RemoteCores] = {}

    def check(self) -> list[str]:
        return [problem for host in self._settings.hosts for problem in self._check(host)]

    def _check(self, host: SshHostTable) -> list[str]:
        own = self._study_folder(host)  # several studies may look at once
        clear = f"rm -rf -- {shlex.quote(f'{own}/check')}; rmdir {shlex.quote(own)} 2>/dev/null; :"
        with (
            contextlib.closing(self._connect(host, f"{own}/check")) as connection,
            tempfile.NamedTemporaryFile() as file,
        ):
            try:
                connection.connect()
                try:
                    cores = inside.inspect(host.host, connection).cores
                    home = connection.shell('printf %s "$HOME"')
                    lacking = inside.framework_problems(
                        connection, self._frameworks, home, "the host's python"
                    )
                    connection.put(Path(file.name), "file")  # some servers have no SFTP
                finally:
                    connection.shell(clear)
            except GuestError as error:
                return [error.message]
        problems = [f"{host.host}: {each}" for each in lacking]
        if len(cores) < host.cpus:
            problems.append(
                f"{host.host}: cpus = {host.cpus} in study.toml, it lets us use {len(cores)} cores"
            )
        return problems

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:
        host = self._host(guest)
        if host not in self._cores:
            with self._connected(guest) as connection:
                self._cores[host] = inside.inspect(guest.name, connection).cores[: host.cpus]
        return self._cores[host]

    def machine(self, guest: GuestSpec) -> RemoteCores:
        host = self._host(guest)
        connect = functools.partial(self._connect, host, host.folder)
        return self._machines.setdefault(str(self._target(host)), RemoteCores(connect))

    def host(self, guest: GuestSpec) -> str:
        return self._name(self._host(guest))

    def create(self, guest: GuestSpec) -> None:
        (self._store.guests / guest.name).mkdir(parents=True, exist_ok=True)
        with self._connected(guest) as connection:
            connection.shell(f"mkdir -p {shlex.quote(self._folder(guest))}")

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        self.create(guest)
        host = self._host(guest)
        with self._connected(guest) as plain:
            folder = plain.shell(f"cd {shlex.quote(self._folder(guest))} && pwd -P").rstrip("\n")
            group = self._join_cpuset(plain, guest, cores)
        return SshConnection(
            self._target(host),
            folder,
            host.python,
            prefix=("taskset", "-c", ",".join(map(str, cores))),
            join=group,
            mark={GUEST_MARK: self._mark(guest)},
            temporary=self._temporary(guest),
        )

    def resolved(self, guest: GuestSpec, cores: tuple[int, ...]) -> dict[str, str]:
        if self._settings.cpuset == "affinity":
            return {"cpuset": "affinity"}
        with self._connected(guest) as plain:
            return {"cpuset": "cgroup" if self._join_cpuset(plain, guest, cores) else "affinity"}

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        began = time.perf_counter()
        seen = inside.inspect(guest.name, connection)
        cores, host = self.cores(guest), self._host(guest)
        enforced = min(guest.cpus, len(cores))
        if seen.cpus != enforced:
            raise GuestError(f"guest {guest.name}: sees {seen.cpus} cores, {enforced} were given to it")
        target = self._target(host)
        groups = connection.run(["cat", "/proc/self/cgroup"], {}, STOP_TIMEOUT_S).stdout
        return Observation(
            provider_cpus=enforced,
            guest_cpus=seen.cpus,
            oversubscribed=guest.cpus > len(cores),
            start_s=time.perf_counter() - began,
            machine=str(target),
            machine_cores=cores,
            cpu_vendor=seen.vendor,
            details={
                "python": seen.python,
                "cpu_model": seen.model,
                "cpuset": "cgroup" if self._mark(guest) in groups else "affinity",
                "address": str(target),
                "folder": self._folder(guest),
            },
        )

    def stop(self, guest: GuestSpec) -> None:
        if not (self._store.guests / guest.name).exists():
            return  # never made
        with self._connected(guest) as connection:
            mark = shlex.quote(f"{GUEST_MARK}={self._mark(guest)}")
            connection.shell(KILL.format(mark=mark), STOP_TIMEOUT_S, "ending the guest's processes")
            if self._settings.cpuset != "affinity":
                # By Python, which may be gone, only where there is one.
                groups = f"find {cpuset.CGROUP_ROOT} -type d -name {self._mark(guest)} 2>/dev/null; :"
                if connection.shell(groups):
                    self._cpuset_call(connection, guest, f"remove({STOP_TIMEOUT_S // 2})")
            connection.shell(private_removal(self._temporary(guest)), REMOVAL_TIMEOUT_S)

    def destroy(self, guest: GuestSpec) -> None:
        local = self._store.guests / guest.name
        if not local.exists():
            return
        self.stop(guest)
        folder = shlex.quote(self._folder(guest))
        with self._connected(guest) as connection:
            connection.shell(
                f"{removal(self._folder(guest))} || exit 1; rmdir {folder}/.. 2>/dev/null || "
                f'rmdir "$(dirname {folder})" 2>/dev/null; '
                f"rmdir {shlex.quote(self._host(guest).folder)} 2>/dev/null; :",
                REMOVAL_TIMEOUT_S,
            )
        local.rmdir()

    # ---- hosts -------------------------------------------------------------------------------

    def _read_placed(self) -> tuple[dict[str, str], dict[str, PurePosixPath]]:
        """The guests that are there: their hosts, and the hosts' folders that they were made in."""
        with contextlib.suppress(UsageError, StoreError):  # no inventory, or none that can be read
            inventory = read_inventory(self._store.guests_file)
            placed = {n: at for n, at in inventory.placed().items() if (self._store.guests / n).is_dir()}
            made = {guest.spec.name: guest.observed.details.get("folder") for guest in inventory.guests}
            return placed, {n: PurePosixPath(str(f)).parents[1] for n, f in made.items() if n in placed and f}
        return {}, {}

    def _host(self, guest: GuestSpec) -> SshHostTable:
        """Where it is made; of a guest that is there already, where it was."""
        at = self._placed.get(guest.name)
        if at is None:
            return (
                self._assigned.get(guest.cpus) or _assign((guest.cpus,), self._settings.hosts, {})[guest.cpus]
            )
        if at not in self._hosts:
            raise UsageError(
                f"guest {guest.name} is on {at}, which is not among the hosts of study.toml: put it back and "
                "run `vbstudy destroy` before it is taken out; where that machine is gone for good, delete "
                f"{self._store.guests / guest.name} and run `vbstudy provision`"
            )
        host = self._hosts[at]
        if self._folders.get(guest.name, PurePosixPath(host.folder)) != PurePosixPath(host.folder):
            raise UsageError(
                f"guest {guest.name} is in the folder {self._folders[guest.name]} of {at}, study.toml has "
                "another: put it back and run `vbstudy destroy` before it is changed"
            )
        return host

    def _name(self, host: SshHostTable) -> str:
        """As `SshTarget` has it."""
        user, port = self._login(host)
        return f"{user}@{host.host}:{port}"

    def _login(self, host: SshHostTable) -> tuple[str, int]:
        """The user and the port of study.toml; what it leaves open is as in `~/.ssh/config`, where that
        counts."""
        if not self._settings.use_ssh_config:
            return host.user or getpass.getuser(), host.port
        found = look_up(host.host)
        return host.user or found.user, host.port if "port" in host.model_fields_set else found.port

    def _target(self, host: SshHostTable) -> SshTarget:
        base, (user, port) = self._store.directory, self._login(host)
        target = SshTarget(
            host=host.host,
            port=port,
            user=user,
            key=(base / expand(host.key)) if host.key else self._keys.client().private,
            known_hosts=((base / expand(host.known_hosts)) if host.known_hosts else self._keys.known_hosts),
            connect_timeout_s=self._settings.connect_timeout_s,
            patience_s=self._settings.patience_s,
            use_ssh_config=self._settings.use_ssh_config,
        )
        if host.host_key:
            self._keys.pin(target.address, target.port, host.host_key)
        return target

    def _connect(self, host: SshHostTable, folder: str) -> SshConnection:
        return SshConnection(self._target(host), folder, host.python)

    def _connected(self, guest: GuestSpec) -> contextlib.closing[SshConnection]:
        return contextlib.closing(self._connect(self._host(guest), self._folder(guest)))

    def _mark(self, guest: GuestSpec) -> str:
        """Unique among all studies that use the same host."""
        where = f"{os.uname().nodename}:{(self._store.guests / guest.name).resolve()}"
        return f"vbstudy-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"

    def _temporary(self, guest: GuestSpec) -> str:
        """As of a sandbox on this machine."""
        return f"/tmp/{self._mark(guest)}"  # noqa: S108

    def _folder(self, guest: GuestSpec) -> str:
        return f"{self._study_folder(self._host(guest))}/{guest.name}"

    def _study_folder(self, host: SshHostTable) -> str:
        where = f"{os.uname().nodename}:{self._store.directory.resolve()}"
        return f"{host.folder}/{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"

    # ---- cgroups over there ------------------------------------------------------------------

    def _join_cpuset(self, connection: SshConnection, guest: GuestSpec, cores: tuple[int, ...]) -> str:
        if self._settings.cpuset == "affinity":
            return ""
        answer = self._cpuset_call(connection, guest, f"create({cores!r})")
        if not answer.startswith("/") and self._settings.cpuset == "cgroup":
            raise GuestError(f"guest {guest.name}: {self._host(guest).host}: {answer}")
        return answer if answer.startswith("/") else ""

    def _cpuset_call(self, connection: SshConnection, guest: GuestSpec, call: str) -> str:
        """Runs one method of `orchestrator.cores.cpuset.Cpuset` on the host, which needs none of ours for
        it."""
        program = (
            f"{inspect.getsource(cpuset)}\n"
            f"try:\n    print(Cpuset({self._mark(guest)!r}).{call})\n"
            "except CpusetUnavailable as reason:\n    print('cpuset:', reason)\n"
        )
        python = self._host(guest).python
        return connection.shell(f"{shlex.quote(python)} -c {shlex.quote(program)}").strip()


def _assign(
    counts: tuple[int, ...], hosts: tuple[SshHostTable, ...], stay: dict[int, SshHostTable]
) -> dict[int, SshHostTable]:
    """Spreads guests over the hosts that have the cores, evenly, in the order of the study file, beside those
    that are there and stay; a guest that is too large for all gets the largest host and is marked
    oversubscribed."""
    taken: dict[SshHostTable, int] = dict.fromkeys(hosts, 0)
    for host in stay.values():
        taken[host] += 1
    assigned = dict(stay)
    for cpus in counts:
        if cpus in stay:
            continue
        fitting = [h for h in hosts if h.cpus >= cpus]
        host = min(fitting, key=lambda h: taken[h]) if fitting else max(hosts, key=lambda h: h.cpus)
        taken[host] += 1
        assigned[cpus] = host
    return assigned
