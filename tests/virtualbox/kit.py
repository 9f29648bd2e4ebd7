"""What the tests with a real VirtualBox need: the folder that `.ci/run virtualbox` prepared, with a disk
image of a tiny Linux, its host key, and a client key."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

from orchestrator.inventory import GuestSpec
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study import schema

ONE = GuestSpec(name="cpus-1", cpus=1)
TWO = GuestSpec(name="cpus-2", cpus=2)
WORKLOAD = '[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'
COMMAND_S = 600  # a guest in the interpreter takes its time


def folder() -> Path:
    named = os.environ.get("VBSTUDY_VIRTUALBOX_KIT", "")
    assert named, "these tests are run by `.ci/run virtualbox`, which prepares a VirtualBox and a guest image"
    return Path(named)


def image() -> Path:
    return folder() / "guest.vdi"


def table(**changes) -> str:
    """A [provider] table for the tiny guest; a change to None leaves a key out."""
    values = {
        "kind": "virtualbox",
        "base": str(image()),
        "key": str(folder() / "key"),
        "host_key": (folder() / "guest.vdi.host_key").read_text().strip(),
        "memory_mib": 128,
        "execution_engine": "interpreter",
        "boot_timeout_s": 1800,
        **changes,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "[provider]\n" + "\n".join(lines) + "\n"


def provider(directory: Path, said=None, **changes):
    """A provider of a study in this folder. What it tells goes to the list `said`."""
    notify = (lambda text: None) if said is None else said.append
    return make(schema.parse("cpus = [1, 2]\n" + table(**changes) + WORKLOAD), Store(directory), notify)


@contextlib.contextmanager
def study_in(directory: Path, **changes):
    """A provider, and nothing of its guests left afterwards."""
    made = provider(directory, **changes)
    try:
        yield made
    finally:
        for spec in (ONE, TWO):
            made.destroy(spec)
        assert machines_in(directory) == []
        assert media_in(directory) == []
        assert processes_in(directory) == []
        assert list(directory.rglob("*.vdi")) == []


# ---- another pair of eyes: VBoxManage, not the API that the provider uses ---------------------


def manage(*arguments: str) -> str:
    done = subprocess.run(["VBoxManage", "-q", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def machines() -> list[str]:
    return [line.rpartition(" ")[0].strip('"') for line in manage("list", "vms").splitlines()]


def info(name: str) -> dict[str, str]:
    """`showvminfo`, by keys."""
    lines = manage("showvminfo", name, "--machinereadable").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key.strip('"'): value.strip('"') for key, value in pairs}


def machines_in(directory: Path) -> list[str]:
    return [name for name in machines() if info(name)["CfgFile"].startswith(str(directory.resolve()))]


def media_in(directory: Path) -> list[str]:
    listed = manage("list", "hdds") + manage("list", "dvds")
    files = [line.split(":", 1)[1].strip() for line in listed.splitlines() if line.startswith("Location:")]
    # The service may remember disks without files until it ends; then they are nobody's.
    return [file for file in files if file.startswith(str(directory.resolve())) and Path(file).exists()]


def processes_in(directory: Path) -> list[int]:
    """VBoxHeadless processes that have a file of the study open."""
    return [process for process, program in holders_in(directory) if program == "VBoxHeadless"]


def holders_in(directory: Path) -> list[tuple[int, str]]:
    """Processes of any program that have a file of the study open, in any of their threads."""
    found = set()
    for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            files = [os.readlink(file) for file in (thread / "fd").iterdir()]
            if any(file.startswith(f"{directory.resolve()}/") for file in files):
                process = thread.parents[1]
                found.add((int(process.name), (process / "comm").read_text().strip()))
    return sorted(found)


def has_ended(process: int) -> bool:
    """Whether all that is left of it is that its parent has not asked how."""
    try:
        threads = [(thread / "stat").read_text() for thread in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return True
    return all(thread.rpartition(") ")[2][0] in "ZX" for thread in threads)
