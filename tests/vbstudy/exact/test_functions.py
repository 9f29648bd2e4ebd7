"""Functions of one element at level machine: how far from the true values, and the same bits everywhere."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.vbstudy.exact.functions import CASES, Library, errors, inputs, of_all_binades
from vbstudy import exact
from vbstudy.exact import compiled, first_call

BATTERY = Path(__file__).with_name("functions_battery.cpp")
HASHES = (Path(__file__).parents[2] / "golden" / "functions-battery.txt").read_text("utf-8")
STEP = 200_003  # every so many'th float32
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38)
TWO_ROUNDINGS = {"rsqrt", "pow_number -0.5"}  # a root and a division of float32, as torch has it


def _of_this_cpu() -> list[str]:
    if platform.machine() == "aarch64":
        return ["neon"]
    flags = Path("/proc/cpuinfo").read_text("utf-8").split()
    return ["avx2"] + ["avx512"] * ("avx512dq" in flags and "avx512vl" in flags)


def battery(folder: Path, compiler: list[str], instructions: str, step: int, by: tuple[str, ...] = ()) -> str:
    source = Path(compiled.__file__).parent / "arithmetic"
    flags = [flag for flag in compiled.ARITHMETIC_FLAGS if flag not in ("-shared", "-fPIC")]
    program = folder / "battery"
    command = [
        *compiler,
        *flags,
        *compiled.INSTRUCTIONS[instructions],
        f"-I{source}",
        str(BATTERY),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True, timeout=300)
    return subprocess.run(
        [*by, str(program), str(step)], check=True, capture_output=True, text=True, timeout=1200
    ).stdout


@pytest.mark.needs("studies")
@pytest.mark.parametrize("instructions", _of_this_cpu())
def test_every_function_optimizer_and_draw_has_the_committed_bits(tmp_path: Path, instructions: str) -> None:
    assert battery(tmp_path, [os.environ.get("CXX", "g++")], instructions, STEP) == HASHES


@pytest.mark.needs("portable")
def test_the_bits_are_those_of_aarch64_and_of_clang(tmp_path: Path) -> None:
    here = battery(tmp_path, ["g++"], _of_this_cpu()[-1], 5003)
    arm = ["aarch64-linux-gnu-g++", "-static"]
    assert battery(tmp_path, arm, "neon", 5003, by=("qemu-aarch64",)) == here
    assert battery(tmp_path, [shutil.which("clang++") or "clang++"], _of_this_cpu()[-1], 5003) == here


@pytest.fixture(scope="module")
def library() -> Library:
    first_call.settle()  # or torch's results, which ours are compared with, can be inaccurate
    return Library(compiled.arithmetic(_of_this_cpu()[-1]))


@pytest.mark.needs("studies")
@pytest.mark.parametrize("name", CASES)
def test_results_are_correctly_rounded_but_for_ties_and_no_worse_than_torch(
    library: Library, name: str
) -> None:
    case = CASES[name]
    x = inputs(case, 10_007)
    error = errors(case, library(name, x, case.numbers), x).max()
    assert error < (1.5 if name in TWO_ROUNDINGS else 0.505)
    torchs = errors(case, case.torch(*map(torch.from_numpy, x)).numpy(), x).max()
    assert error < max(torchs, 0.505) + (name in TWO_ROUNDINGS) * 0.01


def test_whatever_is_not_a_number_is_the_same_one(library: Library) -> None:
    x = np.concatenate([of_all_binades(1_000_003), np.array(SPECIAL, np.float32)])
    for name, case in CASES.items():
        for y in (x, -x):
            found = library(name, (x, y)[: case.inputs], case.numbers)
            assert set(found[np.isnan(found)].view(np.uint32)) <= {0x7FC00000}, name


def test_powers_of_special_numbers_are_those_of_c(library: Library) -> None:
    values = np.array(
        [*SPECIAL, 0.5, -0.5, 2, -2, 3, -3, 2.0**23 + 1, -(2.0**23) - 1, 2.0**24, 1e30], np.float32
    )
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    found = library("pow", (x, y), ())
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected) & ~np.isnan(expected))


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    with exact.mode(level="machine"):
        yield


OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "logsigmoid": torch.nn.functional.logsigmoid,
    "pow": lambda x: torch.pow(x.abs(), 1.7),
    "exponents": lambda x: torch.pow(1.7, x),
    "alpha": lambda x: x.add(x, alpha=0.3),
    "lerp": lambda x: torch.lerp(x, x * x, 0.2),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 9, value=0.3),
    "elu_backward": lambda x: torch.ops.aten.elu_backward(x, 1.0, 1.0, 1.0, False, x),
}


CONTIGUOUS = {"logsigmoid", "exponents"}  # torch's results are, whatever the input


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", OPERATIONS)
def test_layout_and_threads_do_not_show_in_the_bits(name: str) -> None:
    x = torch.empty(300, 401).uniform_(-4, 4)
    of, threads = OPERATIONS[name], torch.get_num_threads()
    expected = of(x)
    try:
        torch.set_num_threads(3)
        assert torch.equal(of(x), expected)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(of(x.t()), expected.t())
    assert of(x.t()).stride() == ((300, 1) if name in CONTIGUOUS else (1, 401))
    assert torch.equal(of(x[:, 1::3]), expected[:, 1::3])
    assert torch.equal(of(x[7]), expected[7])
    assert torch.equal(of(x[:0]), expected[:0])


@pytest.mark.usefixtures("machine")
def test_operands_that_do_not_lie_alike_give_the_same_bits() -> None:
    numbers = torch.empty(2, 7, 1203).uniform_(-4, 4)
    operands = [numbers, numbers[:, :1].expand_as(numbers), numbers[:, :, :1].expand_as(numbers)]
    operands += [numbers[0, 0, 0].expand_as(numbers), numbers.transpose(1, 2).contiguous().transpose(1, 2)]
    operands.append(torch.stack((numbers, numbers), -1)[..., 0])
    for a, b in itertools.product(operands, repeat=2):
        expected = torch.hypot(a.contiguous(), b.contiguous())
        assert torch.equal(torch.hypot(a, b), expected)
        assert torch.equal(torch.atan2(b, a), torch.atan2(b.contiguous(), a.contiguous()))
        for given in (torch.empty(2, 1203, 7).transpose(1, 2), torch.empty(2, 7, 2406)[..., ::2]):
            assert torch.equal(torch.hypot(a, b, out=given), expected)
        for of_itself in (a.clone(), torch.stack((a, a), -1)[..., 0]):
            assert torch.equal(of_itself.lerp_(b, 0.2), torch.lerp(a.contiguous(), b.contiguous(), 0.2))


@pytest.mark.usefixtures("machine")
def test_results_go_in_place_into_given_tensors_and_over_broadcast_ones() -> None:
    x, y = torch.randn(30, 17), torch.randn(17)
    expected, to = torch.exp(x), torch.empty(0)
    assert torch.exp(x, out=to) is to
    assert torch.equal(to, expected)
    assert torch.equal(x.clone().exp_(), expected)
    assert torch.equal(torch.atan2(x, y), torch.atan2(x, y.expand(30, 17).contiguous()))
    strided = torch.zeros(30, 34)
    torch.exp(x, out=strided[:, ::2])
    assert torch.equal(strided[:, ::2], expected)
    assert not strided[:, 1::2].any()


@pytest.mark.usefixtures("machine")
def test_uniform_numbers_are_torchs_draws_rounded_once() -> None:
    low, high = (np.float32(x) for x in (-0.3, 0.1))
    y, strided = torch.empty(1000), torch.empty(50, 20).t()
    torch.manual_seed(0)
    draws = [Fraction(x) for x in torch.rand(1000).tolist()]
    torch.manual_seed(0)
    y.uniform_(-0.3, 0.1)
    after = torch.rand(1)
    for found, draw in zip(y.numpy(), draws, strict=True):
        exactly = draw * Fraction(float(high - low)) + Fraction(float(low))
        neighbours = (np.nextafter(found, np.float32(x)) for x in (-1, 1))
        error = abs(Fraction(float(found)) - exactly)
        assert all(error <= abs(Fraction(float(other)) - exactly) for other in neighbours)
    torch.manual_seed(0)
    assert torch.equal(strided.uniform_(-0.3, 0.1).t().flatten(), y)
    assert torch.equal(torch.rand(1), after)


@pytest.mark.usefixtures("machine")
def test_other_types_stay_torchs() -> None:
    x = torch.rand(40, dtype=torch.float64)
    whole = torch.arange(1, 5)
    with_machine = (
        torch.exp(x),
        torch.pow(x, 2.5),
        torch.log(whole),
        torch.exp(x.bfloat16()),
        torch.exp(x * 1j),
    )
    exact_types = [t.dtype for t in with_machine]
    assert exact_types == [torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.complex128]
    assert torch.allclose(with_machine[0].log(), x)
    assert torch.pow(x.float(), torch.tensor(2, dtype=torch.float64)).dtype == torch.float32


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("compute", "error"),
    [
        (lambda x: torch.lerp(x, torch.tensor(1.0, dtype=torch.float64), 0.3), "expected dtype float"),
        (lambda x: torch.sub(x, torch.tensor(True), alpha=2), "with a bool tensor"),
        (lambda x: torch.rsub(torch.tensor(True), x, alpha=2), "with a bool tensor"),
        (lambda x: torch.add(x, x, alpha=False), "Boolean alpha"),
        (lambda x: torch.addcdiv(x, torch.tensor(1), torch.tensor(2)), "Integer division"),
    ],
    ids=["lerp", "sub", "rsub", "add", "addcdiv"],
)
def test_types_that_torch_refuses_are_refused(
    compute: Callable[[torch.Tensor], torch.Tensor], error: str
) -> None:
    with pytest.raises(RuntimeError, match=error):
        compute(torch.rand(3))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "elu", "softplus", "logsigmoid", "tanh", "sigmoid"])
def test_gradients_are_those_of_float64(name: str) -> None:
    of = getattr(torch.nn.functional, name)
    x = torch.linspace(-8, 8, 999, requires_grad=True)
    double = x.detach().double().requires_grad_()
    of(x).sum().backward()
    of(double).sum().backward()
    assert x.grad is not None
    assert double.grad is not None
    assert (x.grad - double.grad).abs().max() < 3e-7


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_probabilities_is_that_of_float64(reduction: str) -> None:
    x = torch.linspace(0, 1, 20_001)
    target, weight = x.flip(0), x + 1
    of = torch.nn.functional.binary_cross_entropy
    found = of(x, target, weight, reduction=reduction)
    assert torch.allclose(
        found.double(), of(x.double(), target.double(), weight.double(), reduction=reduction), rtol=1e-6
    )
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        of(x + 1, target)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
        (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": 0.01, "maximize": True}),
        (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.01}),
    ],
)
def test_fused_and_plain_optimizers_take_the_same_steps(
    optimizer: Callable[..., torch.optim.Optimizer], settings: dict[str, Any]
) -> None:
    def trained(**form: bool) -> list[torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        weights = [
            torch.randn(size, generator=draw).requires_grad_() for size in ((37, 5), (100,), (64, 33), (3,))
        ]
        steps = optimizer(weights, **settings, **form)
        for _ in range(10):
            for w in weights:
                w.grad = torch.randn(w.shape, generator=draw) / 10
            steps.step()
        return weights

    for plain, fused in zip(trained(foreach=False), trained(fused=True), strict=True):
        assert torch.equal(plain, fused)


def _draws() -> list[torch.Tensor]:
    torch.manual_seed(3)
    own = torch.Generator().manual_seed(5)
    sizes = [torch.randn(n) for n in (7, 16, 1000, 3)]
    made = [
        torch.empty(37).normal_(2, 3),
        torch.empty(40, 2)[:, :1].normal_(),
        torch.randn(33, generator=own),
    ]
    return [*sizes, *made, torch.randn(1), torch.rand(5), torch.rand(5, generator=own)]


def test_normal_numbers_come_from_torchs_draws_in_its_order() -> None:
    torchs = _draws()
    with exact.mode(level="machine"):
        ours = _draws()
    for a, b in zip(torchs, ours, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=4e-6)
    assert torch.equal(torchs[-1], ours[-1])
    assert torch.equal(torchs[-2], ours[-2])
