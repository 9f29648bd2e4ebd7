"""Real schedulers, workers and sweeps as processes of their own, on the loopback."""

import contextlib
import subprocess
import sys
from pathlib import Path

from orchestrator.inventory import guest_spec
from orchestrator.providers.machines import free_port
from tests.processes import wait_until

DASHBOARD = ("--dashboard-address", "127.0.0.1:0")


class Fleet:
    """Ends what it started."""

    def __init__(self, folder: Path, protocol: str = "tcp", tls: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"{protocol}://127.0.0.1:{self.port}"
        self._tls = tls
        self._processes: list[subprocess.Popen] = []

    def scheduler(self) -> subprocess.Popen:
        where = ("--host", self.address if self._tls else "127.0.0.1", "--port", str(self.port))
        command = ("distributed.cli.dask_scheduler", *where, *DASHBOARD, *self._tls)
        listens = "Scheduler at:"
        before = self.log("scheduler").count(listens)
        process = self._start("scheduler", "-m", *command)
        wait_until(lambda: self.log("scheduler").count(listens) > before, process)
        return process

    def worker(self, name: str, *options: str) -> subprocess.Popen:
        process = self.start_worker(name, *options)
        wait_until(lambda: "at work" in self.log(name), process)
        return process

    def start_worker(self, name: str, *options: str) -> subprocess.Popen:
        command = ("worker", self.address, "--folder", str(self.folder / name), *options)
        return self._start(name, "-m", "vbstudy", *command)

    def sweep(self, directory: Path, *options: str) -> subprocess.Popen:
        command = ("-C", str(directory), "sweep", "--scheduler", self.address, *options)
        return self._start("sweep", "-m", "vbstudy", *command)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process


@contextlib.contextmanager
def fleet(folder: Path, **options):
    made = Fleet(folder, **options)
    try:
        yield made
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            sys.stdout.write(f"{log.name}:\n{log.read_text()[-10_000:]}\n")
        raise
    finally:
        made.end()


def working_in(folder: Path, cpus: int) -> bool:
    """Whether a run is under way in a guest of the worker with that folder."""
    return any(folder.glob(f"*/slot-*/guests/{guest_spec(cpus).name}/out/*"))
