"""How long `vbstudy --help` takes as a whole process, beside the bare interpreter.

What is fair about it: both are started in the same way by the same Python, in turns, after one
unmeasured start of each; the program is run by its installed script, as a shell would.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Row, over

TARGET_S = 0.3


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    script = Path(sys.executable).parent / "vbstudy"
    ours, bare = [str(script), "--help"], [sys.executable, "-c", "pass"]
    report(f"{runs} starts each, in turns")
    for command in (ours, bare):
        _start(command)
    pairs = [(_start(ours), _start(bare)) for _ in range(runs)]
    help_s, pass_s = ([pair[i] for pair in pairs] for i in (0, 1))
    ratio = statistics.median(help_s) / statistics.median(pass_s)
    return [
        Row("vbstudy --help, the whole process", help_s, "s", name=name, at_most=TARGET_S),
        Row("the same : python -c pass", over(help_s, pass_s), n=f"{runs} + {runs}", value=ratio),
    ]


def _start(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
