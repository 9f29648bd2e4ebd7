"""A store of 100,000 runs: how long `vbstudy status` takes, and how long a sweep takes to know what is left
to run, each as a process of its own from start to end, with the most memory that it held.

What is fair about it: the runs are valid (every file, size and hash; a sample is checked), small, and in the
page cache. Of the sweep nothing is left out: it takes the lock, looks at each of the 600,000 files, finds
that nothing is left to do, and ends. The peer is `find`, which lists the same folders and looks at nothing.
The first sweep reads every byte; later ones read what changed since. That they do is checked too: runs that
are removed or damaged must be found, all of them and no others."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.fabricated import plain_record, sha
from benchmarks.table import Row, over
from guest.records.codec import canonical_json, seal
from guest.records.run import ARTIFACTS, LOG, RECORD, RunSpec
from orchestrator.store.index import opened
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import Study, load
from orchestrator.sweep.pipeline import resume

STATUS_S, RESUME_S, MEMORY_MIB = 2.0, 5.0, 1024.0
WORKLOADS, VARIANTS = 25, 4
# The peak that wait4 tells of a process is at least that of the one which started it.
COMMAND = """
import sys
from orchestrator.cli.main import run
status = run(sys.argv[1:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)
"""
TURNS = 3
REMOVED, DAMAGED, SAMPLE = 7, 5, 100
WORKLOAD = """
[[workload]]
name = "network-{i:02d}"
model = "lenet1"
dataset = "digits"
"""


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        directory = Path(folder)
        study = _study(directory, -(-runs // (WORKLOADS * VARIANTS)))
        specs = plan(study)
        report(f"building {len(specs)} runs")
        _command(directory, "provision")
        build(directory, specs)
        store = Store(directory)
        for spec in random.Random(1).sample(specs, min(SAMPLE, len(specs))):  # noqa: S311
            store.check(spec)
        report("the first sweep, which reads every byte")
        first, _ = _command(directory, "sweep")
        report(f"status, sweep and find, {TURNS} times")
        status: list[float] = []
        sweep: list[float] = []
        listing: list[float] = []
        memory: list[float] = []
        for _ in range(TURNS):
            for samples, arguments in ((status, "status"), (sweep, "sweep")):
                seconds, mib = _command(directory, arguments)
                samples.append(seconds)
                memory.append(mib)
            listing.append(_find(directory))
        report("removing and damaging runs, and asking what is left")
        _changes_are_found(store, specs)

    def row(
        what: str, samples: Sequence[float], unit: str = "x", at_most: float | None = None, *, name: str = ""
    ) -> Row:
        return Row(what, samples, unit, name=name, value=max(samples), at_most=at_most)

    return [
        row(f"vbstudy status of {len(specs):,} runs (the slowest)", status, "s", STATUS_S, name=name),
        row("the same : find, which lists their folders", over(status, listing)),
        row("vbstudy sweep that finds nothing left to run (the slowest)", sweep, "s", RESUME_S),
        row("the same : find, which lists their folders", over(sweep, listing)),
        row("vbstudy sweep that reads every byte", [first], "s"),
        row("the most memory that one of them held", memory, "MiB", MEMORY_MIB),
    ]


def _study(directory: Path, repetitions: int) -> Study:
    head = f'name = "large"\ncpus = [1]\nrepetitions = {repetitions}\n'
    head += 'variants = ["default", "fixed-seed", "algo", "control"]\n'
    (directory / "study.toml").write_text(head + "".join(WORKLOAD.format(i=i) for i in range(WORKLOADS)))
    return load(directory / "study.toml")


def _command(directory: Path, *arguments: str) -> tuple[float, float]:
    """Seconds and MiB of one command."""
    began = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, "-q", "-C", str(directory), "--json", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - began, int(process.stderr.split()[-2]) / 1024


def _find(directory: Path) -> float:
    began = time.perf_counter()
    command = ["find", str(directory / "runs"), "-mindepth", "4", "-maxdepth", "4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _changes_are_found(store: Store, specs: list[RunSpec]) -> None:
    rng = random.Random(2)  # noqa: S311
    changed = rng.sample(specs, REMOVED + DAMAGED)
    for spec in changed[:REMOVED]:
        store.folder(spec).rename(store.directory / f"gone-{sha(spec.run_id.encode())}")
    for spec in changed[REMOVED:]:
        path = store.folder(spec) / LOG
        data, kept = path.read_bytes(), path.stat()
        path.unlink()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the same size
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # and the same age
    with opened(store.checked_file, store.runs) as checked:
        found = resume(store, specs, checked)
    assert {spec.run_id for spec, _ in found.damaged} == {spec.run_id for spec in changed[REMOVED:]}
    assert len(found.done) == len(specs) - len(changed)
    assert found.read < len(specs) / 10, f"{found.read} runs were read again"


# ---- small valid runs, quickly ---------------------------------------------------------------------


def build(directory: Path, specs: Sequence[RunSpec]) -> None:
    """Writes a valid run for each spec. Runs of a set share the bytes of their files (hard links); their
    records differ in the repetition and the checksum, and are made as text from the set's first."""
    sets: dict[str, list[RunSpec]] = {}
    for spec in specs:
        sets.setdefault(spec.set_id, []).append(spec)
    for number, (set_id, group) in enumerate(sets.items()):
        folder = directory / "runs" / set_id
        patterns = directory / "patterns" / str(number)
        folder.mkdir(parents=True)
        patterns.mkdir(parents=True)
        for name in ARTIFACTS:
            (patterns / name).write_bytes(f"{name} of {set_id}\n".encode())
        mark = 987654321
        files = {name: (patterns / name).read_bytes() for name in ARTIFACTS}
        record = plain_record(dataclasses.replace(group[0], repetition=mark), files)
        canonical = canonical_json(record).split(str(mark).encode())
        text = seal(record)
        before, behind = text.split(str(mark))
        checksum = json.loads(text)["record_sha256"]
        behind, last = behind.split(checksum)
        assert len(canonical) == 2
        for spec in group:
            target = f"{folder}/{spec.repetition:04d}"
            os.mkdir(target)  # noqa: PTH102  (half a million calls)
            for name in ARTIFACTS:
                os.link(f"{patterns}/{name}", f"{target}/{name}")
            own = sha(str(spec.repetition).encode().join(canonical))
            with open(f"{target}/{RECORD}", "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(f"{before}{spec.repetition}{behind}{own}{last}")
