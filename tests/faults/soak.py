"""Thousands of short runs in one study, with faults drawn at random, and what must be true in the end: every
run is there once with its hash, nothing is left over, and the orchestrator has not grown.

    python -m tests.faults.soak                       3,000 runs: about ten minutes
    python -m tests.faults.soak --runs 100 --seed 7

In the first third of the runs the orchestrator itself is killed now and then; the memory is that of the one
that does the rest, once it is warm."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from orchestrator.cores import locks
from orchestrator.study.plan import plan
from orchestrator.study.schema import load
from tests.faults import soaking
from tests.faults.scenes import KILLED, RATES, RUNS, Scene

EVERY_S = 0.5
WARM_UP = 1000  # runs: some 900 after its start, Python's table of interned strings grows once, by a MiB
BLOCK = 50  # runs: samples in one are not independent
FLAT_KIB = 1.0  # a run: what the index keeps of each is 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An orchestrator at one moment."""

    runs: int  # that are in the store
    rss_kib: int
    descriptors: int
    sockets: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What came of it. `samples` are of the last orchestrator, after its warm-up."""

    runs: int
    mishaps: int
    kinds: int  # of mishaps, as drawn
    kills: int
    failed_attempts: int
    elapsed_s: float
    samples: tuple[Sample, ...]
    wrong: tuple[str, ...]

    def growth_kib(self) -> tuple[float, float, float, int] | None:
        """KiB a run with its 95 % interval, from the means of n blocks; None with too few."""
        blocks = collections.defaultdict(list)
        for sample in self.samples:
            blocks[sample.runs // BLOCK].append(sample.rss_kib)
        if len(blocks) < 5:
            return None
        means = [statistics.fmean(block) for block in blocks.values()]
        fit = stats.linregress([BLOCK * block for block in blocks], means)
        half = fit.stderr * stats.t.ppf(0.975, len(blocks) - 2)
        return fit.slope, fit.slope - half, fit.slope + half, len(blocks)


def soak(folder: Path, runs: int, kills: int, seed: int) -> Soaked:
    """Sweeps until all is done. `folder` is empty."""
    began = time.monotonic()
    pattern, scene = Scene(folder / "pattern", RUNS), Scene(folder / "soak", RUNS)
    for each, repetitions in ((pattern, 1), (scene, runs // len(RATES))):
        _write_study(each, repetitions)
        each.provision()
    assert pattern.vbstudy("sweep") == 0
    expected = {run.partition("/")[0]: bits for run, bits in pattern.bits().items()}

    planned = [spec.run_id for spec in plan(load(scene.store.study_file))]
    met = soaking.draw(planned, seed)
    (scene.arms / soaking.PLAN).write_text(json.dumps(met))
    generator = random.Random(seed)
    ends = sorted(generator.randrange(runs // 3 + 1) for _ in range(kills))  # runs done when it is killed
    killed, samples, wrong = 0, list[Sample](), list[str]()
    while True:
        process = scene.start("sweep")
        goal = ends[killed] if killed < len(ends) else None
        samples = list(_watch(scene, process, goal))
        if goal is not None and process.poll() is None:
            process.kill()
            killed += 1
        said = process.communicate()[0]
        if process.returncode == KILLED:
            continue
        if process.returncode != 0:
            wrong.append(f"the sweep ended with {process.returncode}: {said[-500:]}")
        break
    happened = [met[run] for run in met if soaking.mark(scene.arms, run).exists()]
    return Soaked(
        runs=_done(scene),
        mishaps=len(happened),
        kinds=len(set(happened)),
        kills=killed,
        failed_attempts=len(list(scene.store.failed.glob("*/*/*/*/error.json"))),
        elapsed_s=time.monotonic() - began,
        samples=tuple(sample for sample in samples if sample.runs >= samples[0].runs + WARM_UP),
        wrong=(*wrong, *_wrong(scene, expected, planned)),
    )


def _write_study(scene: Scene, repetitions: int) -> None:
    text = scene.store.study_file.read_text()
    text = text.replace("repetitions = 1", f"repetitions = {repetitions}").replace(
        "retries = 2", "retries = 6"
    )
    scene.store.study_file.write_text(text)


def _done(scene: Scene) -> int:
    """How many runs the store holds."""
    return sum(len(os.listdir(folder)) for folder in scene.store.runs.glob("*/*/*"))


def _watch(scene: Scene, process: subprocess.Popen[str], goal: int | None) -> Iterator[Sample]:
    """Until it has ended, or the store holds `goal` runs."""
    while process.poll() is None:
        done = _done(scene)
        if goal is not None and done >= goal:
            return
        with contextlib.suppress(OSError, KeyError):  # it has ended; its memory goes before it does
            yield _sample(process.pid, done)
        time.sleep(EVERY_S)


def _sample(pid: int, runs: int) -> Sample:
    folder = Path(f"/proc/{pid}")
    told = dict(re.findall(r"^(\w+):\s+(\d+)", (folder / "status").read_text(), re.MULTILINE))
    links = []
    for each in (folder / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            links.append(os.readlink(each))
    return Sample(
        runs=runs,
        rss_kib=int(told["VmRSS"]),
        descriptors=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
        threads=int(told["Threads"]),
    )


def _wrong(scene: Scene, expected: dict[str, object], planned: list[str]) -> Iterator[str]:
    found = scene.bits()
    if sorted(found) != sorted(planned):
        yield f"{len(found)} runs in the store, {len(planned)} planned"
    unequal = [run for run, bits in found.items() if bits != expected[run.partition("/")[0]]]
    if unequal:
        yield f"{len(unequal)} runs have other hashes than an undisturbed sweep's: {unequal[:3]}"
    if scene.vbstudy("sweep") or scene.vbstudy("verify"):
        yield "the store does not verify"
    yield from scene.leaks()


def judge(soaked: Soaked) -> list[str]:
    """What is not as it must be."""
    wrong, growth = list(soaked.wrong), soaked.growth_kib()
    if growth is not None and growth[2] > FLAT_KIB:
        wrong.append(f"memory may grow by {growth[2]:.2f} KiB a run, {FLAT_KIB:g} are allowed")
    if any(sample.sockets for sample in soaked.samples):
        wrong.append("the orchestrator has sockets")
    if soaked.samples:
        first, last = soaked.samples[: len(soaked.samples) // 2], soaked.samples[len(soaked.samples) // 2 :]
        for what, of in (("open files", lambda s: s.descriptors), ("threads", lambda s: s.threads)):
            # not the largest: a sample may fall between the end of a worker and the start of the next one
            if statistics.median(map(of, last)) > statistics.median(map(of, first)) + 2:
                wrong.append(f"{what} grow")
    return wrong


def told(soaked: Soaked) -> str:
    lines = [
        f"{soaked.runs} runs in {soaked.elapsed_s:.0f} s; {soaked.mishaps} faults of {soaked.kinds} kinds",
        f"orchestrator killed {soaked.kills} times; {soaked.failed_attempts} attempts failed and were redone",
    ]
    samples, growth = soaked.samples, soaked.growth_kib()
    if samples:
        rss, open_files = [s.rss_kib / 1024 for s in samples], [s.descriptors for s in samples]
        lines.append(
            f"the last orchestrator, runs {samples[0].runs} to {samples[-1].runs} ({len(samples)} samples): "
            f"{rss[0]:.1f} MiB first, {rss[-1]:.1f} last, {max(rss):.1f} at most; "
            f"{min(open_files)} to {max(open_files)} open files, "
            f"{max(s.sockets for s in samples)} sockets, at most {max(s.threads for s in samples)} threads"
        )
    if growth is not None:
        slope, low, high, n = growth
        interval = f"95 % interval {low:.3f} to {high:.3f}"
        lines.append(f"growth {slope:.3f} KiB a run, {interval} (n = {n} blocks of {BLOCK} runs)")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=10, help="of the orchestrator")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vbstudy-soak-") as name:
        os.environ[locks.FOLDER] = str(Path(name) / "cores")
        soaked = soak(Path(name), options.runs, options.kills, options.seed)
    wrong = judge(soaked)
    sys.stdout.write("\n".join([told(soaked), *(f"WRONG: {each}" for each in wrong)]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
