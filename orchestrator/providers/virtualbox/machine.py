"""One virtual machine: made as a linked clone, set up, started, put into a snapshot, stopped, removed.

A machine is found again by its name, which comes from its guest's folder, and it carries its study's mark:
what has the name and not the mark belongs to another user and is never touched."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import GuestError
from orchestrator.inventory import Now, host_name
from orchestrator.providers import processes
from orchestrator.providers.virtualbox import host, settings
from orchestrator.providers.virtualbox.api import Api, Vbox
from orchestrator.providers.virtualbox.errors import ApiError
from orchestrator.providers.virtualbox.settings import HARDWARE, STUDY

SNAPSHOT = "vbstudy-warm"
OFF = frozenset({"PoweredOff", "Aborted", "Teleported"})
ASLEEP = frozenset({"Saved", "AbortedSaved"})
STEADY = frozenset({"Running", "Paused", "Stuck"})
START_TIMEOUT_S = 300.0
SNAPSHOT_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 20.0
COPY_TIMEOUT_S, LISTING_S = 600.0, 0.5
POLL_S = 0.1
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualBoxHardware:
    """What a machine consists of; one that differs in any of it is made again, with its snapshot."""

    cpus: int
    memory_mib: int
    nested_paging: bool
    execution_engine: str
    base: str  # the name of the machine it is a clone of
    snapshot: str  # and of its snapshot, by number
    seed: str  # the hash of its seed disk, "" without one
    virtualbox: str  # saved states fit one version

    def identity(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class VirtualBoxMachine:
    """The machine of the guest in `folder`, of the study with this mark."""

    def __init__(self, api: Api, folder: Path, mark: str, about: str) -> None:
        self.folder = folder
        self.name = host_name(folder)
        self.console = folder / "console.log"
        self._api = api
        self._mark = mark
        self._about = about

    # ---- finding it --------------------------------------------------------------------------

    def find(self, vbox: Vbox) -> Any:
        """The machine, or None. Raises GuestError when its name is taken by another. For the API's
        thread, as is everything that gets a Vbox."""
        try:
            machine = vbox.root.find_machine(self.name)
        except vbox.library.VBoxErrorObjectNotFound:
            return None
        if not is_ours(machine, self._mark, self.folder):
            raise GuestError(
                f"{self._about}: VirtualBox has a machine named {self.name} that this study did not make; it "
                "is left alone: rename it, or remove it yourself if it is of no use"
            )
        return machine

    def fits(self, hardware: VirtualBoxHardware) -> bool:
        """Whether it is there, whole, and made of this hardware."""

        def read(vbox: Vbox) -> bool:
            machine = self.find(vbox)
            if machine is None or not machine.accessible:
                return False
            return bool(machine.get_extra_data(HARDWARE) == hardware.identity())

        return self._api.call(self._about, read)

    def state(self) -> str:
        """Of MachineState; "" where there is no machine."""

        def read(vbox: Vbox) -> str:
            machine = self.find(vbox)
            return "" if machine is None else str(machine.state)

        return self._api.call(self._about, read)

    def is_on(self) -> bool:
        return self.state() not in OFF | ASLEEP | {""}

    def observe(self) -> Now:
        return self._on_machine(settings.seen)

    def process(self) -> int:
        """The VBoxHeadless that runs it; 0 when none does."""
        pid = self._on_machine(lambda _, machine: int(machine._i.sessionPID))
        with contextlib.suppress(OSError):
            if b"VBoxHeadless" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return 0

    # ---- making it ---------------------------------------------------------------------------

    def clone(self, hardware: VirtualBoxHardware) -> None:
        """Makes it, as a linked clone of the base's snapshot."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            base = vbox.root.find_machine(hardware.base)
            source = base.find_snapshot(hardware.snapshot).machine
            target = vbox.create_machine(self.name, self.folder, str(source.os_type_id))
            options = [vbox.library.CloneOptions.link]
            progress = source.clone_to(target, vbox.library.CloneMode.machine_state, options)
            return progress, target

        def register(vbox: Vbox, target: Any) -> None:
            # Marked before VirtualBox lists it, so that a killed orchestrator leaves nothing unmarked.
            target.set_extra_data(STUDY, self._mark)
            target.set_extra_data(HARDWARE, "")
            vbox.root.register_machine(target)

        self._api.finish(self._about, begin, then=register)

    def configure(self, hardware: VirtualBoxHardware, port: int, seed: Path | None) -> None:
        """Everything but its disks. Needs it to be switched off."""

        def change(vbox: Vbox) -> None:
            with vbox.editing(self._found(vbox)) as editable:
                editable.cpu_count = hardware.cpus
                editable.memory_size = hardware.memory_mib
                editable.cpu_execution_cap = 100  # whatever the base has
                editable.paravirt_provider = vbox.library.ParavirtProvider["default"]
                vbox.set_hardware_virtualisation(editable, "nested_paging", hardware.nested_paging)
                vbox.set_execution_engine(editable, settings.ENGINES[hardware.execution_engine])
                vbox.set_io_apic(editable)
                settings.set_console(vbox, editable, self.console)
                settings.set_network(vbox, editable, port)
                settings.cut_off(vbox, editable)
                if seed is not None:
                    settings.insert_seed(vbox, editable, seed)
                editable.set_extra_data(HARDWARE, hardware.identity())

        self._api.patiently(self._about, change)

    # ---- its life ----------------------------------------------------------------------------

    def launch(self, cores: int) -> None:
        """Switches it on, or wakes it, without a window; returns when it runs. `cores` is how many the
        host has: what all running machines have together may not be more. Raises GuestError or
        PrerequisiteError that says what to do."""
        self.console.unlink(missing_ok=True)  # VirtualBox goes on writing at its end

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            machine = self._found(vbox)
            settings.require_room(vbox, machine, cores, self._about)
            session = vbox.session()
            return machine.launch_vm_process(session, "headless", []), session

        self._api.finish(self._about, begin, timeout_s=START_TIMEOUT_S)

    def forward(self, port: int) -> None:
        """Leads this port of the loopback to its SSH, whether it runs or not."""

        def change(vbox: Vbox) -> None:
            machine = self._found(vbox)
            if str(machine.state) in OFF | ASLEEP:
                with vbox.editing(machine) as editable:
                    settings.set_forward(editable, port)
            else:
                with vbox.sharing(machine) as session:
                    settings.set_forward(session.machine, port)
                    session.machine.save_settings()  # else nobody else sees it

        self._api.patiently(self._about, change)

    def has_snapshot(self) -> bool:
        def read(vbox: Vbox, machine: Any) -> bool:
            try:
                machine.find_snapshot(SNAPSHOT)
            except vbox.library.VBoxErrorObjectNotFound:
                return False
            return True

        return self._on_machine(read)

    def take_snapshot(self) -> None:
        """Keeps it as it is now: running, which goes on, or asleep."""

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            machine = self._found(vbox)
            return take_snapshot(vbox, machine, SNAPSHOT, live=str(machine.state) == "Running")

        self._api.finish(self._about, begin, timeout_s=SNAPSHOT_TIMEOUT_S)

    def save_state(self) -> None:
        """Puts the running machine to sleep, its memory on disk. When its process ends before VirtualBox has
        written down everything about it, VirtualBox reports a failed assertion, and the machine is asleep
        all the same (7.2, 2 of 235 times on a busy host)."""

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            session = vbox.session()
            self._found(vbox).lock_machine(session, vbox.library.LockType.shared)
            return session.machine.save_state(), session

        try:
            self._api.finish(self._about, begin, timeout_s=SNAPSHOT_TIMEOUT_S)
        except GuestError:
            self._wait_until_unlocked()
            if self.state() != "Saved":
                raise
        else:
            self._wait_until_unlocked()

    def restore_snapshot(self) -> None:
        """Puts the stopped machine back to its snapshot: it is asleep then."""

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            machine, session = self._found(vbox), vbox.session()
            machine.lock_machine(session, vbox.library.LockType.write)
            return session.machine.restore_snapshot(machine.find_snapshot(SNAPSHOT)), session

        self._wait_until_unlocked()
        self._api.finish(self._about, begin, timeout_s=SNAPSHOT_TIMEOUT_S)
        self._wait_until_unlocked()

    def stop(self, patience_s: float = 0.0) -> None:
        """Switches it off. For `patience_s` it may shut down by itself when its power button is pressed.
        Returns when its process is gone: VirtualBox reports a machine as off before that."""
        if patience_s and self.is_on():
            with contextlib.suppress(ApiError):  # a guest that is not ready for it is switched off
                self._api.attempt(self._press_power_button)
                self._wait(lambda: not self.is_on(), patience_s)
        if self.is_on():
            self._force_off()
        self._wait_until_unlocked()
        processes.end(lambda: host.processes_of(self.name, self.folder), self._about, STOP_TIMEOUT_S)

    def _press_power_button(self, vbox: Vbox) -> None:
        with vbox.sharing(self._found(vbox)) as session:
            session.console.power_button()

    def _power_down(self, vbox: Vbox) -> tuple[Any, Any]:
        session = vbox.session()
        self._found(vbox).lock_machine(session, vbox.library.LockType.shared)
        return session.console.power_down(), session

    def _force_off(self) -> None:
        """VirtualBox blocks for ever when it is asked to switch off a machine whose snapshot is being taken,
        as that of a killed orchestrator may be: such a machine gets time to end it, and one that does not
        obey loses its process."""

        def is_settled() -> bool:
            return self.state() in STEADY | OFF | ASLEEP

        settled = is_settled()
        if not settled:
            settled = self._wait(is_settled, SETTLE_TIMEOUT_S)
            time.sleep(LISTING_S)  # the state changes a little before VirtualBox lets go of the disks
        process = self.process()
        kill = functools.partial(processes.kill, [process] if process else [])
        watchdog = threading.Timer(STOP_TIMEOUT_S, kill)
        watchdog.start()
        try:
            if not settled:
                kill()
            elif self.is_on():
                self._api.finish(self._about, self._power_down, timeout_s=2 * STOP_TIMEOUT_S)
        except GuestError:  # it just went down, or is beyond asking
            kill()
        finally:
            watchdog.cancel()
        if not self._wait(lambda: not self.is_on(), STOP_TIMEOUT_S):
            raise GuestError(
                f"{self._about}: its machine {self.name} cannot be switched off: end its VBoxHeadless "
                f"({process or 'no process is known'}), and run this again"
            )

    def _wait_until_unlocked(self) -> None:
        """A machine's session is closed a moment after the machine has stopped."""

        def is_free(vbox: Vbox) -> bool:
            machine = self.find(vbox)
            return machine is None or machine.session_state == vbox.library.SessionState.unlocked

        self._wait(lambda: self._api.call(self._about, is_free), STOP_TIMEOUT_S)

    def remove(self) -> None:
        """Switches it off and deletes it with its disks and its folder, whatever of it there is."""
        self.clear()
        if self.folder.exists():
            self.folder.rmdir()

    def clear(self) -> None:
        """The same, but its folder stays: by it `vbstudy destroy` knows that there is something to do."""
        names = self._api.call(self._about, lambda vbox: named_in(vbox, self._mark, self.folder))
        if not names and self.folder.exists() and any(self.folder.iterdir()):
            # VirtualBox finishes the copy of a killed orchestrator, and lists the disk only then.
            self._wait(lambda: not host.service_writes_to(self.folder), COPY_TIMEOUT_S)
            time.sleep(LISTING_S)
        for name in names:
            machine = VirtualBoxMachine(self._api, self.folder, self._mark, self._about)
            machine.name = name
            machine._remove_machine()
        try:
            self._api.patiently(self._about, functools.partial(settings.close_media, self.folder))
        except GuestError:
            if self._api.call(self._about, functools.partial(settings.are_used, self.folder)):
                raise
        for entry in self.folder.iterdir() if self.folder.exists() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _remove_machine(self) -> None:
        reachable = self._api.call(self._about, lambda vbox: bool(self._found(vbox).accessible))
        if reachable:
            self.stop()

        def begin(vbox: Vbox) -> tuple[Any, Any]:
            machine, modes = self._found(vbox), vbox.library.CleanupMode
            if not reachable:  # its files are damaged or gone: only the entry is left to remove
                machine.unregister(modes.unregister_only)
                return None, None
            machine.unregister(modes.detach_all_return_hard_disks_only)
            return machine.delete_config([]), None  # its disks go with its folder

        self._api.finish(self._about, begin, patiently=True)

    # ---- small helpers -----------------------------------------------------------------------

    def _found(self, vbox: Vbox) -> Any:
        machine = self.find(vbox)
        if machine is None:
            raise GuestError(f"{self._about}: its machine {self.name} is gone; run `vbstudy provision`")
        return machine

    def _on_machine(self, function: Callable[[Vbox, Any], Result]) -> Result:
        return self._api.call(self._about, lambda vbox: function(vbox, self._found(vbox)))

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not (met := condition()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return met


def is_ours(machine: Any, mark: str, folder: Path) -> bool:
    """By the study's mark, or by lying in the study's own folder, where nobody else makes machines: an
    import is listed by VirtualBox before it can be marked."""
    if Path(str(machine.settings_file_path)).resolve().is_relative_to(folder.resolve()):
        return True
    if not machine.accessible or machine.get_extra_data(STUDY) != mark:
        return False
    return str(machine.name) == host_name(folder)  # a clone that its user made of it has the mark too


def named_in(vbox: Vbox, mark: str, folder: Path) -> list[str]:
    """Names, or numbers, of the machines that belong to this folder."""
    return [str(m.id_p) for m in vbox.root.machines if is_ours(m, mark, folder)]


def take_snapshot(vbox: Vbox, machine: Any, name: str, *, live: bool = False) -> tuple[Any, Any]:
    """The task, and its session. One of a running machine must be `live`, any other must not."""
    session = vbox.session()
    machine.lock_machine(session, vbox.library.LockType.shared)
    progress, _ = session.machine.take_snapshot(name, "", not live)
    return progress, session
