"""A study of two tiny runs whose sweep is disturbed, and what must be true of it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from guest.records.run import RECORD, RunRecord, decode_record
from orchestrator.cli import main as cli
from orchestrator.cores import locks
from orchestrator.cores.cpuset import Cpuset
from orchestrator.inventory import host_name
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import load
from tests.faults.arming import Mishap, Place, encode

KILLED = -9  # the status of a process that was
REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120
GONE_WITHIN_S = 120
SETTINGS = """
name = "faults"
cpus = [1]
repetitions = 1
variants = ["fixed-seed"]

[engine]
heartbeat_s = 0.5
lost_after_s = 5
retries = 2
"""
LOCAL = """
[provider]
python = "{python}"
"""
WORKLOAD = """
[[workload]]
name = "{name}"
model = "lenet1"
dataset = "digits"
epochs = 2
batch_size = 32
learning_rate = {rate}
train_samples = 128
test_samples = 50
"""
PROGRAM = """
[[workload]]
name = "mine"
project = "../mine"
command = ["python", "train.py"]
[workload.metrics]
accuracy = { pattern = 'acc: ([0-9.]+)' }
[workload.artifacts]
predictions = "preds.npz"
weights = "weights.npz"
"""
SCRIPT = """
import numpy as np
np.savez("weights.npz", w=np.random.rand(3, 4).astype("float32"))
np.savez("preds.npz", predictions=np.arange(12) % 3, y_true=np.arange(12) % 3)
print("acc: 0.5")
"""
CACHE = "torchinductor_"  # torch makes it once a guest, and uses it again
RUNS, TORCH, PROJECT = "runs", "torch", "project"  # kinds of study
RATES = {"one": 0.1, "two": 0.2}  # unlike runs: one in the other's place would show

FAILS = Mishap(
    name="first attempt failed",
    place=Place(
        point="result sent",
        doing="(out / WEIGHTS).write_bytes(b'other than announced')",
    ),
)


class Scene:
    """A study below `folder`, of a kind: networks, computed by numpy or by torch, or a project. Its guests'
    interpreter is `guest_main.py`. `provider` is another table than that of local guests, with {python}."""

    def __init__(self, folder: Path, kind: str = RUNS, provider: str = "") -> None:
        self.folder = folder
        self.directory = folder / "study"
        self.arms = folder / "arms"
        self.scratch = folder / "scratch"  # for temporary files of the host's side
        for each in (self.directory, self.arms, self.scratch):
            each.mkdir(parents=True)
        if kind == TORCH:
            (self.arms / "torch").touch()
        python = folder / "python"
        guest = f"{sys.executable} {Path(__file__).with_name('guest_main.py')} {self.arms}"
        python.write_text(f'#!/bin/sh\nexec {guest} "$@"\n')
        python.chmod(0o755)
        text = SETTINGS + (provider or LOCAL).format(python=python)
        if kind == PROJECT:
            text += PROGRAM
            (folder / "mine").mkdir()
            (folder / "mine" / "train.py").write_text(SCRIPT)
        else:
            text += "".join(WORKLOAD.format(name=name, rate=rate) for name, rate in RATES.items())
        (self.directory / "study.toml").write_text(text)
        self.store = Store(self.directory)

    def provision(self, like: Scene | None = None) -> None:
        """Makes the guest, or takes over what was found of one like it but for its folder."""
        if like is None:
            assert self.vbstudy("provision") == 0
        else:
            found = like.store.guests_file.read_text()
            self.store.guests_file.write_text(found.replace(str(like.folder), str(self.folder)))

    def take_runs(self, whole: Scene) -> None:
        shutil.copytree(whole.store.runs, self.store.runs)

    def flip(self, name: str, bit: int = 1) -> bytes:
        """One bit in the middle of a file of the first run; what the file holds then."""
        path = sorted(self.store.runs.glob(f"*/*/*/*/{name}"))[0]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= bit
        path.write_bytes(data)
        return bytes(data)

    def fail_first_attempt(self) -> None:
        """What comes of the first run is not what its agent announced."""
        self.arm("guest", FAILS)

    # ---- commands ----------------------------------------------------------------------------

    def vbstudy(self, *arguments: str) -> int:
        """An undisturbed command, in this process."""
        kept = os.environ.get("TMPDIR")
        try:
            return cli.run(["-q", "-C", str(self.directory), *arguments])
        finally:
            assert os.environ.get("TMPDIR") == kept

    def sweep(self, *, host: Mishap | None = None, guest: Mishap | None = None) -> tuple[int, str]:
        """`vbstudy sweep` in a process of its own, which dies or whose guest does; status and output."""
        process = self.start("sweep", host=host, guest=guest)
        try:
            said = process.communicate(timeout=PATIENCE_S)[0]
        finally:
            process.kill()
            process.wait()
        self.disarm()
        return process.returncode, said

    def start(
        self, *arguments: str, host: Mishap | None = None, guest: Mishap | None = None
    ) -> subprocess.Popen[str]:
        for role, mishap in (("host", host), ("guest", guest)):
            if mishap is not None:
                self.arm(role, mishap)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.host_main", str(self.arms), "host",
             "-q", "-C", str(self.directory), *arguments],
            cwd=REPOSITORY,
            env=os.environ | {"TMPDIR": str(self.scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def arm(self, role: str, mishap: Mishap) -> None:
        """`role`: host, guest, or worker."""
        (self.arms / f"{role}.json").write_text(json.dumps(encode(mishap)))

    def disarm(self) -> None:
        for path in self.arms.glob("*.json"):
            path.unlink()

    def was_reached(self, mishap: Mishap) -> bool:
        return (self.arms / mishap.file).exists()

    # ---- what is there -----------------------------------------------------------------------

    def records(self) -> dict[str, RunRecord]:
        return {
            path.parent.relative_to(self.store.runs).as_posix(): decode_record(path.read_bytes())
            for path in sorted(self.store.runs.glob(f"*/*/*/*/{RECORD}"))
        }

    def bits(self) -> dict[str, tuple[dict[str, str], str, str]]:
        """What may not depend on what happened: every hash of weights, logits and predictions."""
        return {
            run: (
                asdict(record.result.hashes),
                json.dumps(record.result.step_hashes),
                record.result.artifacts["weights.safetensors"].sha256,
            )
            for run, record in self.records().items()
        }

    def leaks(self) -> list[str]:
        """Whatever is there and should not be, once nobody works on the study. Processes get a moment, and
        their locks with them: one that is ending has lost its name before it lets go of its files."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := [*self._processes(), *self._locks()]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [*left, *self._files(), *self._cgroups()]

    def _processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                inside = Path(os.readlink(folder / "cwd")).is_relative_to(self.folder)
                if int(folder.name) != os.getpid() and (inside or str(self.folder) in name):
                    found.append(f"process {folder.name}: {name}")
        return found

    def _locks(self) -> list[str]:
        paths = [self.directory / ".lock", *Path(os.environ[locks.FOLDER]).glob("core-*")]
        return [f"lock {path}" for path in paths if path.exists() and not _is_free(path)]

    def _files(self) -> list[str]:
        store = self.store
        halves = [path for path in self.directory.rglob("*") if path.name.endswith(".part")]
        guests = [*store.guests.glob("cpus-*"), *self.folder.glob("there/*/*")]
        theirs = [guest / "out" for guest in guests]
        theirs += [Path("/tmp") / host_name(guest) for guest in self._sandboxes()]
        places = [store.incoming, self.scratch, *theirs]
        inside = [path for place in places if place.is_dir() for path in place.iterdir()]
        inside = [path for path in inside if not path.name.startswith(CACHE)]
        nameless = [
            path.parent for path in store.failed.glob("*/*/*/*") if not (path / "error.json").is_file()
        ] + [path for path in store.quarantined.glob("*/*/*/*") if not (path / "reason.txt").is_file()]
        return [f"file {os.path.relpath(path, self.folder)}" for path in (*halves, *inside, *nameless)]

    def _cgroups(self) -> list[str]:
        return [f"cgroup of {path}" for path in self._sandboxes() if Cpuset(host_name(path)).exists()]

    def _sandboxes(self) -> list[Path]:
        return [*self.store.guests.glob("cpus-*"), *self.folder.glob("host/*/slot-*/guests/cpus-*")]


def require_whole(scene: Scene, undisturbed: dict[str, tuple[dict[str, str], str, str]]) -> None:
    """What is guaranteed after whatever happened: one more sweep, and the study is as if nothing had."""
    assert scene.vbstudy("sweep") == 0
    assert scene.vbstudy("verify") == 0, "every byte of every run, and no planned run missing"
    planned = sorted(spec.run_id for spec in plan(load(scene.store.study_file)))
    folders = sorted(
        path.relative_to(scene.store.runs).as_posix() for path in scene.store.runs.glob("*/*/*/*")
    )
    assert folders == planned, "every planned run once"
    assert scene.bits() == undisturbed
    leaks = scene.leaks()
    assert not leaks, leaks


def _is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
