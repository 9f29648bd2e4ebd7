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
# The CPU's type, which all vector functions of MKL share: what `mkl_vml_serv_cpu_detect` reads first.
CPU_TYPE = """
import ctypes, os, struct, torch
from vbstudy.exact import first_call

library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
code = ctypes.cast(library.mkl_vml_serv_cpu_detect, ctypes.c_void_p).value
read = code + ctypes.string_at(code, 16).index(bytes.fromhex("8b05"))  # mov eax, [rip + 4 bytes]
kind = ctypes.c_int.from_address(read + 6 + struct.unpack("<i", ctypes.string_at(read + 2, 4))[0])
"""
SETTLED = """
assert kind.value == -1
first_call.settle()
found = kind.value
for dtype in torch.float32, torch.float64:
    for name in "sqrt", "exp", "log", "tanh", "erf", "sin":
        getattr(torch, name)(torch.rand(40_000, dtype=dtype))
        assert kind.value == found >= 0
"""
READ_TOO_EARLY = """
first_call.settle()
x = torch.linspace(0.001, 0.999, 40_000)
right = x.exp()
kind.value = 9  # as it is for a moment where it becomes 5, which stands for AVX-512
print(float(((x.exp() - right) / right).abs().max()))
"""


def printed(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=3600
    ).stdout


@pytest.mark.needs("studies")
def test_exact_mode_makes_it_when_it_is_enabled() -> None:
    assert printed("-c", ENABLED) == "1 torch.float32\n"


@pytest.mark.needs("exact")
def test_no_later_call_of_any_function_changes_what_it_has_found() -> None:
    assert printed("-c", CPU_TYPE + SETTLED) == ""


@pytest.mark.needs("exact")
def test_what_is_read_before_it_is_final_gives_few_correct_bits() -> None:
    assert 1e-5 < float(printed("-c", CPU_TYPE + READ_TOO_EARLY)) < 1e-3


@pytest.mark.needs("exact")
def test_whoever_starts_on_several_threads_gets_the_same_bits() -> None:
    assert printed("-m", "tests.vbstudy.exact.first_calls", "200", "4", "adam", "--settled") == "200\n"
