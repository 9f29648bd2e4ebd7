"""A real sshd on the loopback, for tests: own port, own keys, gone afterwards."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cores import locks
from orchestrator.providers.machines import free_port
from orchestrator.transport.keys import KeyPair, StudyKeys, key_pair
from orchestrator.transport.ssh_connect import SshTarget

CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {host_key}
AuthorizedKeysFile {authorized}
PidFile {folder}/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
SetEnv {locks}={folder_of_locks} VBSTUDY_CI={ci}
{sftp}
"""


@dataclass(slots=True)
class Sshd:
    """One server. `kill` takes its sessions along, as a crash of the machine would."""

    folder: Path
    port: int
    user: str
    client: KeyPair
    host: KeyPair
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "sshd.log").open("ab") as log_file:
            self.process = subprocess.Popen(
                [sshd_path(), "-D", "-e", "-f", str(self.folder / "sshd_config")], stderr=log_file
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                log = (self.folder / "sshd.log").read_text()
                assert self.process.poll() is None, log
                assert time.monotonic() < deadline, log
                time.sleep(0.02)
            else:
                return

    def target(self, keys: StudyKeys, **settings: float) -> SshTarget:
        """How a study with these keys reaches it, its host key pinned."""
        keys.pin("127.0.0.1", self.port, self.host.public)
        return SshTarget(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            key=self.client.private,
            known_hosts=keys.known_hosts,
            **settings,
        )

    def kill(self) -> None:
        assert self.process is not None
        for pid in [*descendants(self.process.pid, "sshd"), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def sshd_path() -> str:
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    assert found, "these tests need sshd: apt install openssh-server"
    return found


def descendants(pid: int, name: str) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = stat.read_text().rpartition(")")
            if int(after.split()[1]) == pid and before.partition("(")[2].startswith(name):
                child = int(stat.parent.name)
                found += [*descendants(child, name), child]
    return found


@contextlib.contextmanager
def running(folder: Path, sftp: str = "Subsystem sftp internal-sftp") -> Iterator[Sshd]:
    folder.mkdir(parents=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = Sshd(
        folder,
        free_port(),
        getpass.getuser(),
        key_pair(folder / "client" / "id_ed25519"),
        key_pair(folder / "host_ed25519"),
    )
    (folder / "authorized_keys").write_text(server.client.public + "\n")
    (folder / "sshd_config").write_text(
        CONFIG.format(
            port=server.port,
            host_key=server.host.private,
            authorized=folder / "authorized_keys",
            folder=folder,
            locks=locks.FOLDER,
            folder_of_locks=locks.default_folder(),
            sftp=sftp,
            ci=os.environ.get("VBSTUDY_CI", ""),  # by which `.ci/run` finds what sessions leave
        )
    )
    server.start()
    try:
        yield server
    finally:
        server.kill()
