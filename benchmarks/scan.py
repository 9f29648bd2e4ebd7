"""How fast `vbstudy scan` lints, beside torchdetscan (Shanmugavelu et al., 2024) and beside ast.parse.

torchdetscan is the linter for PyTorch that was there before. Its rows are there when `torchdetscan.py` is on
the PATH: `pip install torchdetscan`.

What is fair about it: the tree is a part of the installed torch, copied, without the files that this Python
does not parse, for torchdetscan ends at the first of them. Both programs are whole processes, in turns, after
one unmeasured start of each, with their output thrown away; ours runs in one process (`--jobs 1`) as theirs
does, and once more on all cores. Ours looks for every rule, theirs for operations only."""

from __future__ import annotations

import ast
import gc
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.scan.files import walk
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.rules import RULES
from analysis.scan.project import lint_some
from benchmarks.table import Row

PARTS = ("nn", "optim", "utils", "distributed", "fx")
LINES_A_SECOND = 20.0  # thousands, of one core
PEER = "torchdetscan.py"


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        root = Path(folder) / "torch"
        lines = _copy(root)
        report(f"{lines:,} lines, {runs} times")
        python = walk(root).python
        _lint(root, python)
        pairs = [(_lint(root, python), _parse(root, python)) for _ in range(runs)]
        rates = [lines / ours / 1000 for ours, _ in pairs]
        what = f"thousands of lines linted a second of CPU time, one core ({lines:,} lines)"
        rows = [
            Row(what, rates, "k", name=name, at_least=LINES_A_SECOND),
            Row("time of linting : ast.parse of the same files", [a / b for a, b in pairs]),
        ]
        peer = shutil.which(PEER)
        if peer is None:
            report(f"{PEER} is not on the PATH: not compared with it")
            return rows
        every = [sys.executable, "-m", "vbstudy", "-q", "scan", "--only", "lint", str(root)]
        commands = {"one": [*every, "--jobs", "1"], "all": every, "theirs": [sys.executable, peer, str(root)]}
        for command in commands.values():
            _command(command)
        report(f"whole commands, {runs} times each, in turns")
        times = [{key: _command(command) for key, command in commands.items()} for _ in range(runs)]
        for key, which in (("one", " --jobs 1"), ("all", "")):
            ratios = [each["theirs"] / each[key] for each in times]
            rows.append(Row(f"torchdetscan : vbstudy scan{which}, whole commands", ratios))
        return rows


def _copy(root: Path) -> int:
    """Copies what can be parsed; returns its lines."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("scan: needs torch, for its sources")
    lines = 0
    for part in PARTS:
        for path in sorted((Path(spec.origin).parent / part).rglob("*.py")):
            data = path.read_bytes()
            try:
                ast.parse(data)
            except SyntaxError:
                continue
            target = root / path.relative_to(Path(spec.origin).parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            lines += data.count(b"\n")
    return lines


def _lint(root: Path, python: list[str]) -> float:
    """Seconds of CPU, of one core."""
    began = time.process_time()
    lint_project(lint_some(root, python, {}), {}, frozenset(RULES))
    return time.process_time() - began


def _parse(root: Path, python: list[str]) -> float:
    began = time.process_time()
    gc.disable()  # as the lint does
    for path in python:
        ast.parse((root / path).read_bytes())
    gc.enable()
    return time.process_time() - began


def _command(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began
