"""How good and how quick the packing of runs on hosts is, simulated.

What is fair about it: the shortest schedule is known, not guessed, for the runs are cut out of one that has
no gap. It has at least ten runs a core; with few runs the last one decides, whatever starts first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks.table import Row
from orchestrator.engine.packing import Room
from orchestrator.forecast.fleet import ExpectedRun, simulate

LONGER = 1.1
SECONDS = 10.0
INSTANCES = 100
LENGTH_S = 1000.0


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    generator = random.Random(1)  # noqa: S311  (no secret)
    ratios = []
    for _ in range(INSTANCES):
        pieces, hosts, room = _without_gap(generator)
        ratios.append(simulate(pieces, hosts, room).makespan_s / LENGTH_S)
    report(f"{INSTANCES} instances packed; now a plan of {runs} runs")
    plan = _plan(generator, runs)
    began = time.perf_counter()
    large = simulate(plan, 8, Room(cpus=32))
    took_s = time.perf_counter() - began
    assert len(large.starts) == runs
    what = "makespan of longest-first packing, against the shortest schedule (worst instance)"
    return [
        Row(what, ratios, name=name, value=max(ratios), at_most=LONGER),
        Row("simulating a plan on 8 hosts of 32 cores", [took_s], "s", n=str(runs), at_most=SECONDS),
    ]


def _without_gap(generator: random.Random) -> tuple[list[ExpectedRun], int, Room]:
    hosts, cores = generator.choice((1, 2, 4, 8)), generator.choice((2, 4, 8, 16))
    pieces: list[ExpectedRun] = []
    for _ in range(hosts):
        free = cores
        while free:
            cpus = generator.choice([count for count in (1, 2, 4, 8, 16) if count <= free])
            free -= cpus
            cuts = sorted(generator.uniform(0, LENGTH_S) for _ in range(generator.randint(9, 29)))
            for begin, end in zip([0.0, *cuts], [*cuts, LENGTH_S], strict=True):
                run = str(len(pieces))
                pieces.append(ExpectedRun(run=run, group=run, needs=Room(cpus=cpus), run_s=end - begin))
    generator.shuffle(pieces)
    return pieces, hosts, Room(cpus=cores)


def _plan(generator: random.Random, runs: int) -> list[ExpectedRun]:
    """As a study has them: sets of equal runs on 1, 2, 4 and 8 CPUs."""
    sets = 64
    times = [generator.lognormvariate(6, 1) for _ in range(sets)]
    return [
        ExpectedRun(
            run=str(number),
            group=str(number % sets),
            needs=Room(cpus=(1, 2, 4, 8)[number % sets % 4]),
            run_s=times[number % sets],
        )
        for number in range(runs)
    ]
