"""A real Slurm of one node on this machine, for tests: own keys, own ports, own folder, gone afterwards."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.sshd import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
SBIN = "/usr/sbin:/usr/local/sbin"
READY_S = 120
# Processes are followed by their parents, tasks are not bound: neither needs cgroups of its own.
CONFIG = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=10
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mib} State=UNKNOWN
PartitionName=long Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(slots=True)
class Slurm:
    """`environment` makes its commands find it."""

    folder: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self) -> list[str]:
        """What is queued or runs, `number state name` each."""
        return self.run("squeue", "--noheader", "--format", "%i %T %j").splitlines()

    def logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))


@contextlib.contextmanager
def running(cpus: int, memory_mib: int) -> Iterator[Slurm]:
    missing = [program for program in PROGRAMS if not _which(program)]
    assert not missing, f"no {', '.join(missing)}: apt install slurmctld slurmd slurm-client munge"
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: a socket's path has at most 108 bytes
        folder = Path(name)
        slurm = Slurm(folder, {"SLURM_CONF": str(folder / "slurm.conf")})
        try:
            _start(slurm, cpus, memory_mib)
            yield slurm
        finally:
            for process in reversed(slurm.processes):
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _start(slurm: Slurm, cpus: int, memory_mib: int) -> None:
    folder = slurm.folder
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "slurm.conf").write_text(
        CONFIG.format(
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
            user=getpass.getuser(),
            cpus=cpus,
            memory_mib=memory_mib,
        )
    )
    files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    _launch(slurm, "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
    _wait(slurm, lambda: (folder / "munge.socket").is_socket())
    _launch(slurm, "slurmctld", "-D", "-c")
    _launch(slurm, "slurmd", "-D", "-N", "localhost")
    _wait(slurm, lambda: _state(slurm).startswith("idle"))


def _launch(slurm: Slurm, program: str, *options: str) -> None:
    path = _which(program)
    assert path is not None
    with (slurm.folder / f"{program}.out.log").open("ab") as log:
        slurm.processes.append(
            subprocess.Popen(
                [path, *options],
                env={**os.environ, **slurm.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=slurm.folder,
            )
        )


def _state(slurm: Slurm) -> str:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format", "%t"],
        env={**os.environ, **slurm.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _wait(slurm: Slurm, ready) -> None:
    deadline = time.monotonic() + READY_S
    while not ready():
        assert all(process.poll() is None for process in slurm.processes), slurm.logs()
        assert time.monotonic() < deadline, slurm.logs()
        time.sleep(0.1)


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}")
