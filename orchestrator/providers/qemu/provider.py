"""The QEMU provider: one virtual machine for each CPU count, each virtual CPU on a core of its own."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from guest.records.codec import sha256_of
from guest.records.run import RunSpec
from orchestrator.agent import archive
from orchestrator.cores.leases import host_cores, host_memory_mib
from orchestrator.errors import GuestError, PrerequisiteError, VbstudyError
from orchestrator.files import expand
from orchestrator.inventory import GuestSpec, Observation, guest_for
from orchestrator.providers import cloud_init, inside, machines
from orchestrator.providers.qemu import image as images
from orchestrator.providers.qemu import kvm, scripts, seed, warm
from orchestrator.providers.qemu.image import Image
from orchestrator.providers.qemu.machine import QEMU, QemuHardware, QemuMachine
from orchestrator.providers.qemu.warm import WarmConnection
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.providers import QemuTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import Connection
from orchestrator.transport.keys import StudyKeys

PROGRAMS = {
    QEMU: "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
}
REFRESH = f"{machines.RESEED}; import time; time.clock_settime(time.CLOCK_REALTIME, float(sys.argv[2]))"


class QemuProvider:
    name = "qemu"

    def __init__(self, study: Study, store: Store, notify: Say) -> None:
        self._settings = study.provider if isinstance(study.provider, QemuTable) else QemuTable(kind="qemu")
        self._study = study
        self._store = store
        self._notify = notify
        self._agent = archive.build()
        self._frameworks = sorted(study.frameworks)
        self._keys = StudyKeys.of(store)
        self._boot_s: dict[str, float] = {}
        self._prepared: tuple[Image, str, str] | None = None
        self._lock = threading.Lock()
        self._stopped: set[str] = set()  # while a start goes on in another thread

    def check(self) -> list[str]:
        if self._settings.image is None and platform.machine() != "x86_64":
            why = f"provider qemu builds its image on x86-64, and this machine is {platform.machine()}"
            return [f"{why}: use another provider, or an x86-64 image of your own (provider.image)"]
        if missing := missing_packages():
            return [_to_install(missing)]
        try:
            _, accelerator, why = self._prepare()
        except VbstudyError as error:
            return [error.message]
        host_mib = host_memory_mib()
        if self._settings.memory_mib >= host_mib:
            return [f"provider.memory_mib = {self._settings.memory_mib}: this machine has {host_mib} in all"]
        if self._settings.accelerator == "kvm" and accelerator != "kvm":
            return [f"provider.accelerator = 'kvm': {why}; use 'auto' or 'tcg'"]
        if why:
            self._notify(f"guests are emulated, which is slow: {why}")
        return []

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:  # noqa: ARG002
        return host_cores()

    def create(self, guest: GuestSpec) -> None:
        machine = self._machine(guest)
        machine.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seed.write(machine.seed, guest.name, self._keys, self._prepare()[0])

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        """From its snapshot; or cold, where it has none that can be resumed: that takes one and goes on."""
        _require_programs()
        self.create(guest)
        machine, hardware = self._machine(guest), self._hardware(guest)
        self._stopped.discard(guest.name)
        machine.stop()
        workers = machine.workers_in_snapshot(hardware)
        connection = None
        if workers is not None:
            try:
                connection = self._boot(guest, hardware, cores, resume=True)
            except GuestError as error:
                if guest.name in self._stopped:
                    raise
                self._notify(f"guest {guest.name}: boots, its snapshot cannot be resumed: {error.message}")
                workers = None
        connection = connection or self._boot(guest, hardware, cores)
        if workers is None and self._settings.snapshot:
            try:
                workers = self._take_snapshot(guest, machine, hardware, connection)
            except BaseException:
                connection.close()
                machine.kill()
                raise
        connection.workers = workers or ()
        return connection

    def _take_snapshot(
        self, guest: GuestSpec, machine: QemuMachine, hardware: QemuHardware, connection: WarmConnection
    ) -> tuple[str, ...]:
        self._notify(f"guest {guest.name}: importing what it trains with, once, for its snapshot")
        vendor = inside.inspect(guest.name, connection).vendor
        with tempfile.TemporaryDirectory() as folder:
            connection.put(self._agent.write(Path(folder)), self._agent.name)
        workers = tuple(
            warm.launch(connection, argv, env)
            for argv, env in warm.commands(self._runs(guest), self._agent, connection.python, vendor)
        )
        connection.drop()  # the snapshot must not hold the guest's end of a connection that is gone by then
        machine.save_snapshot(hardware, workers)
        return workers

    def resolved(self, guest: GuestSpec, cores: tuple[int, ...]) -> dict[str, str]:  # noqa: ARG002
        _require_programs()
        return {"accelerator": self._prepare()[1]}

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        machine = self._machine(guest)
        vcpus, seen = len(machine.vcpus()), inside.inspect(guest.name, connection)
        _, accelerator, why = self._prepare()
        details = {
            "accelerator": accelerator,
            "accelerator_reason": why,
            "snapshot": machine.workers_in_snapshot(self._hardware(guest)) is not None,
            "address": "127.0.0.1 (any port)",
        }
        start_s, cores = self._boot_s.get(guest.name, 0.0), host_cores()
        return machines.observation(
            guest, self._store, seen, details, hypervisor="QEMU", vcpus=vcpus, cores=cores, start_s=start_s
        )

    def processes(self, guest: GuestSpec) -> list[int]:
        return self._machine(guest).processes()

    def stop(self, guest: GuestSpec) -> None:
        self._stopped.add(guest.name)
        self._machine(guest).stop()

    def destroy(self, guest: GuestSpec) -> None:
        self._machine(guest).remove()

    # ---- starting ----------------------------------------------------------------------------

    def _boot(
        self, guest: GuestSpec, hardware: QemuHardware, cores: tuple[int, ...], *, resume: bool = False
    ) -> WarmConnection:
        machine, (image, _, _) = self._machine(guest), self._prepare()
        if not resume:
            machine.new_overlay(image)
        began = time.perf_counter()
        try:
            port = machine.start(hardware, image, cores, resume=resume)
            connection = self.connection(guest, port)
            machines.wait_for_sshd(
                guest,
                port,
                machine.console,
                lambda: "its machine ended" if machine.is_over() else "",
                began=began,
                timeout_s=self._settings.boot_timeout_s,
            )
            self._enter(connection, image)
            if resume:
                self._refresh(guest, connection)
            elif image.boot is None:
                self._settle(guest, connection)
        except BaseException:
            machine.kill()
            raise
        self._boot_s[guest.name] = time.perf_counter() - began
        return connection

    def connection(self, guest: GuestSpec, port: int) -> WarmConnection:
        return WarmConnection(
            machines.target(self._keys, self._machine(guest).folder, port, user="root"),
            f"{scripts.GUEST_FOLDER}/work",
            self._settings.python,
            mark={"PYTHONPATH": scripts.LIBRARIES} if self._prepare()[0].libraries else {},
        )

    def _enter(self, connection: WarmConnection, image: Image) -> None:
        try:
            connection.connect()
        except GuestError as error:
            if image.boot is not None:
                raise
            raise GuestError(
                f"{error.message} (your image must run cloud-init, which gives it this study's keys)"
            ) from None

    def _settle(self, guest: GuestSpec, connection: WarmConnection) -> None:
        """Waits until the user's image has done what it does at its first boot, and checks whether it can
        train."""
        cloud_init.settle(guest.name, connection, self._settings.boot_timeout_s, self._notify)
        version, asked = inside.inspect(guest.name, connection).python, self._settings.python_version
        if asked and not version.startswith(f"{asked}."):
            raise GuestError(
                f"guest {guest.name}: its Python is {version}; set provider.python_version accordingly"
            )
        missing = inside.missing_frameworks(connection, [str(f) for f in self._frameworks])
        if missing:
            short = ".".join(version.split(".")[:2])
            raise GuestError(
                f"guest {guest.name}: {connection.python} has no {' and no '.join(missing)}; install it in "
                f"the image, or set provider.python_version = '{short}' and it is given to it"
            )

    def _refresh(self, guest: GuestSpec, connection: WarmConnection) -> None:
        done = connection.run(
            [connection.python, "-S", "-c", REFRESH, os.urandom(64).hex(), str(time.time())], {}, 60
        )
        if done.status != 0:
            raise GuestError(
                f"guest {guest.name}: cannot be given a new clock and seed", evidence=done.stderr
            )

    # ---- what it consists of -----------------------------------------------------------------

    def _machine(self, guest: GuestSpec) -> QemuMachine:
        return QemuMachine(self._store.guests / guest.name)

    def _prepare(self) -> tuple[Image, str, str]:
        """The image, the accelerator, and why it is not KVM."""
        with self._lock:
            if self._prepared is None:
                image = self._image()
                asked = self._settings.accelerator == "tcg"
                why = "provider.accelerator = 'tcg'" if asked else kvm.excluded()
                why = why or kvm.probe(*(image.boot or images.probe_kernel(self._notify)))
                self._prepared = image, "tcg" if why else "kvm", why
            return self._prepared

    def _image(self) -> Image:
        if self._settings.image is None:
            return images.prepare(self._frameworks, self._notify)
        root = (self._store.directory / expand(self._settings.image)).resolve()
        return images.prepare_own(root, self._settings.python_version, self._frameworks, self._notify)

    def _hardware(self, guest: GuestSpec) -> QemuHardware:
        image, accelerator, _ = self._prepare()
        named = self._settings.cpu_model
        model = named if isinstance(named, str) else guest.cpu_model
        return QemuHardware(
            cpus=guest.cpus,
            memory_mib=self._settings.memory_mib,
            cpu_model="host" if accelerator == "kvm" and model == "max" else model,
            accelerator=accelerator,
            image=image.identity,
            workers=self._workers_identity(guest),
            seed=sha256_of(self._machine(guest).seed),
            qemu=str(Path(_which(QEMU) or QEMU).resolve().stat().st_mtime_ns),
            host=kvm.host() if accelerator == "kvm" else "",
        )

    def _workers_identity(self, guest: GuestSpec) -> str:
        """Another agent, or runs with other environments, need another snapshot."""
        commands = warm.commands(self._runs(guest), self._agent, "", "")
        return hashlib.sha256(json.dumps(commands).encode()).hexdigest()

    def _runs(self, guest: GuestSpec) -> list[RunSpec]:
        return [spec for spec in plan(self._study) if guest_for(spec) == guest.name]


def missing_packages(programs: Iterable[str] = PROGRAMS) -> list[str]:
    """The Debian packages whose programs are not here."""
    return [PROGRAMS[program] for program in programs if not _which(program)]


def _require_programs() -> None:
    if missing := missing_packages((QEMU, "qemu-img")):  # the others are for images that are not built yet
        raise PrerequisiteError(_to_install(missing))


def _to_install(packages: Sequence[str]) -> str:
    return f"provider qemu needs programs that are not here: apt install {' '.join(packages)}"


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
