"""What guests are clones of: a snapshot of the user's machine, or of one that is made here from a disk image
or an appliance. The user's machine and files are read, and never changed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import threading
import urllib.error
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO

from guest.datasets import download
from guest.records.codec import sha256_of
from guest.records.pace import Moved
from orchestrator.errors import GuestError, PrerequisiteError, VbstudyError
from orchestrator.files import expand, locked
from orchestrator.inventory import host_name
from orchestrator.providers import processes
from orchestrator.providers.virtualbox import machine as machines
from orchestrator.providers.virtualbox import settings
from orchestrator.providers.virtualbox.api import TASK_TIMEOUT_S, Api, Vbox, is_over
from orchestrator.providers.virtualbox.machine import VirtualBoxMachine
from orchestrator.providers.virtualbox.settings import STUDY
from orchestrator.study.providers import DISK_IMAGES, VirtualBoxTable
from orchestrator.text import Say
from vbstudy import caches

SNAPSHOT = "vbstudy"
OS_TYPE = "Linux26_64"
RAW_IMAGES = (".raw", ".img")
# Before PATH: /usr/bin/VBoxManage is a wrapper in Debian that prints warnings of its own.
MANAGE = ("/usr/lib/virtualbox/VBoxManage", "/opt/VirtualBox/VBoxManage")
FETCH_LIMIT_BYTES = 64 << 30
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A machine, and the number of the snapshot of it that is cloned."""

    machine: str
    snapshot: str


