"""Operations whose kernels in torch treat the last elements of a thread's share otherwise than the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vbstudy import exact
from vbstudy.exact.registry import Level

ODD = 100_003


def bits(results: Tensor | Sequence[Tensor]) -> list[list[int]]:
    results = [results] if isinstance(results, Tensor) else results
    return [t.detach().reshape(-1).view(torch.uint8).tolist() for t in results]


def zeros() -> Tensor:
    """Of both signs."""
    draw = torch.Generator().manual_seed(1)
    return torch.where(torch.rand(ODD, generator=draw) < 0.5, 0.0, -0.0)


def two_zeros(first: int, second: int) -> Tensor:
    """The largest elements, with different signs."""
    x = torch.full((ODD,), -1.0)
    x[first], x[second] = 0.0, -0.0
    return x


LATE, EARLY = two_zeros(60_000, 99_990), two_zeros(45_001, 99_000)


def gradient(loss: Callable[..., Tensor], residual: float) -> Callable[[], Tensor]:
    def of() -> Tensor:
        draw = torch.Generator().manual_seed(2)
        x = (torch.randn(ODD, generator=draw) * residual).requires_grad_()
        return torch.autograd.grad(loss(x, torch.zeros(ODD)), x)[0]

    return of


def not_numbers() -> Tensor:
    x = torch.full((ODD,), torch.nan, requires_grad=True)
    return torch.autograd.grad(F.hardtanh(x).sum(), x)[0]


CASES: dict[str, Callable[[], Tensor | Sequence[Tensor]]] = {
    "smooth_l1_loss": gradient(lambda x, y: F.smooth_l1_loss(x, y, beta=1 / 9), 0.04),
    "huber_loss": gradient(lambda x, y: F.huber_loss(x, y, delta=0.3), 0.4),
    "max": LATE.max,
    "min": (-LATE).min,
    "aminmax": lambda: [*LATE.aminmax(), *(-LATE).aminmax()],
    "amax": EARLY.amax,
    "amax of the one dimension": lambda: EARLY.amax(0),
    "amax of all dimensions": lambda: EARLY[:, None].amax((0, 1)),
    "amin": (-EARLY).amin,
    "maximum": lambda: torch.maximum(zeros(), -zeros()),
    "minimum": lambda: torch.minimum(zeros(), -zeros()),
    "clamp": lambda: zeros().clamp(-zeros(), -zeros()),
    "clamp of one bound": lambda: [zeros().clamp(min=-zeros()), zeros().clamp(max=-zeros())],
    "clamp in place": lambda: zeros().clamp_(min=-zeros()),
    "maximum into a tensor": lambda: torch.maximum(zeros(), -zeros(), out=torch.empty(ODD)),
    "fmod": lambda: torch.full((ODD,), -0.5).fmod(1e-40),
    "remainder": lambda: torch.full((ODD,), -0.5).remainder(torch.full((ODD,), 1e-40)),
    "hardtanh": not_numbers,
    "lerp": lambda: torch.lerp(torch.ones(ODD), -zeros(), torch.ones(ODD)),
    "lerp in float64": lambda: torch.lerp(
        torch.ones(ODD).double(), -zeros().double(), torch.ones(ODD).double()
    ),
}


@pytest.mark.parametrize("level", ["machine", "threads"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_differs_at_the_end_of_a_share_has_the_same_bits_on_any_thread_count(
    case: Callable[[], Tensor | Sequence[Tensor]], level: Level
) -> None:
    found = []
    with exact.mode(level=level):
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(bits(case()))
    assert found[1:] == found[:1] * 2


def test_they_pass_strict_mode_in_float32() -> None:
    for name, case in CASES.items():
        if "float64" not in name:
            with exact.mode(strict=True):
                case()
                assert exact.coverage().below == {}


@pytest.mark.parametrize("limit", [1.0, 0.3])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss"])
def test_gradients_of_losses_with_a_limit_are_those_of_float64(
    name: str, reduction: str, limit: float
) -> None:
    inputs = torch.randn(2, 7, 301, generator=torch.Generator().manual_seed(3))
    inputs[0, 0], inputs[1, 1] = torch.inf, -torch.inf

    def gradients(inputs: Tensor) -> tuple[Tensor, ...]:
        x, y = inputs.requires_grad_()
        limited = {"beta" if name == "smooth_l1_loss" else "delta": limit}
        loss = getattr(F, name)(x, y, reduction=reduction, **limited)
        return torch.autograd.grad(loss, (x, y), torch.ones_like(loss))

    right = gradients(inputs.double())
    with exact.mode():
        for ours, other in zip(gradients(inputs), right, strict=True):
            torch.testing.assert_close(ours, other.float(), rtol=1e-6, atol=1e-7)


def test_normal_numbers_with_tensors_of_means_and_deviations_are_scaled_draws_of_normal() -> None:
    mean, spread = torch.randn(1000, 1), torch.rand(40)
    with exact.mode(strict=True):
        torch.manual_seed(1)
        drawn = torch.empty(1000, 40).normal_()
        column = torch.empty(1000, 1).normal_()
        torch.manual_seed(1)
        assert torch.equal(torch.normal(mean, spread), drawn * spread + mean)
        assert torch.equal(torch.normal(mean, 2.0), column * 2 + mean)
        torch.manual_seed(1)
        into = torch.normal(0.5, spread.expand(1000, 40), out=torch.empty(0))
        assert torch.equal(into, drawn * spread + 0.5)
        with pytest.raises(RuntimeError, match="std >= 0"):
            torch.normal(0.0, -spread)
