"""Vagrant as a program: run for one guest, its machine-readable output parsed, a lock waited for."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orchestrator
from guest.records.printable import last_line
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.files import write_durably
from orchestrator.inventory import GUEST_MARK, host_name
from orchestrator.providers import processes
from orchestrator.providers.qemu.image import no_release

VAGRANT = "vagrant"
TIMEOUT_S = 300.0
LOCK_PATIENCE_S = 120.0
END_PATIENCE_S = 20.0  # it first removes a box that it copies to libvirt, or a machine that is half made
# What Ruby says of an error nobody caught.
RAISED = re.compile(r":in [`']\S+'?: (.*) \([\w:]+\)$", re.MULTILINE)
# Another program, or another Vagrant, is at the machine: it will be done at some time. The second one
# is VirtualBox's.
LOCKED = re.compile(
    r"Errors::\w*Lock|another process is already executing an action|already locked for a session"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of `vagrant --machine-readable`: `time,target,kind,data...`."""

    target: str
    kind: str
    data: tuple[str, ...]


def parse(text: str) -> list[Line]:
    """All lines that are machine-readable; what plugins print in between is left out."""
    found = []
    for line in text.splitlines():
        parts = line.split(",")
        if len(parts) >= 3 and parts[0].isdigit():
            data = tuple(_unescaped(part) for part in parts[3:])
            found.append(Line(target=parts[1], kind=parts[2], data=data))
    return found


def _unescaped(text: str) -> str:
    return text.replace("%!(VAGRANT_COMMA)", ",").replace("\\n", "\n").replace("\\r", "\r")