class Base:
    """The base of one study's guests. `folder` is where those of our own making lie."""

    def __init__(self, api: Api, table: VirtualBoxTable, directory: Path, folder: Path, notify: Say) -> None:
        self._api = api
        self._table = table
        self._folder = folder
        self._mark = host_name(folder)
        self._notify = notify
        self._file = directory / expand(table.base) if table.is_file() else None
        self._source: Source | None = None
        self._lock = threading.Lock()

    def problems(self) -> list[str]:
        """What keeps it from being used, a sentence each. Fetches the image where the study says from
        where. Raises what the API says."""
        if self._file is None:
            return self._problems_of_machine()
        if not self._file.exists() and self._table.url:
            fetch(self._table.url, self._file, self._notify)
        if not self._file.is_file():
            return [f"provider.base = {self._table.base!r}: there is no such file; give its url to fetch it"]
        expected = self._table.base_sha256
        if expected and (found := sha256_of(self._file)) != expected.lower():
            known = f"{self._file}: its SHA-256 is {found}, base_sha256 in study.toml is another"
            return [f"{known}; delete the file to fetch it again, or correct the key"]
        return []

    def _problems_of_machine(self) -> list[str]:
        name = self._table.base

        def read(vbox: Vbox) -> list[str]:
            try:
                machine = vbox.root.find_machine(name)
            except vbox.library.VBoxErrorObjectNotFound:
                known = ", ".join(str(m.name) for m in vbox.root.machines if m.accessible) or "none"
                return [f"provider.base = {name!r}: VirtualBox has no such machine; it has: {known}"]
            if not machine.accessible:
                return [
                    f"provider.base = {name!r}: VirtualBox cannot read that machine's settings; repair it"
                ]
            if machine.snapshot_count == 0:
                cure = f"switch it off and take one: VBoxManage snapshot {name!r} take {SNAPSHOT}"
                return [f"provider.base = {name!r}: the machine has no snapshot to clone; {cure}"]
            return []

        return self._api.call("provider.base", read)

    def source(self) -> Source:
        """The machine to clone; made where it is not there. Guests wait for each other here."""
        with self._lock:
            if self._source is None:
                self._source = self._snapshot_of_machine() if self._file is None else self._from_file()
            return self._source

    def _snapshot_of_machine(self) -> Source:
        def read(vbox: Vbox) -> Source:
            machine = vbox.root.find_machine(self._table.base)
            return Source(machine=str(machine.id_p), snapshot=str(machine.current_snapshot.id_p))

        return self._api.call("provider.base", read)

    # ---- made here ---------------------------------------------------------------------------

    def _from_file(self) -> Source:
        assert self._file is not None  # noqa: S101  (for the type checker)
        made = self._made_from(self._file)
        source = self._api.call("base image", lambda vbox: _complete(vbox, made))
        if source is None:
            if not self._file.exists():
                raise _gone(self._file)  # before anything of the base that was made of it is removed
            self._notify(f"making the base of the guests from {self._file.name}")
            made.remove()  # what a killed orchestrator left of it
            made.folder.mkdir(parents=True)
            if self._file.suffix.lower() in DISK_IMAGES:
                self._from_disk(made, self._file)
            else:
                self._from_appliance(made, self._file)
            source = self._api.call("base image", lambda vbox: _complete(vbox, made))
        if source is None:
            raise GuestError(
                f"{self._file}: no base could be made of it; run `vbstudy destroy` and try again"
            )
        return source

    def _made_from(self, file: Path) -> VirtualBoxMachine:
        """Another file, or other bytes in it, is another base. Of a file that is gone it is the only one."""
        bases = list(self._folder.glob("base-*"))
        if file.exists():
            seen = file.resolve().stat()
            identity = f"{file.resolve()} {seen.st_size} {seen.st_mtime_ns}"
            folder = self._folder / f"base-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        elif len(bases) == 1:
            (folder,) = bases
        else:
            raise _gone(file)
        return VirtualBoxMachine(self._api, folder, self._mark, "base image")

    def _from_disk(self, made: VirtualBoxMachine, file: Path) -> None:
        """A copy, as VDI, so that VirtualBox never writes to the user's file nor takes its number."""
        copy = str(made.folder.resolve() / "disk.vdi")
        if file.suffix.lower() in RAW_IMAGES:
            _convert(file, copy)
        else:
            self._copy(file, copy)
        self._api.call("base image", functools.partial(self._assemble, made, copy))
        self._take_snapshot(made)

    def _copy(self, file: Path, copy: str) -> None:
        location = str(file.resolve())

        def registered(vbox: Vbox) -> list[Any]:
            return [medium for medium in vbox.root.hard_disks if str(medium.location) == location]

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            kinds, modes = vbox.library.DeviceType, vbox.library.AccessMode
            source = vbox.root.open_medium(location, kinds.hard_disk, modes.read_only, False)
            target = vbox.root.create_medium("VDI", copy, modes.read_write, kinds.hard_disk)
            return source.clone_to_base(target, [vbox.library.MediumVariant.standard]), source

        def forget(vbox: Vbox) -> None:
            for medium in registered(vbox):
                medium.close()

        was_known = self._api.call(str(file), lambda vbox: bool(registered(vbox)))
        try:
            self._api.finish(str(file), begin)
        finally:
            if not was_known:
                with contextlib.suppress(VbstudyError):  # why it failed matters more
                    self._api.call(str(file), forget)

    def _assemble(self, made: VirtualBoxMachine, copy: str, vbox: Vbox) -> None:
        machine = vbox.create_machine(made.name, made.folder, OS_TYPE)
        machine.set_extra_data(STUDY, self._mark)
        controller = settings.add_controller(vbox, machine)
        vbox.root.register_machine(machine)
        kinds, modes = vbox.library.DeviceType, vbox.library.AccessMode
        disk = vbox.root.open_medium(copy, kinds.hard_disk, modes.read_write, False)
        with vbox.editing(machine) as editable:
            editable.attach_device(str(controller.name), 0, 0, kinds.hard_disk, disk)

    def _from_appliance(self, made: VirtualBoxMachine, file: Path) -> None:
        def begin(vbox: Vbox) -> tuple[Any, Any]:
            appliance = vbox.root.create_appliance()
            # pyvbox's own `read` makes an error of each remark that VirtualBox has on the file.
            reading = vbox.library.IProgress(appliance._call("read", in_p=[str(file.resolve())]))
            reading.wait_for_completion(-1)
            is_over(reading)
            appliance.interpret()
            systems = appliance.virtual_system_descriptions
            if len(systems) != 1:
                raise GuestError(
                    f"{file}: holds {len(systems)} machines; export the one that is wanted alone"
                )
            _name_import(vbox, systems[0], made)
            return appliance.import_machines([]), appliance

        def mark(vbox: Vbox) -> None:
            with vbox.editing(vbox.root.find_machine(made.name)) as editable:
                editable.set_extra_data(STUDY, self._mark)

        self._api.finish(str(file), begin)
        self._api.patiently("base image", mark)
        self._take_snapshot(made)

    def _take_snapshot(self, made: VirtualBoxMachine) -> None:
        self._api.finish(
            "base image",
            lambda vbox: machines.take_snapshot(vbox, vbox.root.find_machine(made.name), SNAPSHOT),
            patiently=True,
        )

    # ---- removing it -------------------------------------------------------------------------

    def remove(self) -> None:
        """Removes all bases of this study's own making. There must be no clone of them any more."""
        with self._lock:
            self._source = None
            for folder in sorted(self._folder.glob("base-*")):
                VirtualBoxMachine(self._api, folder, self._mark, "base image").remove()


