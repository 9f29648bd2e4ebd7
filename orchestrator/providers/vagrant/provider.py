"""The Vagrant provider: one machine for each CPU count, made from a box. Vagrant makes and starts
machines; all the rest goes over our own SSH connection and to the hypervisor itself."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError, PrerequisiteError, VbstudyError
from orchestrator.files import locked, write_durably, write_private
from orchestrator.inventory import GuestSpec, Observation, host_name
from orchestrator.providers import inside, machines
from orchestrator.providers.qemu.image import library_pins
from orchestrator.providers.vagrant import command
from orchestrator.providers.vagrant.command import Vagrant
from orchestrator.providers.vagrant.hypervisors import HYPERVISORS, Hypervisor
from orchestrator.store.store import Store
from orchestrator.study.providers import ACCESS, VagrantTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import Connection
from orchestrator.transport.keys import StudyKeys
from orchestrator.transport.ssh import SshConnection
from vbstudy import caches

PYTHON = "/opt/vbstudy/bin/python"  # of the environment that provision.sh makes
WORK = "/var/lib/vbstudy"
MAKING_S = 3600  # fetching a box and installing a framework, in addition to the boot


class VagrantProvider:
    name = "vagrant"

    def __init__(self, study: Study, store: Store, notify: Say) -> None:
        settings = study.provider
        self._settings = settings if isinstance(settings, VagrantTable) else VagrantTable(kind="vagrant")
        self._store = store
        self._notify = notify
        self._frameworks = sorted(study.frameworks)
        self._keys = StudyKeys.of(store)
        self._start_s: dict[str, float] = {}
        self._open: dict[str, SshConnection] = {}
        self._stopped: set[str] = set()  # while a start goes on in another thread

    def check(self) -> list[str]:
        if how := command.missing():
            return [f"provider vagrant needs Vagrant: {how}"]
        hypervisor = HYPERVISORS[self._settings.hypervisor]()
        try:
            self._requirements()
            return hypervisor.check(command.plugins())
        except (PrerequisiteError, GuestError) as error:
            return [error.message]

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:  # noqa: ARG002
        return host_cores()

    def create(self, guest: GuestSpec) -> None:
        """Records the settings of the machine; `start` makes it. A machine with other settings is
        removed, unless they are about reaching and starting it."""
        folder = self._folder(guest)
        wanted = self._description(guest)
        file = folder / "machines.json"
        if file.exists() and _machine_settings(self._made(guest)) != _machine_settings(wanted):
            self.destroy(guest)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_seed(folder / "seed")
        text = json.dumps([wanted], indent=1) + "\n"
        if not file.exists() or file.read_text() != text:
            write_durably(file, text)

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        self.create(guest)
        began = time.perf_counter()
        vagrant, hypervisor = self._vagrant(guest), self._hypervisor(guest)
        self._stopped.discard(guest.name)
        try:
            vagrant.end()
            self._up(guest, vagrant, hypervisor)
            hypervisor.pin(self._machine(guest), cores)
            connection = self._connection(guest, vagrant)
            connection.connect()
            self._open[guest.name] = connection
            self._ready_file(guest).touch()
        except BaseException:
            with contextlib.suppress(VbstudyError):  # why it failed matters more
                self.stop(guest)
            raise
        self._start_s[guest.name] = time.perf_counter() - began
        return connection

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        hypervisor, machine = self._hypervisor(guest), self._machine(guest)
        vcpus, seen = hypervisor.vcpus(machine), inside.inspect(guest.name, connection)
        details = {
            "hypervisor": self._settings.hypervisor,
            "accelerator": hypervisor.accelerator(machine),
            "box": self._settings.box,
            "machine": machine,
        }
        name, start_s, cores = self._settings.hypervisor, self._start_s.get(guest.name, 0.0), host_cores()
        return machines.observation(
            guest, self._store, seen, details, hypervisor=name, vcpus=vcpus, cores=cores, start_s=start_s
        )

    def processes(self, guest: GuestSpec) -> list[int]:
        return self._hypervisor(guest).processes(self._machine(guest))

    def stop(self, guest: GuestSpec) -> None:
        """By switching it off. `vagrant halt --force` would ask the guest first and wait a minute for
        an answer, under libvirt."""
        if not self._folder(guest).exists():
            return
        self._stopped.add(guest.name)
        self._vagrant(guest).end()
        self._hypervisor(guest).switch_off(self._machine(guest))
        self._drop(guest)

    def destroy(self, guest: GuestSpec) -> None:
        if not self._folder(guest).exists():
            return
        vagrant, hypervisor = self._vagrant(guest), self._hypervisor(guest)
        vagrant.end()
        if vagrant.knows_machine() and not self._copied(guest):
            with contextlib.suppress(GuestError, PrerequisiteError):  # what it leaves is removed below
                vagrant.destroy()
        hypervisor.remove(self._machine(guest))
        self._drop(guest)
        shutil.rmtree(self._folder(guest))

    def _drop(self, guest: GuestSpec) -> None:
        """Under libvirt a machine has an address of its own, and nobody is left there to say goodbye:
        who still listens to it would do so for a quarter of an hour."""
        if connection := self._open.pop(guest.name, None):
            connection.drop()

    # ---- starting ----------------------------------------------------------------------------

    def _up(self, guest: GuestSpec, vagrant: Vagrant, hypervisor: Hypervisor) -> None:
        """Starts the machine; one that was made half is completed, or else made again."""
        ready = self._ready_file(guest).exists() and vagrant.knows_machine()
        # VirtualBox starts one machine after the other, and a box is unpacked once.
        alone = not ready or self._settings.hypervisor == "virtualbox"
        with self._turn(guest) if alone else contextlib.nullcontext():
            if not ready:
                self._notify(f"guest {guest.name}: Vagrant makes it from {self._settings.box}")
            half = vagrant.knows_machine()
            if not half:
                hypervisor.remove(self._machine(guest))  # what Vagrant had not noted down when it was killed
            try:
                vagrant.up(self._up_timeout_s, provision=not ready)
            except GuestError as error:
                if not half or guest.name in self._stopped:
                    raise
                self._notify(f"guest {guest.name}: is made again: {error.message}")
                self._ready_file(guest).unlink(missing_ok=True)
                with contextlib.suppress(GuestError):  # what it leaves is removed next
                    vagrant.destroy()
                hypervisor.remove(self._machine(guest))
                vagrant.up(self._up_timeout_s, provision=True)

    @contextlib.contextmanager
    def _turn(self, guest: GuestSpec) -> Iterator[None]:
        """One after the other, also with those of other studies. Raises GuestError for one that is stopped
        meanwhile."""
        base, told = caches.folder(), False
        base.mkdir(parents=True, exist_ok=True)

        def waiting() -> None:
            nonlocal told
            if guest.name in self._stopped:
                raise GuestError(f"guest {guest.name}: was stopped before Vagrant came to it")
            if not told:
                self._notify(f"guest {guest.name}: waits until Vagrant is done with another guest")
            told = True

        with locked(base / "vagrant.lock", waiting):
            yield

    @property
    def _up_timeout_s(self) -> float:
        return self._settings.boot_timeout_s + MAKING_S

    def _connection(self, guest: GuestSpec, vagrant: Vagrant) -> SshConnection:
        address = vagrant.address()
        target = machines.target(
            self._keys, self._folder(guest), address.port, user=address.user, host=address.host
        )
        return SshConnection(target, WORK, self._settings.python or PYTHON)

    # ---- what it consists of -----------------------------------------------------------------

    def _folder(self, guest: GuestSpec) -> Path:
        return self._store.guests / guest.name

    def _ready_file(self, guest: GuestSpec) -> Path:
        """There from the first time that the machine answered with the study's keys."""
        return self._folder(guest) / "ready"

    def _prefix(self, guest: GuestSpec) -> str:
        return f"{host_name(self._folder(guest))}-"

    def _machine(self, guest: GuestSpec) -> str:
        """Its name with the hypervisor: unique there, and found again after a crash."""
        return f"{self._prefix(guest)}{guest.name}"

    def _kind(self, guest: GuestSpec) -> str:
        """The hypervisor that the guest was made with, which the study may have changed since."""
        return str(self._made(guest).get("hypervisor", self._settings.hypervisor))

    def _made(self, guest: GuestSpec) -> dict[str, object]:
        """The settings that the guest was made with; none where they cannot be read."""
        try:
            (made,) = json.loads((self._folder(guest) / "machines.json").read_text())
            return dict(made)
        except (OSError, ValueError, TypeError):
            return {}

    def _copied(self, guest: GuestSpec) -> bool:
        """Whether the folder is a copy of another study's, whose machine it names."""
        seed = self._made(guest).get("seed")
        own = (self._folder(guest) / "seed").resolve()
        return isinstance(seed, str) and Path(seed) != own and Path(seed).exists()

    def _vagrant(self, guest: GuestSpec) -> Vagrant:
        return Vagrant(self._folder(guest), guest.name, self._kind(guest))

    def _hypervisor(self, guest: GuestSpec) -> Hypervisor:
        return HYPERVISORS[self._kind(guest)]()

    def _description(self, guest: GuestSpec) -> dict[str, object]:
        """What the Vagrantfile reads."""
        return {
            "name": guest.name,
            "prefix": self._prefix(guest),
            "hypervisor": self._settings.hypervisor,
            "box": self._settings.box,
            "cpus": guest.cpus,
            "memory_mib": self._settings.memory_mib,
            "boot_timeout_s": self._settings.boot_timeout_s,
            "seed": str((self._folder(guest) / "seed").resolve()),
            "key": str(self._keys.client().private.resolve()),
            "requirements": self._requirements(),
        }

    def _requirements(self) -> list[str]:
        """Nothing for a Python that the box brings along."""
        return [] if self._settings.python else library_pins(self._frameworks)

    def _write_seed(self, seed: Path) -> None:
        """What provision.sh makes this guest this study's with."""
        host = self._keys.host()
        files = {
            "authorized_keys": self._keys.client().public + "\n",
            "ssh_host_ed25519_key": host.private.read_text(),
            "ssh_host_ed25519_key.pub": host.public + "\n",
            "requirements.txt": "".join(f"{pin}\n" for pin in self._requirements()),
        }
        seed.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in files.items():
            write_private(seed / name, text.encode())


def _machine_settings(description: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in description.items() if key not in ACCESS}
