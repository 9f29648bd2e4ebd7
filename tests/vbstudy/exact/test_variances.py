"""Variances and standard deviations at level machine."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from vbstudy import exact


def on_threads(x: torch.Tensor, threads: int) -> float:
    torch.set_num_threads(threads)
    return x.var().item()


def tuned(seed: int) -> torch.Tensor | None:
    """Numbers whose variance torch rounds to float32 one way on one thread and another way on two: it sums in
    float64, and the thread count shows where that sum is about halfway between two of float32."""
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(seed))
    for i, high in ((0, 0.4), (1, 0.01)):  # the second one in finer steps
        x[1] = 0
        x[i] = low = 0.0
        below = on_threads(x, 1)
        for _ in range(60):
            x[i] = (low + high) / 2
            if float(x[i]) in (low, high):
                break
            low, high = (float(x[i]), high) if on_threads(x, 1) == below else (low, float(x[i]))
        x[i] = low
    for x[1] in (low, high):
        if on_threads(x, 1) != on_threads(x, 2):
            return x
    return None


def test_a_variance_has_the_same_bits_where_torchs_depends_on_the_thread_count() -> None:
    found = next(x for x in map(tuned, range(30)) if x is not None)
    for level in ("machine", "threads"):
        with exact.mode(level=level):  # type: ignore[arg-type]
            assert len({on_threads(found, threads) for threads in (1, 2, 3)}) == 1


OPTIONS: list[dict[str, Any]] = [
    {},
    {"correction": 0},
    {"correction": 2.5},
    {"unbiased": False},
    {"dim": 0},
    {"dim": -1, "keepdim": True},
    {"dim": (0, 2), "correction": 0, "keepdim": True},
    {"dim": (), "correction": None},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_values_and_gradients_are_those_of_float64(name: str, options: dict[str, Any]) -> None:
    dense = torch.randn(7, 600, 9, generator=torch.Generator().manual_seed(1)) + 3

    def outcomes(x: torch.Tensor) -> list[torch.Tensor]:
        found = getattr(torch, name)(x.requires_grad_(), **options)
        found = found if isinstance(found, tuple) else (found,)
        return [*found, *torch.autograd.grad(sum(t.square().view(-1).sum() for t in found), x)]

    for x in (dense, dense.transpose(0, 1), dense[:, ::2]):
        with exact.mode():
            ours = outcomes(x.clone())
            assert exact.coverage().below == {}
        for found, right in zip(ours, outcomes(x.double()), strict=True):
            torch.testing.assert_close(found, right.float(), rtol=1e-5, atol=1e-6)


def test_they_go_into_given_tensors() -> None:
    x, y = torch.randn(9, 70), torch.empty(0)
    with exact.mode():
        assert torch.equal(torch.std(x, dim=1, out=y), x.std(1))
        assert torch.equal(y, x.var(1).sqrt())
        assert exact.coverage().below == {}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
def test_too_few_numbers_have_torchs_answers() -> None:
    cases = [(torch.randn(3, 1), 1), (torch.randn(3, 2), 2), (torch.randn(3, 0), 0), (torch.tensor(2.0), 0)]
    for x, correction in cases:
        usual = torch.std_mean(x, -1, correction=correction)
        with exact.mode():
            found = torch.std_mean(x, -1, correction=correction)
        torch.testing.assert_close(found, usual, equal_nan=True)


@pytest.mark.parametrize("length", [1, 5, 500, 70_001])
@pytest.mark.parametrize("number", [0.1, 1000.1, -3e5, 3e38])
def test_of_equal_numbers_they_are_zero(number: float, length: int) -> None:
    with exact.mode():
        assert torch.full((3, length), number).var(1, correction=0).tolist() == [0, 0, 0]
        assert torch.full((length, 2), number).std(0, correction=0).tolist() == [0, 0]
        assert exact.coverage().below == {}


@pytest.mark.parametrize("mean", [1e3, -1e5])
def test_with_a_large_mean_they_are_as_accurate_as_the_numbers(mean: float) -> None:
    """A mean of float32 is half of its last bit off, as each of the numbers is."""
    x = torch.randn(5, 70_001, generator=torch.Generator().manual_seed(1)) + mean
    right = x.double().var(1)
    last_bit = 2.0 ** (math.frexp(mean)[1] - 24)
    with exact.mode():
        found = x.var(1)
    assert (found - right).abs().max() < (last_bit / 2) ** 2 + 1e-6


FAR = [-140, -100, -60, 60, 70, 126]  # powers of two whose squares are outside float32's range, or nearly so


@pytest.mark.parametrize("length", [2, 300, 70_001])
@pytest.mark.parametrize("power", FAR)
def test_squares_outside_of_float32s_range_do_not_show(power: int, length: int) -> None:
    ones = torch.randn(3, length, generator=torch.Generator().manual_seed(power)).clamp(-1.9, 1.9)
    x = ones * 2.0**power
    with exact.mode():
        found = [torch.std_mean(x, 1), torch.var_mean(x, 1)]
        of_columns = x.t().contiguous().std(0)
    deviations, variances = (t[0] for t in found)
    spacing = 2.0**-149  # of the smallest numbers
    torch.testing.assert_close(deviations.double(), x.double().std(1), rtol=1e-6, atol=spacing / 2)
    right = x.double().var(1)
    torch.testing.assert_close(variances.double(), right.float().double(), rtol=1e-6, atol=spacing)
    assert torch.equal(of_columns, deviations)


def by_definition(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Rows of at most 16 elements: a lane for each."""

    def in_lanes(t: torch.Tensor) -> torch.Tensor:
        t = torch.nn.functional.pad(t, (0, 16 - t.shape[1]))
        while t.shape[1] > 1:
            half = t.shape[1] // 2
            t = t[:, :half] + t[:, half:]
        return t

    x = x * factor
    first, n = x[:, :1], x.shape[1]
    d = x - (first + in_lanes(x - first) / n)
    return (in_lanes(d * d) / (n - 1)).double().sqrt().float()[:, 0] / factor  # each rounded once


