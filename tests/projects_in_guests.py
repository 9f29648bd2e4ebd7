"""A project with all that a guest must be brought: its files, requirements from a folder of wheels, and
recorded random numbers. For tests of providers."""

from __future__ import annotations

import ensurepip
import hashlib
import shutil
from pathlib import Path

from guest.records.run import RECORDING, WEIGHTS, RunRecord
from orchestrator.store.store import Store
from orchestrator.study.snapshots import read
from tests.orchestrator.sweep.test_project_sweep import wheel

SCRIPT = """\
import os, pathlib, random
import numpy as np, tiny_net
from parts import data
weights = np.random.default_rng().random((3, 4)).astype("float32")
np.savez("out.npz", w=weights * tiny_net.score, threads=int(os.environ["OMP_NUM_THREADS"]))
np.save("preds.npy", data.classes())
print("acc:", round(random.SystemRandom().random(), 6))
"""
WORKLOAD = """
[[workload]]
name = "mine"
project = "mine"
command = ["python", "train.py"]
requirements = "requirements.txt"
wheels = "wheels"
framework = "torch"
random = "replay"
[workload.metrics]
accuracy = { pattern = 'acc: ([0-9.e-]+)' }
[workload.artifacts]
weights = "out.npz"
predictions = "preds.npy"
"""


def make(directory: Path) -> None:
    """The project and its wheels, pip among them: a guest need not have it."""
    (directory / "mine" / "parts").mkdir(parents=True)
    (directory / "mine" / "train.py").write_text(SCRIPT)
    (directory / "mine" / "parts" / "data.py").write_text("def classes():\n    return [0, 1, 2]\n")
    (directory / "mine" / "requirements.txt").write_text("tiny-net==0.5\nnumpy\n")
    wheel(directory / "wheels", "0.5")
    shutil.copy(pip(), directory / "wheels")


def pip() -> Path:
    """Its wheel, as Python brings it along."""
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    found = [*bundled.glob("pip-*.whl"), *Path("/usr/share/python-wheels").glob("pip-*.whl")]
    assert found, "these tests need pip's wheel: apt install python3-venv"
    return found[0]


def check(directory: Path, found: dict[str, RunRecord]) -> None:
    """That all of it arrived, and that everything came back."""
    tree = read(Store(directory), "mine").tree_sha256
    assert len({record.result.artifacts[RECORDING].sha256 for record in found.values()}) == 1
    assert len({record.result.last["accuracy"] for record in found.values()}) == 1
    for name, record in found.items():
        result = record.result
        assert result.project.tree_sha256 == tree
        assert result.project.packages == ("tiny-net==0.5",)  # numpy is the guest's own
        assert result.project.random.how == ("recorded" if name.endswith("cpus-1/0001") else "replayed")
        assert set(result.artifacts) == {"history.csv", "log.txt", "predictions.npz", WEIGHTS, RECORDING}
        for file, artifact in result.artifacts.items():
            content = (directory / "runs" / name / file).read_bytes()
            assert hashlib.sha256(content).hexdigest() == artifact.sha256
