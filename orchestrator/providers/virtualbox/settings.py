"""Pieces of a machine's settings: console, network, disks; and whether the host has room for it. All of it
is for the API's thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.errors import GuestError
from orchestrator.inventory import Now
from orchestrator.providers.virtualbox.api import Vbox
from orchestrator.providers.virtualbox.errors import OBJECT_IN_USE, ApiError

STUDY, HARDWARE = "vbstudy/study", "vbstudy/hardware"  # keys of a machine's extra data
ENGINES = {"auto": "Default", "native": "HwVirt", "interpreter": "Interpreter"}
FORWARD = "vbstudy-ssh"
CONTROLLER = "SATA"


def set_console(vbox: Vbox, machine: Any, path: Path) -> None:
    """Its first serial port writes to a file; the others lead nowhere."""
    port = machine.get_serial_port(0)
    port.path = str(path.resolve())
    port.host_mode = vbox.library.PortMode.raw_file
    port.enabled = True
    for other in _further(vbox, machine.get_serial_port):
        other.enabled = False


def set_network(vbox: Vbox, machine: Any, port: int) -> None:
    """Its first network card is behind NAT, with one way in; it has no others."""
    adapter = machine.get_network_adapter(0)
    adapter.enabled = True
    adapter.cable_connected = True
    adapter.attachment_type = vbox.library.NetworkAttachmentType.nat
    for rule in adapter.nat_engine.redirects:  # those of the base would take ports of the host
        adapter.nat_engine.remove_redirect(rule.split(",")[0])
    if vbox.number >= (7, 0):  # which made a setting of it
        adapter.nat_engine._i.localhostReachable = False
    set_forward(machine, port)
    for other in _further(vbox, machine.get_network_adapter):
        other.enabled = False


def cut_off(vbox: Vbox, machine: Any) -> None:
    """Of what the base may share with its user's host, a guest has nothing."""
    for folder in machine.shared_folders:
        machine.remove_shared_folder(str(folder.name))
    machine.vrde_server.enabled = False
    for port in (machine.get_parallel_port(0), *_further(vbox, machine.get_parallel_port)):
        port.enabled = False
    filters = machine.usb_device_filters
    for _ in filters.device_filters:
        filters.remove_device_filter(0)


def _further(vbox: Vbox, get: Callable[[int], Any]) -> Iterator[Any]:
    """What `get` has after its first; how many there are depends on the version and the chipset."""
    for slot in itertools.count(1):
        try:
            yield get(slot)
        except vbox.library.OleErrorInvalidarg:
            return


def set_forward(machine: Any, port: int) -> None:
    engine = machine.get_network_adapter(0).nat_engine
    if any(rule.split(",")[0] == FORWARD for rule in engine.redirects):
        engine.remove_redirect(FORWARD)
    engine._call("addRedirect", in_p=[FORWARD, 1, "127.0.0.1", port, "", 22])  # 1 is TCP


def forwarded_port(machine: Any) -> int:
    for rule in machine.get_network_adapter(0).nat_engine.redirects:
        name, _, _, port = rule.split(",")[:4]
        if name == FORWARD:
            return int(port)
    return 0


def insert_seed(vbox: Vbox, machine: Any, path: Path) -> None:
    """Puts the seed disk into a drive of its own, unless it is in one."""
    disc = vbox.library.DeviceType.dvd
    for medium in machine.medium_attachments:
        if medium.medium._i is not None and str(medium.medium.location) == str(path.resolve()):
            return
    read_only = vbox.library.AccessMode.read_only
    medium = vbox.root.open_medium(str(path.resolve()), disc, read_only, False)
    sata = [c for c in machine.storage_controllers if c.bus == vbox.library.StorageBus.sata]
    controller = sata[0] if sata else add_controller(vbox, machine)
    slots = {m.port for m in machine.medium_attachments if m.controller == controller.name}
    slot = next(number for number in range(30) if number not in slots)
    controller.port_count = max(int(controller.port_count), slot + 1)
    machine.attach_device(str(controller.name), slot, 0, disc, medium)


def add_controller(vbox: Vbox, machine: Any) -> Any:
    controller = machine.add_storage_controller(CONTROLLER, vbox.library.StorageBus.sata)
    controller.port_count = 2
    return controller