@pytest.mark.parametrize(
    ("power", "factor"), [(-100, 96), (-64, 96), (-62, 0), (0, 0), (61, 0), (65, -96), (126, -96)]
)
def test_far_from_one_they_have_the_bits_of_the_definition(power: int, factor: int) -> None:
    near = torch.rand(50, 13, generator=torch.Generator().manual_seed(1)) / 2 + 1
    near[:, ::2] *= -1  # squares between 1/4 and 4
    x = near * 2.0**power
    with exact.mode():
        on_one, on_three = (x.std(1) for _ in map(torch.set_num_threads, (1, 3)))
    assert torch.equal(on_one, by_definition(x, 2.0**factor))
    assert torch.equal(on_one, on_three)


@pytest.mark.parametrize("place", [0, 1, 70_000])
@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
def test_with_a_number_that_is_not_finite_they_are_none(number: float, place: int) -> None:
    x = torch.ones(70_001)
    x[place] = number
    assert x.var().isnan()
    with exact.mode():
        assert x.var().isnan()


SINGLE = {
    "sum": lambda t: t.sum(),
    "sum of a dimension": lambda t: t.sum(0),
    "mean": lambda t: t.mean(),
    "mean, kept": lambda t: t.mean(-1, keepdim=True),
    "norm": lambda t: t.norm(),
    "norm 1": lambda t: torch.linalg.vector_norm(t, 1, dim=0, keepdim=True),
    "variance": lambda t: t.var(correction=0),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_tensor_without_dimensions_is_a_row_of_one_element(name: str) -> None:
    for value in (2.5, -3.0):
        x = torch.tensor(value, requires_grad=True)
        expected = SINGLE[name](x)
        with exact.mode(strict=True):
            computed = SINGLE[name](x)
            gradient = torch.autograd.grad(computed, x)[0]
            assert x.item() == value
        assert torch.equal(computed, expected)
        assert torch.equal(gradient, torch.autograd.grad(expected, x)[0])


@pytest.mark.parametrize("operation", [torch.linalg.inv, torch.linalg.cholesky])
def test_linear_algebra_passes_strict_mode_at_level_threads(operation: Any) -> None:
    with exact.mode(level="threads", strict=True):
        assert torch.equal(operation(torch.eye(3)), torch.eye(3))