def explain(output: str) -> str:
    """Why Vagrant failed, in one line."""
    lines = parse(output)
    errors = [line.data for line in lines if line.kind == "error-exit" and len(line.data) > 1]
    text = " ".join(errors[-1][1].split()) if errors else ""
    if not text and (raised := RAISED.search(output)):
        text = raised[1]
    if not text:
        text = last_line(output) or "it printed nothing"
    return text if len(text) <= 500 else text[:497] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a machine answers, as `vagrant ssh-config` says."""

    host: str
    port: int
    user: str


def parse_ssh_config(text: str) -> Address:
    """Raises ValueError when it is none."""
    words = (line.split(None, 1) for line in text.splitlines())
    settings = {pair[0].lower(): pair[1].strip().strip('"') for pair in words if len(pair) == 2}
    try:
        return Address(host=settings["hostname"], port=int(settings.get("port", "22")), user=settings["user"])
    except KeyError as missing:
        raise ValueError(f"{missing} is missing") from None


def files() -> Path:
    """The folder of the Vagrantfile: next to this package, in a clone and in an installation."""
    return Path(orchestrator.__file__).parents[1] / "vagrant"


class Vagrant:
    """Vagrant for the machine of one guest, whose state lies in the guest's folder."""

    def __init__(self, folder: Path, name: str, hypervisor: str) -> None:
        self._folder = folder
        self._name = name
        self._hypervisor = hypervisor
        self._state = folder / "vagrant"
        self._log = folder / "vagrant.log"
        self._ssh_config = folder / "ssh-config"

    def knows_machine(self) -> bool:
        """Whether Vagrant has noted down a machine for this guest, running or not."""
        return (self._state / "machines" / self._name / self._hypervisor / "id").exists()

    def up(self, timeout_s: float, *, provision: bool) -> None:
        """Makes the machine, or starts it. Raises GuestError."""
        self._ssh_config.unlink(missing_ok=True)  # its port or address may be another one afterwards
        # One that was whole before is not removed where its start fails or is interrupted.
        how = ["--provision"] if provision else ["--no-provision", "--no-destroy-on-error"]
        self._run(["up", self._name, *how], timeout_s)

    def destroy(self) -> None:
        self._run(["destroy", "--force", self._name])

    def address(self) -> Address:
        """Asked for once after each start, because it takes Vagrant a second."""
        if not self._ssh_config.exists():
            lines = parse(self._run(["ssh-config", self._name]))
            text = next((line.data[0] for line in lines if line.kind == "ssh-config" and line.data), "")
            write_durably(self._ssh_config, text)
        try:
            return parse_ssh_config(self._ssh_config.read_text())
        except ValueError as error:
            self._ssh_config.unlink()
            raise GuestError(
                f"guest {self._name}: `vagrant ssh-config` reports no address: {error}"
            ) from None

    def _run(self, arguments: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
        """What it printed. A lock is waited for; any other failure raises GuestError, or PrerequisiteError
        where the machine's pip does not find what is installed here."""
        deadline, wait_s = time.monotonic() + LOCK_PATIENCE_S, 0.5
        while True:
            status, output = self._attempt(arguments, timeout_s)
            if status == 0:
                return output
            if why := no_release(_unescaped(output), "the Python of its box"):
                raise PrerequisiteError(f"guest {self._name}: {why}")
            if not LOCKED.search(output) or time.monotonic() + wait_s > deadline:
                raise GuestError(
                    f"guest {self._name}: `vagrant {arguments[0]}` failed: {explain(output)} "
                    f"(whole output: {self._log})",
                    evidence=output[-processes.TAIL_BYTES :],
                )
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 10.0)

    def _attempt(self, arguments: Sequence[str], timeout_s: float) -> tuple[int, str]:
        command = [VAGRANT, "--machine-readable", *arguments]
        with self._log.open("ab") as log:
            log.write(f"$ vagrant {' '.join(arguments)}\n".encode())
            log.flush()
            began = log.tell()
            try:
                process = subprocess.Popen(
                    command,
                    env=self._environment(),
                    cwd=files(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is ours to answer, and its children die with it
                )
            except FileNotFoundError:
                raise PrerequisiteError(f"there is no {VAGRANT}: install Vagrant") from None
        try:
            status = process.wait(timeout_s)
        except BaseException as error:
            try:
                self.end()
            finally:
                _signal(process.pid, signal.SIGKILL)
                process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise GuestError(
                    f"guest {self._name}: `vagrant {arguments[0]}` did not end within {timeout_s:.0f} s "
                    f"(its output: {self._log})"
                ) from None
            raise
        with self._log.open("rb") as log:
            log.seek(began)
            return status, log.read().decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        # VBSTUDY_STUDY is for those who use the Vagrantfile by hand, the other for another Vagrantfile.
        kept = {k: v for k, v in os.environ.items() if k not in ("VBSTUDY_STUDY", "VAGRANT_VAGRANTFILE")}
        return {
            **kept,
            GUEST_MARK: host_name(self._folder),
            "VBSTUDY_MACHINES": str(self._folder.resolve() / "machines.json"),
            "VAGRANT_CWD": str(files()),
            "VAGRANT_DOTFILE_PATH": str(self._state.resolve()),
            "VAGRANT_DEFAULT_PROVIDER": self._hypervisor,
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_NO_COLOR": "1",
        }

    def end(self) -> None:
        """Ends the Vagrant at work on this guest, also one of a killed orchestrator: as Ctrl-C does, and by
        force where it does not obey. What else bears the guest's mark is the hypervisor's, which serves other
        machines too."""
        for process in self._processes():
            _signal(process, signal.SIGINT)
        processes.end(self._processes, f"guest {self._name} (vagrant)", END_PATIENCE_S)

    def _processes(self) -> list[int]:
        started = processes.marked(host_name(self._folder))
        vagrants = processes.matching(lambda words: "vagrant" in (w.rpartition("/")[2] for w in words[:3]))
        return sorted(set(started) & set(vagrants))


def _signal(leader: int, number: signal.Signals) -> None:
    """To a process group, once: Vagrant aborts at a second SIGINT. Does nothing for one that leads none."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def plugins() -> set[str]:
    """Raises PrerequisiteError when Vagrant does not run."""
    command = [VAGRANT, "--machine-readable", "plugin", "list"]
    try:
        done = processes.run(command, 60, {**os.environ, "VAGRANT_CHECKPOINT_DISABLE": "1"})
    except (OSError, GuestError) as error:
        raise PrerequisiteError(f"vagrant does not run: {error}") from None
    if done.returncode != 0:
        raise PrerequisiteError(f"vagrant does not run: {explain(done.stdout + done.stderr)}")
    return {line.data[0] for line in parse(done.stdout) if line.kind == "plugin-name" and line.data}


def version() -> tuple[int, ...]:
    """Of Vagrant. Raises GuestError where it does not report one."""
    return version_in(processes.output([VAGRANT, "--version"], "`vagrant --version` failed", 60), VAGRANT)


def version_in(text: str, program: str) -> tuple[int, ...]:
    """The last one in what a program prints, as numbers: warnings come first."""
    found = re.findall(r"\b\d+(?:\.\d+)+", last_line(text))
    if not found:
        raise GuestError(f"`{program} --version` reports no version: {last_line(text)[:80]!r}")
    return tuple(int(part) for part in found[-1].split("."))


def missing() -> str:
    """How to get Vagrant; nothing when it is there."""
    return "" if shutil.which(VAGRANT) else "apt install vagrant, or https://developer.hashicorp.com/vagrant"
