"""Runs per hour of one sweep with its warm worker, against a loop of cold starts.

The peer is what `python train.py` in a shell loop does: one fresh process a run, which imports the
framework, loads the data, trains and writes its files (`python -m guest run`). What is fair about it:

- Both compute the same spec with the same code, and must come to the same weights, to the bit.
- Both have the same core (by affinity), the same thread settings, and the same Python. The cold
  start may cache its bytecode, and starts with a page cache that has seen one cold start already.
- They take turns, a block of runs each, so that whatever else the machine does meets both alike. The
  sweep waits in its progress callback meanwhile, its worker idle; that time is not counted.
- The sweep's side is charged with all that it does more: the start of its worker, checking hashes,
  publishing durably, and one whole `vbstudy sweep` that finds nothing left to do, which stands for
  the command's own start. The cold loop is charged with its processes only.

The ratio cannot pass (run + import) / run, which the second row shows: where the framework is imported
in less than two seconds, runs of one second have a ceiling below 3.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.studies import study, vbstudy
from benchmarks.table import Row, over
from guest.machine import fingerprint, threads
from guest.records.codec import to_json
from guest.records.run import Framework, Message, RunRequest, RunResult, RunSpec
from orchestrator.cores.leases import host_cores
from orchestrator.engine.local import LocalEngine
from orchestrator.inventory import read_inventory
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study import schema as study_
from orchestrator.study.plan import plan
from orchestrator.sweep.pipeline import run_missing
from orchestrator.transport.connection import Connection, LocalConnection

TARGET = 3.0
BLOCK = 5
EPOCHS = {Framework.TORCH: 14, Framework.TENSORFLOW: 12}  # about a second on a core of 2023
COLD_TIMEOUT_S = 600


@dataclass(slots=True)
class Times:
    """Seconds of each block, and every weight hash that either side came to."""

    sweep: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    hashes: set[str] = field(default_factory=set)


class ColdStarts:
    """One process a run, with the sweep's environment, on the sweep's core."""

    def __init__(self, connection: Connection, folder: Path, spec: RunSpec, data: Sequence[Path]) -> None:
        self._connection = connection
        self._request = folder / "request.json"
        request = RunRequest(spec=spec, visible_cpus=1, data_folders=tuple(map(str, data)))
        self._request.write_text(json.dumps(to_json(request)))
        # An empty PYTHONDONTWRITEBYTECODE counts as none: a user's own script is cached as well.
        self._env = threads.environment(spec, cpu_vendor=fingerprint.cpu()["vendor"])
        self._env["PYTHONDONTWRITEBYTECODE"] = ""

    def run(self, out: str) -> str:
        """One run; returns its weight hash."""
        argv = [self._connection.python, "-m", "guest", "run", "--request", str(self._request), "--out", out]
        done = self._connection.run(argv, self._env, COLD_TIMEOUT_S)
        assert done.status == 0, done.stdout + done.stderr
        message = json.loads(done.stdout.splitlines()[-1])
        return str(message["body"]["result"]["hashes"]["weights"])


class TakingTurns:
    """A sweep's observer that lets the cold starts have their turn after every block of runs."""

    def __init__(self, cold: ColdStarts, runs: int, report: Callable[[str], None]) -> None:
        self.times = Times()
        self._cold = cold
        self._runs = runs
        self._report = report
        self._done = self._in_block = 0
        self._resumed = 0.0

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None:
        assert len(specs) == self._runs
        assert not done

    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None: ...
    def waiting(self, why: str) -> None: ...
    def started(self, guest: str, spec: RunSpec, cores: tuple[int, ...]) -> None: ...
    def message(self, guest: str, message: Message) -> None: ...

    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None:  # noqa: ARG002
        raise AssertionError(f"{spec.run_id}: {reason}")

    def start(self) -> None:
        self._resumed = time.perf_counter()

    def finished(self, spec: RunSpec, result: RunResult) -> None:  # noqa: ARG002
        self.times.runs.append(result.timings.wall_s)
        self.times.hashes.add(result.hashes.weights)
        self._done += 1
        self._in_block += 1
        if self._in_block < BLOCK and self._done < self._runs:
            return
        paused = time.perf_counter()
        self.times.sweep.append(paused - self._resumed)
        hashes = [self._cold.run(f"out/{self._done}-{i}") for i in range(self._in_block)]
        self.times.cold.append(time.perf_counter() - paused)
        self.times.hashes.update(hashes)
        self._report(f"{self._done} of {self._runs} runs each, the last block {self._ratio():.2f}x")
        self._in_block = 0
        self._resumed = time.perf_counter()

    def stop(self) -> None:
        """Adds what the sweep did after its last block."""
        self.times.sweep[-1] += time.perf_counter() - self._resumed

    def _ratio(self) -> float:
        return self.times.cold[-1] / self.times.sweep[-1]


def measure_torch(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    return _measure(Framework.TORCH, name, runs, report)


def measure_tensorflow(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    return _measure(Framework.TENSORFLOW, name, runs, report)


def _measure(framework: Framework, name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with study(framework, EPOCHS[framework], runs) as directory:
        store = Store(directory)
        loaded = study_.load(store.study_file)
        folder = directory / "cold"
        folder.mkdir()
        provider = make(loaded, store)
        connection = LocalConnection(folder, sys.executable, host_cores()[:1], None, {})
        cold = ColdStarts(connection, folder, plan(loaded)[0], [])
        unmeasured = cold.run("out/0")
        turns = TakingTurns(cold, runs, report)
        turns.start()
        engine = LocalEngine(loaded, store, provider, read_inventory(store.guests_file))
        run_missing(plan(loaded), store, engine, turns)
        turns.stop()
        began = time.perf_counter()
        vbstudy(directory, "sweep")
        command_s = time.perf_counter() - began
    times = turns.times
    assert times.hashes == {unmeasured}, f"{len(times.hashes | {unmeasured})} different weights"
    cold_s, sweep_s, own_s = sum(times.cold), sum(times.sweep) + command_s, sum(times.runs)
    what = (
        f"{framework}: runs per hour, sweep {3600 * runs / sweep_s:,.0f} : cold starts "
        f"{3600 * runs / cold_s:,.0f}; runs of {own_s / runs:.2f} s; all weights equal"
    )
    ceiling, n = "its ceiling: a sweep that costs nothing but its runs' own time", f"{runs} + {runs}"
    own = [sum(times.runs[i : i + BLOCK]) for i in range(0, len(times.runs), BLOCK)]
    return [
        Row(what, over(times.cold, times.sweep), name=name, n=n, value=cold_s / sweep_s, at_least=TARGET),
        Row(ceiling, over(times.cold, own), n=n, value=cold_s / own_s),
    ]
