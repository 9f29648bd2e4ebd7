"""All benchmarks, or those that are named, and one table of what they say.

    python -m benchmarks                      all: at most half an hour on two quiet cores
    python -m benchmarks startup analyze      some
    python -m benchmarks warm_worker -n 20    one, with fewer runs

A ratio compares two things measured in one run of the benchmark; times of different runs, or of a
machine with other work to do, are not to be compared."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from benchmarks import (
    analyze,
    dispatch,
    exact,
    large_store,
    qemu_boot,
    scan,
    startup,
    trace,
    warm_worker,
)
from benchmarks.table import Row, machine, table

TABLE_WIDTH = 110  # a pipe has none, and a narrower table breaks its words
Report = Callable[[str], None]
BENCHMARKS: dict[str, tuple[Callable[[str, int, Report], list[Row]], int]] = {
    "startup": (startup.measure, 20),  # starts
    "analyze": (analyze.measure, 2304),  # runs in the study
    "warm_worker": (warm_worker.measure_torch, 60),  # runs on either side
    "warm_worker_tf": (warm_worker.measure_tensorflow, 20),
    "large_store": (large_store.measure, 100_000),  # runs in the store
    "exact": (exact.measure, 10),  # turns, a block of steps each
    "dispatch": (dispatch.measure, 1000),  # runs that do nothing
    "scan": (scan.measure, 5),  # times over a large project
    "trace": (trace.measure, 30),  # steps of each kind
    "qemu_boot": (qemu_boot.measure, 5),  # starts of a virtual machine
}
ON_REQUEST = frozenset({"qemu_boot"})  # which need more than Python: run when they are named


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument("-n", "--runs", type=int, help="how many, instead of the benchmark's own number")
    arguments = parser.parse_args()
    names = arguments.names or [name for name in BENCHMARKS if name not in ON_REQUEST]
    unknown = next((name for name in names if name not in BENCHMARKS), None)
    if unknown:
        parser.error(f"there is no benchmark {unknown!r}; there are {', '.join(BENCHMARKS)}")
    if arguments.runs is not None and (len(names) != 1 or arguments.runs < 1):
        parser.error("-n takes a number from 1 on, and goes with one NAME")

    console, progress = Console(), Console(stderr=True)
    console.print(machine(), highlight=False, soft_wrap=True)
    rows: list[Row] = []
    for name in names:
        measure, runs = BENCHMARKS[name]

        def report(text: str, name: str = name) -> None:
            progress.print(f"{name}: {text}", style="dim", highlight=False, soft_wrap=True)

        rows += measure(name, arguments.runs or runs, report)
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(rows))
    console.print(f"afterwards: {machine().splitlines()[0]}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