def media_below(medium: Any) -> list[Any]:
    """The medium and all that were derived from it, the last ones first."""
    return [found for child in medium.children for found in media_below(child)] + [medium]


def close_media(folder: Path, vbox: Vbox) -> None:
    """Makes VirtualBox forget the disks in a folder; their files are the caller's affair. The clone that a
    killed orchestrator was making is no machine yet, and holds a disk of its base: that goes, too. Raises
    what says that a disk is in use, while the clone is still being made and for a clone of another user."""
    inside, study = folder.resolve(), folder.resolve().parent
    for registered in (*vbox.root.hard_disks, *vbox.root.dvd_images):
        for medium in media_below(registered):
            path = Path(str(medium.location)).resolve()
            parent = Path(str(medium.parent.location)).resolve() if medium.parent._i is not None else None
            derived = parent is not None and parent.is_relative_to(inside)
            if path.is_relative_to(inside) or (derived and path.is_relative_to(study)):
                medium.close()
            elif derived:
                raise ApiError(OBJECT_IN_USE, f"{path} is derived from {parent}")


def are_used(folder: Path, vbox: Vbox) -> bool:
    """Whether disks in a folder belong to a machine, or have clones elsewhere. One that is removed while
    VirtualBox ends the task of a killed orchestrator leaves disks that count as its own until VirtualBox's
    service ends, seconds after its last client; nobody else can use them."""
    inside, study = folder.resolve(), folder.resolve().parent
    known = {str(machine.id_p) for machine in vbox.root.machines}
    for registered in vbox.root.hard_disks:
        for medium in media_below(registered):
            if Path(str(medium.location)).resolve().is_relative_to(inside):
                clones = [Path(str(child.location)).resolve() for child in medium.children]
                if known & set(map(str, medium.machine_ids)):
                    return True
                if any(not clone.is_relative_to(study) for clone in clones):
                    return True
    return False


def require_room(vbox: Vbox, machine: Any, cores: int, about: str) -> None:
    """Raises GuestError when the machines that run, with this one, would have more CPUs or memory than the
    host. A machine that is larger than the host counts as the whole host. Guests of studies do not count for
    CPUs: one that runs without a lease of its cores is idle."""
    names, cpus, memory_mib = [], 0, 0
    for other in vbox.root.machines:
        if not other.accessible:  # its settings cannot be read, so it cannot run
            continue
        locked = other.session_state != vbox.library.SessionState.unlocked
        if locked and other.id_p != machine.id_p and is_on(vbox, other):
            if not other.get_extra_data(STUDY):
                names.append(str(other.name))
                cpus += min(int(other.cpu_count), cores)
            memory_mib += int(other.memory_size)
    own, needed_mib = min(int(machine.cpu_count), cores), int(machine.memory_size)
    host_mib, free_mib = int(vbox.root.host.memory_size), int(vbox.root.host.memory_available)
    if cpus + own > cores:
        raise GuestError(
            f"{about}: it has {own} CPUs, and of the host's {cores} cores {cpus} are taken by "
            f"{', '.join(names)}: shut down what is not needed, or wait for it"
        )
    if memory_mib + needed_mib > host_mib or needed_mib > free_mib:
        raise GuestError(
            f"{about}: it has {needed_mib} MiB of memory, and of the host's {host_mib} MiB {free_mib} are "
            f"free ({memory_mib} are taken by other machines): lower provider.memory_mib, or close something"
        )


def is_on(vbox: Vbox, machine: Any) -> bool:
    """Running, or on its way there."""
    if machine.session_state == vbox.library.SessionState.spawning:
        return True
    return str(machine.state) not in ("PoweredOff", "Saved", "Aborted", "AbortedSaved", "Teleported")


def seen(vbox: Vbox, machine: Any) -> Now:
    state = str(machine.state)
    uptime_s, process = 0.0, 0
    if state == "Running":
        process = int(machine._i.sessionPID)
        with vbox.sharing(machine) as session:
            uptime_s = int(session.console.debugger.uptime) / 1000
    return Now(
        state=state,
        cpus=int(machine.cpu_count),
        memory_mib=int(machine.memory_size),
        port=forwarded_port(machine),
        uptime_s=uptime_s,
        process=process,
    )
