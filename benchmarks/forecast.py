"""How long a sweep takes, against the estimate of `vbstudy plan --hosts 1`: runs on one and on two CPUs,
packed on one host by dask; the estimate is made from two earlier runs of each condition.

What is fair about it: it is the forecast that a user sees, made before the runs that it is compared with, and
the time is that of the sweep's own records, from the first start to the last end. Starting guests between
runs is in it; that the host was idle before and after, while the cluster starts and ends, is not."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from benchmarks.studies import records, vbstudy
from benchmarks.table import Row
from orchestrator.cores.leases import host_cores

PILOT = 2
TURNS = 3
STUDY = """
name = "forecast"
cpus = [1, 2]
variants = ["fixed-seed"]

[engine]
kind = "dask"
retries = 0

[[workload]]
name = "net"
model = "lenet1"
dataset = "digits"
train_samples = 256
test_samples = 100
epochs = 60
"""


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    ratios = []
    for turn in range(1, TURNS + 1):
        ratios.append(_turn(runs))
        report(f"turn {turn} of {TURNS}: {ratios[-1]:.2f}")
    what = f"a sweep of {2 * runs} runs, against its estimate (the ratio farthest from 1)"
    farthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return [Row.of(what, ratios, name=name, n=f"{TURNS} x {2 * runs}", value=farthest)]


def _turn(runs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        directory = Path(folder)
        (directory / "study.toml").write_text(STUDY)
        vbstudy(directory, "sweep", "--runs", str(PILOT))
        pilot = {record.spec.run_id for record in records(directory)}
        command = [sys.executable, "-m", "vbstudy", "--json", "-C", folder]
        fleet = ["plan", "--hosts", "1", "--cores", str(len(host_cores())), "--runs", str(PILOT + runs)]
        estimate = json.loads(subprocess.run([*command, *fleet], check=True, stdout=subprocess.PIPE).stdout)
        vbstudy(directory, "sweep", "--runs", str(PILOT + runs))
        new = [record for record in records(directory) if record.spec.run_id not in pilot]
        began = min(datetime.fromisoformat(record.started_at) for record in new)
        ended = max(datetime.fromisoformat(record.finished_at) for record in new)
        assert len(new) == estimate["fleet"]["runs"] == 2 * runs
        return (ended - began).total_seconds() / (float(estimate["fleet"]["hours"]) * 3600)
