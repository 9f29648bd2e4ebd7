"""How many lines a second `vbstudy scan` lints, beside ast.parse of the same files and beside torchdetscan.

torchdetscan (Shanmugavelu et al., 2024) is the linter for PyTorch that was there before. Its rows are there
when `torchdetscan.py` is on the PATH: `pip install torchdetscan`.

What is fair about it: the tree is a part of the installed torch, copied, without the files that this Python
does not parse, for torchdetscan ends at the first of them. Both programs are whole processes, in turns, after
one unmeasured start of each, with their output thrown away; ours runs in one process (`--jobs 1`) as theirs
does, and once more on all cores. Ours looks for every rule, theirs for operations only. Lines a second are
of CPU time. What they find is counted on one file: Conv2d, imported and used in the ways that people do."""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import re
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
VBSTUDY = (sys.executable, "-m", "vbstudy")  # of this tree
WAYS = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import nn as n
from torch.nn import Conv2d
from torch.nn import Conv2d as C
from torch.nn.modules.conv import Conv1d
a = torch.nn.Conv2d(1, 2, 3)
b = nn.Conv2d(1, 2, 3)
c = n.Conv2d(1, 2, 3)
d = Conv2d(1, 2, 3)
e = C(1, 2, 3)
f = Conv1d(1, 2, 3)
g = F.conv2d(x, w)
Layer = nn.ConvTranspose2d
h = Layer(1, 2, 3)
"""
WAYS_N = 8  # lines of it that use a convolution
NOT_TORCH = "import mylayers\na = mylayers.Conv2d(1, 2, 3)\nb = table.median()\n"


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-bench-") as folder:
        root = Path(folder) / "torch"
        lines = _copy(root)
        report(f"{lines:,} lines, {runs} times")
        python = walk(root).python
        _lint(root, python)
        pairs = [(_lint(root, python), _parse(root, python)) for _ in range(runs)]
        rates = [lines / ours / 1000 for ours, _ in pairs]
        what = f"thousands of lines linted a second, one core ({lines:,} lines)"
        rows = [
            Row.of(what, rates, "k", name=name, at_least=LINES_A_SECOND),
            Row.of("time of linting : ast.parse of the same files", [a / b for a, b in pairs]),
        ]
        peer = shutil.which(PEER)
        if peer is None:
            report(f"{PEER} is not on the PATH: not compared with it")
            return rows
        return rows + _beside(peer, root, runs, Path(folder), report)


def _beside(peer: str, root: Path, runs: int, folder: Path, report: Callable[[str], None]) -> list[Row]:
    scan = [*VBSTUDY, "-q", "scan", "--only", "lint", str(root)]
    theirs = [sys.executable, peer, str(root)]
    commands = {"one": [*scan, "--jobs", "1"], "all": scan, "theirs": theirs}
    for command in commands.values():
        _command(command)
    report(f"whole commands, {runs} times each, in turns")
    times = [{key: _command(command) for key, command in commands.items()} for _ in range(runs)]
    ways, other = folder / "ways.py", folder / "other.py"
    ways.write_text(WAYS)
    other.write_text(NOT_TORCH)
    found = {
        "ours": (_ours(ways), _ours(other)),
        "torchdetscan": (_theirs(ways, peer), _theirs(other, peer)),
    }
    report(
        "; ".join(
            f"{who} finds {a} of {WAYS_N} convolutions, and {b} that are none"
            for who, (a, b) in found.items()
        )
    )
    one, every = ([t["theirs"] / t[key] for t in times] for key in ("one", "all"))
    ours, theirs_ = ([found[who][0] / WAYS_N] for who in ("ours", "torchdetscan"))
    return [
        Row.of("torchdetscan : vbstudy scan --jobs 1, whole commands", one),
        Row.of("torchdetscan : vbstudy scan, whole commands", every, at_least=1.0),
        Row.of(f"convolutions found, of {WAYS_N}: vbstudy", ours, "%", at_least=1.0),
        Row.of(f"convolutions found, of {WAYS_N}: torchdetscan", theirs_, "%"),
    ]


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


def _ours(path: Path) -> int:
    command = [*VBSTUDY, "--json", "scan", "--select", "VB501,VB502", str(path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return len({f["place"]["line"] for p in json.loads(found)["projects"] for f in p["findings"]})


def _theirs(path: Path, peer: str) -> int:
    found = subprocess.run(
        [sys.executable, peer, str(path)], check=True, capture_output=True, text=True
    ).stdout
    return len(
        re.findall(
            r"(?i)conv\w*|median", "\n".join(line for line in found.splitlines() if line.startswith("│"))
        )
    )