def _gone(file: Path) -> PrerequisiteError:
    return PrerequisiteError(
        f"{file}: is gone, and guests are made from it: put it back; where study.toml has its url, "
        "`vbstudy provision` fetches it"
    )


def _complete(vbox: Vbox, made: VirtualBoxMachine) -> Source | None:
    """Its snapshot is the last thing that is made of it."""
    machine = made.find(vbox)
    if machine is None or not machine.accessible or machine.snapshot_count == 0:
        return None
    return Source(machine=made.name, snapshot=str(machine.current_snapshot.id_p))


def _name_import(vbox: Vbox, system: Any, made: VirtualBoxMachine) -> None:
    """Has an appliance's machine made under our name, in our folder."""
    kinds = vbox.library.VirtualSystemDescriptionType
    types, _, _, values, extra = system.get_description()
    home = made.folder.resolve() / made.name
    for i, kind in enumerate(types):
        if kind == kinds.name:
            values[i] = made.name
        elif kind == kinds.settings_file:
            values[i] = str(home / f"{made.name}.vbox")
        elif kind == kinds.hard_disk_image:
            values[i] = str(home / Path(str(values[i])).name)
    system.set_final_values([True] * len(types), list(values), list(extra))


def _convert(file: Path, copy: str) -> None:
    """A disk without a format, which the API does not open."""
    program = next((p for p in MANAGE if Path(p).exists()), shutil.which("VBoxManage") or "VBoxManage")
    command = [program, "convertfromraw", str(file.resolve()), copy, "--format", "VDI"]
    failure = f"{file}: VBoxManage does not convert it"
    processes.output(command, failure, TASK_TIMEOUT_S, missing=PrerequisiteError)


def fetch(url: str, target: Path, notify: Say) -> None:
    """Downloads an image to a temporary name and renames it when it is complete. Who wants one meanwhile
    waits. Raises PrerequisiteError."""
    notify(f"fetching {url}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        caches.folder().mkdir(parents=True, exist_ok=True)
        with locked(caches.folder() / "virtualbox.lock"):
            if not target.exists():
                _download(url, target)
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise PrerequisiteError(
            f"{url}: cannot be fetched: {reason}; put the file to {target} yourself"
        ) from None


def _download(url: str, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as file:
            with download.opened(url) as (answer, moved):  # the study file takes http and https only
                _copy(answer, file, moved)
            file.flush()
            os.fsync(file.fileno())
        part.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _copy(answer: HTTPResponse, file: BinaryIO, moved: Moved) -> None:
    announced = answer.headers.get("Content-Length")
    if announced is None and not answer.chunked:
        raise ValueError("the server does not say how many bytes it sends")
    while data := answer.read1(CHUNK_BYTES):
        moved(len(data))
        file.write(data)
        if file.tell() > FETCH_LIMIT_BYTES:
            raise ValueError(f"it has more than {FETCH_LIMIT_BYTES >> 30} GiB")
    if announced and file.tell() != int(announced):
        raise ValueError(f"{file.tell()} of {announced} bytes arrived")
