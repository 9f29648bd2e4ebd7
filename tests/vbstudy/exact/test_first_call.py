"""MKL's first call is made by one thread, before several could make it at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENABLED = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vbstudy import exact

class Log(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.sqrt.default:
            print(args[0].numel(), args[0].dtype)
        return function(*args, **(kwargs or {}))

with Log():
    exact.enable(level="threads")
"""


def test_exact_mode_makes_it_when_it_is_enabled() -> None:
    done = subprocess.run([sys.executable, "-c", ENABLED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 torch.float32", "1 torch.float64"]


@pytest.mark.needs("exact")
@pytest.mark.parametrize("function", ["sqrt", "exp", "tanh", "erf", "exp.float64", "adam"])
def test_whoever_starts_on_several_threads_gets_the_same_bits(function: str) -> None:
    command = [sys.executable, "-m", "tests.vbstudy.exact.first_calls", "200", "4", function, "--settled"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600)
    assert done.stdout == "200\n"
