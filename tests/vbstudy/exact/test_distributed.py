"""Workers that train one network together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import at_night
from tests.vbstudy.exact import distributed

pytestmark = pytest.mark.needs("proof")
UNEQUAL = {1: ("1", "3"), 2: ("1 1", "3 2"), 4: ("1 1 1 1", "1 2 3 4")}


def hashes(folder: Path, threads: str, *before: str) -> list[str]:
    """Of the weights of each worker, in order of their ranks."""
    folder.mkdir()
    workers = f"--nproc-per-node={len(threads.split())}"
    started = ["-m", "torch.distributed.run", "--standalone", workers, distributed.__file__]
    done = subprocess.run(
        [*before, sys.executable, *started, str(folder), *threads.split()],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [file.read_text("utf-8") for file in sorted(folder.iterdir())]


@pytest.mark.parametrize("workers", [2, at_night("proof", 1), at_night("proof", 4)])
def test_workers_on_unequal_thread_counts_learn_the_weights_of_as_many_on_one_thread(
    workers: int, tmp_path: Path
) -> None:
    exact = (sys.executable, "-m", "vbstudy", "exact", "--strict", "--")
    one, unequal = (hashes(tmp_path / str(n), threads, *exact) for n, threads in enumerate(UNEQUAL[workers]))
    assert len(set(one)) == 1
    assert unequal == one
    assert len(one) == workers


def test_without_exact_mode_their_weights_depend_on_the_thread_counts(tmp_path: Path) -> None:
    assert hashes(tmp_path / "one", "1 1") != hashes(tmp_path / "unequal", "3 2")
