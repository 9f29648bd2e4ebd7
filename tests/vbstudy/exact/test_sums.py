"""Sums of columns at level machine, as docs/arithmetic.md defines them."""

from __future__ import annotations

import pytest
import torch

from vbstudy import exact


def by_definition(x: torch.Tensor) -> torch.Tensor:
    while len(x) > 1:
        parts = [torch.zeros(x.shape[1:]) for _ in range(0, len(x), 128)]
        for i, row in enumerate(x):
            parts[i // 128] = parts[i // 128] + row
        x = torch.stack(parts)
    return x[0]


@pytest.mark.parametrize("rows", [1, 129, 128 * 128, 128 * 128 + 1, 40_000])
def test_columns_are_summed_by_their_definition(rows: int) -> None:
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(rows))
    with exact.mode():
        layer = torch.nn.LayerNorm(5)
        layer(torch.randn(rows, 5)).backward(x)
        assert torch.equal(x.sum(0), by_definition(x))
    assert layer.bias.grad is not None
    assert torch.equal(layer.bias.grad, by_definition(x))


def test_sums_of_millions_of_equal_numbers_stay_accurate() -> None:
    x = torch.full((4_000_000, 2), 0.1)
    with exact.mode():
        torch.testing.assert_close(x.sum(0), x.double().sum(0).float(), rtol=1e-5, atol=0)


def test_columns_without_rows_give_zeros() -> None:
    layer = torch.nn.LayerNorm(8)
    with exact.mode():
        assert torch.equal(torch.zeros(0, 8).sum(0), torch.zeros(8))
        layer(torch.zeros(0, 8)).sum().backward()
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, torch.zeros(8))
