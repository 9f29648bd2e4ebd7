"""The VirtualBox provider: a linked clone of one base for each CPU count, held to the cores it was given."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from guest.records.codec import sha256_of
from orchestrator.errors import GuestError, UsageError, VbstudyError
from orchestrator.files import expand
from orchestrator.inventory import GuestSpec, Now, Observation, host_name
from orchestrator.providers import cloud_init, inside, machines
from orchestrator.providers.virtualbox import api, checklist, host
from orchestrator.providers.virtualbox.api import Vbox
from orchestrator.providers.virtualbox.base import Base
from orchestrator.providers.virtualbox.errors import NO_DRIVER, NO_VIRTUALISATION
from orchestrator.providers.virtualbox.machine import VirtualBoxHardware, VirtualBoxMachine
from orchestrator.providers.virtualbox.settings import seen
from orchestrator.store.store import Store
from orchestrator.study.providers import VirtualBoxTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import Connection
from orchestrator.transport.keys import StudyKeys
from orchestrator.transport.ssh import SshConnection

PORT_ATTEMPTS = 5
PORT_TIMEOUT_S = 10.0
SHUTDOWN_S = 20.0
# A guest in the interpreter takes half a minute over a key exchange.
CONNECT_TIMEOUT_S = {"auto": 60.0, "native": 60.0, "interpreter": 240.0}
PROBE_S = {"auto": 10.0, "native": 10.0, "interpreter": 60.0}  # each probe costs the guest a process
COMMAND_TIMEOUT_S = {"auto": 60.0, "native": 60.0, "interpreter": 300.0}
REFRESH = """
as=; [ "$(id -u)" = 0 ] || as='sudo -n'
$as date -u -s "@$2" > /dev/null || exit 1
if command -v "$1" > /dev/null; then $as "$1" -S -c "$4" "$3"; else echo "$3" > /dev/urandom; fi
"""


class VirtualBoxProvider:
    name = "virtualbox"

    def __init__(self, study: Study, store: Store, notify: Say) -> None:
        if not isinstance(study.provider, VirtualBoxTable):
            raise UsageError(
                "provider virtualbox needs [provider] kind = 'virtualbox' and a base in study.toml"
            )
        self._settings = study.provider
        self._store = store
        self._notify = notify
        self._frameworks = sorted(f.value for f in study.frameworks)
        self._keys = StudyKeys.of(store)
        self._api = api.shared()
        self._base = Base(self._api, self._settings, store.directory, store.guests, notify)
        self._mark = host_name(store.guests)
        self._boot_s: dict[str, float] = {}

    def check(self) -> list[str]:
        missing = api.why_not()
        if missing:
            return [f"provider virtualbox: {missing}"]
        try:
            problems = self._problems_of_host() + self._base.problems()
        except VbstudyError as error:
            return [error.message]
        if not self._settings.cloud_init and not self._settings.host_key:
            problems.append(
                "provider.host_key is missing: give the host key that the image shows (its "
                "/etc/ssh/ssh_host_ed25519_key.pub), or set cloud_init = true for a cloud image"
            )
        return problems

    def _problems_of_host(self) -> list[str]:
        host_mib, virtualises = self._api.call("provider virtualbox", _capabilities)
        problems = []
        if self._settings.execution_engine != "interpreter":
            if not host.DRIVER.exists():
                problems.append(f"provider virtualbox: {NO_DRIVER}: {checklist.driver(checklist.read())}")
            elif not virtualises:
                problems.append(f"provider virtualbox: {NO_VIRTUALISATION}")
        if self._settings.memory_mib >= host_mib:
            problems.append(
                f"provider.memory_mib = {self._settings.memory_mib}: the host has {host_mib} in all"
            )
        return problems

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:  # noqa: ARG002
        return host.cores()

    # ---- the contract ------------------------------------------------------------------------

    def create(self, guest: GuestSpec) -> None:
        """A clone with its settings. One that was made of another base, or for other settings, is
        made again."""
        machine = self._machine(guest)
        machine.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if machine.fits(self._hardware(guest, self._seed(guest, machine))):
            return
        machine.clear()
        seed = self._seed(guest, machine)
        hardware = self._hardware(guest, seed)
        machine.clone(hardware)
        machine.configure(hardware, machines.free_port(), seed)

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        """From its snapshot, or cold; the first start takes the snapshot and goes on."""
        self.create(guest)
        machine, began = self._machine(guest), time.perf_counter()
        machine.stop()
        resumes = self._settings.snapshot != "off" and machine.has_snapshot()
        try:
            if resumes:
                machine.restore_snapshot()
            port = self._power_up(guest, machine, cores, began)
            if not resumes and self._settings.cloud_init:
                self._settle(guest, machine, port)
            if not resumes and self._settings.snapshot != "off":
                port = self._take_snapshot(guest, machine, cores, port)
            connection = self._connect(machine, port)
            if resumes:
                self._refresh(guest, connection)
        except BaseException:
            machine.stop()
            raise
        self._boot_s[guest.name] = time.perf_counter() - began
        return connection

    def resolved(self, guest: GuestSpec, cores: tuple[int, ...]) -> dict[str, str]:  # noqa: ARG002
        return {"base": self._base.source().snapshot}

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        machine = self._machine(guest)
        there = machine.observe()
        timeout_s = COMMAND_TIMEOUT_S[self._settings.execution_engine]
        within, missing = inside.inspect_with_shell(guest.name, connection, self._frameworks, timeout_s)
        interpreted = self._settings.execution_engine == "interpreter"
        details = {
            "missing": list(missing),
            "accelerator": "interpreter" if interpreted else "virtualbox",
            "hypervisor": f"VirtualBox {self._api.call(guest.name, lambda vbox: vbox.version)}",
            "snapshot": machine.has_snapshot(),
            "state": there.state,
            "uptime_s": there.uptime_s,
            "port": there.port,
            "memory_mib": there.memory_mib,
            "address": "127.0.0.1 (any port)",
            "machine": machine.name,
            "base": self._base.source().snapshot,
        }
        return machines.observation(
            guest,
            self._store,
            within,
            details,
            hypervisor="VirtualBox",
            vcpus=there.cpus,
            cores=host.cores(),
            start_s=self._boot_s.get(guest.name, 0.0),
            advice="; where its kernel limits them (maxcpus, acpi=off), change the image",
        )

    def processes(self, guest: GuestSpec) -> list[int]:
        process = self._machine(guest).process()
        return [process] if process else []

    def stop(self, guest: GuestSpec) -> None:
        """A guest that goes back to its snapshot is switched off; any other may shut down first."""
        machine = self._machine(guest)
        if machine.folder.exists():
            machine.stop(SHUTDOWN_S if self._settings.snapshot == "off" else 0.0)

    def destroy(self, guest: GuestSpec) -> None:
        """With the bases, when this was the last guest."""
        machine = self._machine(guest)
        if machine.folder.exists():
            machine.clear()
        # Clones that a killed orchestrator left half made are not listed, but their folders are there.
        if not any(folder != machine.folder for folder in self._store.guests.glob("cpus-*")):
            self._base.remove()
        if machine.folder.exists():
            machine.folder.rmdir()

    def watch(self, guests: Sequence[GuestSpec]) -> dict[str, Now]:
        """What the API says of guests now, by their names, in one session; those without a machine are left
        out."""
        ours = {guest.name: self._machine(guest) for guest in guests}

        def read(vbox: Vbox) -> dict[str, Now]:
            found = {name: machine.find(vbox) for name, machine in ours.items()}
            return {name: seen(vbox, machine) for name, machine in found.items() if machine is not None}

        return self._api.call("provider virtualbox", read)

    # ---- starting ----------------------------------------------------------------------------

    def _power_up(
        self, guest: GuestSpec, machine: VirtualBoxMachine, cores: tuple[int, ...], began: float
    ) -> int:
        """Until its sshd speaks. Returns the port that leads there."""
        port = machines.free_port()
        machine.forward(port)
        machine.launch(len(host.cores()))
        process = machine.process()
        host.pin(process, cores, f"guest {guest.name}")
        port = self._own_port(guest, machine, process, port)

        def stopped() -> str:
            return "" if (state := machine.state()) == "Running" else f"is {state}"

        machines.wait_for_sshd(
            guest,
            port,
            machine.console,
            stopped,
            began=began,
            timeout_s=self._settings.boot_timeout_s,
            probe_s=PROBE_S[self._settings.execution_engine],
            pause_s=0.5,
        )
        host.pin(process, cores, f"guest {guest.name}")  # threads that were started meanwhile, too
        return port

    def _own_port(self, guest: GuestSpec, machine: VirtualBoxMachine, process: int, port: int) -> int:
        """VirtualBox starts a machine without its forward when another program took the port in between, and
        does not report it."""
        for attempt in range(PORT_ATTEMPTS):
            if attempt:
                port = machines.free_port()
                machine.forward(port)
            deadline = time.monotonic() + PORT_TIMEOUT_S
            while time.monotonic() < deadline:
                if host.listens(process, port):
                    return port
                if attempt < PORT_ATTEMPTS - 1 and host.is_taken(process, port):
                    break
                time.sleep(0.05)
        raise GuestError(f"guest {guest.name}: VirtualBox does not forward a port to it (last tried: {port})")

    def _settle(self, guest: GuestSpec, machine: VirtualBoxMachine, port: int) -> None:
        """Its connection ends here: a snapshot must not hold the guest's end of one that is gone by then."""
        connection = self._connect(machine, port)
        try:
            cloud_init.settle(guest.name, connection, self._settings.boot_timeout_s, self._notify)
        finally:
            connection.close()

    def _take_snapshot(
        self, guest: GuestSpec, machine: VirtualBoxMachine, cores: tuple[int, ...], port: int
    ) -> int:
        self._notify(f"guest {guest.name}: booted, taking its snapshot")
        if self._settings.snapshot == "live":
            machine.take_snapshot()
            return port
        machine.save_state()
        machine.take_snapshot()
        return self._power_up(guest, machine, cores, time.perf_counter())

    def _connect(self, machine: VirtualBoxMachine, port: int) -> SshConnection:
        table = self._settings
        target = machines.target(
            self._keys,
            machine.folder,
            port,
            user=table.user,
            key=self._store.directory / expand(table.key) if table.key else None,
            host_key=table.host_key,
            connect_timeout_s=CONNECT_TIMEOUT_S[table.execution_engine],
        )
        return SshConnection(target, table.folder, table.python)

    def _refresh(self, guest: GuestSpec, connection: SshConnection) -> None:
        script = ["sh", "-c", REFRESH, "refresh", connection.python]
        values = [f"{time.time():.0f}", os.urandom(64).hex(), machines.RESEED]
        done = connection.run([*script, *values], {}, COMMAND_TIMEOUT_S[self._settings.execution_engine])
        if done.status != 0:
            connection.close()
            raise GuestError(
                f"guest {guest.name}: cannot be given a new clock and seed: user {self._settings.user} must "
                "be root there, or may use sudo without a password; else set provider.snapshot = 'off'",
                evidence=done.stderr,
            )

    # ---- what it consists of -----------------------------------------------------------------

    def _machine(self, guest: GuestSpec) -> VirtualBoxMachine:
        return VirtualBoxMachine(
            self._api, self._store.guests / guest.name, self._mark, f"guest {guest.name}"
        )

    def _hardware(self, guest: GuestSpec, seed: Path | None) -> VirtualBoxHardware:
        table, source = self._settings, self._base.source()
        return VirtualBoxHardware(
            cpus=guest.cpus,
            memory_mib=table.memory_mib,
            nested_paging=table.nested_paging,
            execution_engine=table.execution_engine,
            base=source.machine,
            snapshot=source.snapshot,
            seed="" if seed is None else sha256_of(seed),
            virtualbox=self._api.call(f"guest {guest.name}", lambda vbox: vbox.version),
        )

    def _seed(self, guest: GuestSpec, machine: VirtualBoxMachine) -> Path | None:
        """The disk by which a cloud image becomes this guest."""
        if not self._settings.cloud_init:
            return None
        client, own = self._keys.client(), self._keys.host()
        path = machine.folder / "seed.iso"
        cloud_init.seed_iso(
            path,
            hostname=guest.name,
            user=self._settings.user,
            authorized_key=client.public,
            host_private=own.private.read_text(encoding="utf-8"),
            host_public=own.public,
        )
        return path


def _capabilities(vbox: Vbox) -> tuple[int, bool]:
    """The host's memory, and whether its processor has VT-x or AMD-V that VirtualBox can use."""
    feature = vbox.library.ProcessorFeature.hw_virt_ex
    return int(vbox.root.host.memory_size), bool(vbox.root.host.get_processor_feature(feature))
