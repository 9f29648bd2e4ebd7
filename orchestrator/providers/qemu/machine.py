"""One virtual machine: its command line, its process, its end. A machine is found again by its name,
which stands in the command line of its process, so a killed orchestrator loses none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from guest.machine import threads
from guest.records.printable import last_line
from orchestrator.errors import GuestError
from orchestrator.inventory import host_name
from orchestrator.providers import processes
from orchestrator.providers.machines import free_port, tail
from orchestrator.providers.qemu import console
from orchestrator.providers.qemu.image import Image
from orchestrator.providers.qemu.qmp import connect

QEMU = "qemu-system-x86_64"
STOP_TIMEOUT_S = 10.0
LAST_WORDS_S = 10.0  # until its logs have what it printed last
IMAGE_TIMEOUT_S = 120.0
PORT_ATTEMPTS = 5
SNAPSHOT = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuHardware:
    """What a machine consists of; a snapshot fits only a machine that is the same in all of it."""

    cpus: int
    memory_mib: int
    cpu_model: str
    accelerator: str  # "kvm" or "tcg"
    image: str  # the identity of its read-only disks
    seed: str  # the hash of its seed disk
    workers: str  # what its snapshot holds, in addition to the system
    qemu: str
    host: str  # the hash of its CPU and kernel, which a machine under KVM shows and depends on; "" under TCG


class QemuMachine:
    """The files in one guest's folder, and the process that may run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder = folder.absolute()  # `-a` is no option then, and `a:b` no protocol of QEMU's
        self.name = host_name(folder)
        self.overlay = folder / "root.qcow2"
        self.seed = folder / "seed.img"
        self.console = folder / "console.log"
        self.port_file = folder / "port"
        self._control = folder / "qmp.sock"
        self._log = folder / "qemu.log"
        self._snapshot = folder / "snapshot.json"

    # ---- disks -------------------------------------------------------------------------------

    def new_overlay(self, image: Image) -> None:
        """An empty layer over the shared root disk: every cold start is from the same bytes."""
        self.overlay.unlink(missing_ok=True)
        self._snapshot.unlink(missing_ok=True)
        command = ["qemu-img", "create", "-q", "-f", "qcow2"]
        command += ["-F", image.root_format, "-b", str(image.root), str(self.overlay)]
        processes.output(command, f"{self.overlay}: cannot be made", IMAGE_TIMEOUT_S)

    def workers_in_snapshot(self, hardware: QemuHardware) -> tuple[str, ...] | None:
        """The workers that wait in the snapshot; None where there is no snapshot that fits."""
        try:
            kept = json.loads(self._snapshot.read_text())
            fits = self.overlay.exists() and kept["hardware"] == asdict(hardware)
            return tuple(kept["workers"]) if fits else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save_snapshot(self, hardware: QemuHardware, workers: Sequence[str]) -> None:
        """Keeps the running machine as it is now, with the workers that wait in it."""
        with connect(self._control, self.name, 300) as qmp:
            complaint = qmp.monitor(f"savevm {SNAPSHOT}")
        if complaint:
            raise GuestError(f"{self.name}: no snapshot could be taken: {complaint}")
        self._snapshot.write_text(json.dumps({"hardware": asdict(hardware), "workers": list(workers)}))

    # ---- the process -------------------------------------------------------------------------

    def start(self, hardware: QemuHardware, image: Image, cores: Sequence[int], *, resume: bool) -> int:
        """Starts it, or resumes its snapshot, on the given cores; returns the port that leads to its
        SSH. Raises GuestError with the output of QEMU or the console."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = free_port()
            self._control.unlink(missing_ok=True)
            command = self._command(hardware, image, port, resume=resume)
            alive = self._spawn(command, cores)
            try:
                with connect(self._control, self.name, alive=alive) as qmp:
                    qmp.execute("query-status")
            except GuestError:
                self.kill()
                text = tail(self._log)
                if "host forwarding rule" in text and attempt < PORT_ATTEMPTS:
                    continue  # another program took the port in between
                why = last_line(text) or "nothing"
                raise GuestError(f"{self.name}: QEMU does not start: {why}", evidence=text) from None
            self.pin(cores)
            self.port_file.write_text(str(port))
            return port
        raise GuestError(f"{self.name}: no free port was found")

    def _spawn(self, command: list[str], cores: Sequence[int]) -> Callable[[], bool]:
        """Returns a function: whether the process still runs."""
        with threads.on_cores(cores), contextlib.ExitStack() as closing:
            keeper, (printed, log) = console.start(
                self.folder, f"console={self.name}", (self.console.name, self._log.name)
            )
            closing.callback(os.close, printed)
            closing.callback(os.close, log)
            _children.add(keeper)
            process = subprocess.Popen(
                [*command, "-serial", f"file:/dev/fd/{printed}"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[printed],
                start_new_session=True,
            )
        _children.add(process)
        return lambda: process.poll() is None

    def _command(self, hardware: QemuHardware, image: Image, port: int, *, resume: bool) -> list[str]:
        boot = []
        if image.boot is not None:
            kernel, initrd = map(str, image.boot)
            options = "console=ttyS0 quiet panic=-1 random.trust_cpu=on"
            boot = ["-kernel", kernel, "-initrd", initrd, "-append", options]
        accelerator = "kvm" if hardware.accelerator == "kvm" else "tcg,thread=multi"
        return [
            QEMU,
            "-name", f"guest={self.name}",
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-machine", "q35", "-accel", accelerator, "-cpu", hardware.cpu_model,
            "-smp", f"{hardware.cpus},sockets=1,cores={hardware.cpus},threads=1",
            "-m", str(hardware.memory_mib),
            *boot,
            *_disk("root", self.overlay.name, "qcow2,cache=unsafe"),
            *(_disk("libraries", str(image.libraries), "raw,readonly=on") if image.libraries else ()),
            *_disk("seed", self.seed.name, "raw,readonly=on"),
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:22",
            "-device", "virtio-net-pci,netdev=net,romfile=",
            "-device", "virtio-rng-pci",
            "-qmp", f"unix:{self._control.name},server=on,wait=off",
            *(["-loadvm", SNAPSHOT] if resume else []),
        ]  # fmt: skip

    def vcpus(self) -> dict[int, int]:
        """The thread of each virtual CPU, as the hypervisor says."""
        with connect(self._control, self.name) as qmp:
            return {cpu["cpu-index"]: cpu["thread-id"] for cpu in qmp.execute("query-cpus-fast")}

    def pin(self, cores: Sequence[int]) -> None:
        """Gives each virtual CPU a core of its own, as far as there are; verified. The other threads
        share all of them."""
        for index, thread in self.vcpus().items():
            core = cores[index % len(cores)]
            os.sched_setaffinity(thread, {core})
            if os.sched_getaffinity(thread) != {core}:
                raise GuestError(f"{self.name}: virtual CPU {index} cannot be held to core {core}")

    def processes(self) -> list[int]:
        return processes.matching(lambda words: f"guest={self.name}" in words, self.folder)

    def is_over(self) -> bool:
        """Whether it has ended, and its last words are in its logs."""
        return not self.processes() and not self._keepers()

    def _keepers(self) -> list[int]:
        return processes.matching(lambda words: f"console={self.name}" in words)

    def stop(self) -> None:
        """Asks QEMU to end, which leaves its disks whole; ends it by force when it does not."""
        if self.processes():
            with contextlib.suppress(GuestError), connect(self._control, self.name, 2) as qmp:
                qmp.execute("quit")  # where this does not help, force does
        self.kill(STOP_TIMEOUT_S)

    def kill(self, patience_s: float = 0.0) -> None:
        """Ends it by force, unless it ends by itself before."""
        processes.end(self.processes, self.name, patience_s)
        processes.end(self._keepers, self.name, LAST_WORDS_S)
        for process in list(_children):
            if process.poll() is not None:
                _children.discard(process)  # unless another machine's thread did
        self._control.unlink(missing_ok=True)
        self.port_file.unlink(missing_ok=True)

    def remove(self) -> None:
        self.kill()
        if self.folder.exists():
            shutil.rmtree(self.folder)


_children: set[subprocess.Popen[bytes]] = set()  # kept until they end, so that none stays a zombie


def _disk(name: str, file: str, form: str) -> list[str]:
    escaped = file.replace(",", ",,")
    return [
        "-drive", f"if=none,id={name},file={escaped},format={form}",
        "-device", f"virtio-blk-pci,drive={name}",
    ]  # fmt: skip
