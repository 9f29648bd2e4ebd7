"""What a sweep costs beyond its trainings: the wall time of the whole command `vbstudy sweep`, against
the sum of its runs' own `wall_s` (from the start of a run's work to the end of its testing).

What is fair about it: nothing is left out. The command's start, the import of the framework by its
worker, the fork of each run, fingerprints, copies, hashes and the durable publishing all count. What is
paid once a sweep weighs less in a longer one, so the second row shows what each run costs once the
worker is warm: the time from one run's publishing to the next one's, beyond the run's `wall_s`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import datetime

from benchmarks.studies import records, study, vbstudy
from benchmarks.table import Row
from guest.records.run import Framework

TARGET = 0.05
EPOCHS = 140  # about ten seconds on a core of 2023


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with study(Framework.TORCH, EPOCHS, runs) as directory:
        report(f"one sweep of {runs} runs of about 10 s")
        began = time.perf_counter()
        vbstudy(directory, "sweep")
        sweep_s = time.perf_counter() - began
        finished = records(directory)
    assert len(finished) == runs
    trained = [record.result.timings.wall_s for record in finished]
    ends = [datetime.fromisoformat(record.finished_at) for record in finished]
    between = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(ends)]
    each = [gap / own - 1 for gap, own in zip(between, trained[1:], strict=True)]
    whole = sweep_s / sum(trained) - 1
    what = f"wall time of vbstudy sweep beyond its runs of {sum(trained) / runs:.1f} s"
    rows = [Row.of(what, [whole], "%", name=name, n=str(runs), at_most=TARGET)]
    if each:
        warm = "the same between two runs, once its worker is warm"
        rows.append(Row.of(warm, each, "%", value=sum(between) / sum(trained[1:]) - 1))
    return rows
