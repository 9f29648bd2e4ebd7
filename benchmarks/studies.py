"""Small real studies in a temporary folder: one guest with one CPU, LeNet-1 on the embedded digits."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from guest.records.run import Framework

# The guest is held to its core by affinity alone, as a cold start is, so that both have the same.
STUDY = """
name = "benchmark"
cpus = [1]
variants = ["fixed-seed"]
repetitions = {runs}

[provider]
kind = "local"
cpuset = "affinity"

[engine]
retries = 0

[[workload]]
name = "lenet1"
framework = "{framework}"
model = "lenet1"
dataset = "digits"
epochs = {epochs}
"""


@contextlib.contextmanager
def study(framework: Framework, epochs: int, runs: int) -> Iterator[Path]:
    """The folder of a provisioned study that nothing has run in yet."""
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as name:
        directory = Path(name)
        text = STUDY.format(framework=framework, epochs=epochs, runs=runs)
        (directory / "study.toml").write_text(text)
        vbstudy(directory, "provision")
        yield directory


def vbstudy(directory: Path, *arguments: str) -> None:
    """The command as a process of its own. Its errors are shown; a failure ends the benchmark."""
    command = [sys.executable, "-m", "vbstudy", "-q", "-C", str(directory), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
