from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vbstudy import exact


def everywhere(compute: Callable[[], list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """On one thread and on three."""
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with exact.mode(level="threads"):
            found.append(compute())
    return found


def one_answer(found: list[list[torch.Tensor]]) -> bool:
    return all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 700), st.booleans())
def test_a_product_of_any_size_has_one_answer(m: int, k: int, n: int, turned: bool) -> None:
    a, b = torch.randn(m, k), torch.randn(n, k).t() if turned else torch.randn(k, n)
    assert one_answer(everywhere(lambda: [torch.mm(a, b), torch.addmm(torch.ones(n), a, b)]))


@settings(max_examples=20)
@given(
    st.integers(1, 100),
    st.integers(500, 9000),
    st.integers(1, 100),
    st.sampled_from((torch.float32, torch.float64)),
)
def test_a_product_that_is_a_long_sum_has_one_answer(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b = torch.randn(k, m, dtype=dtype).t(), torch.randn(k, n, dtype=dtype)
    found = everywhere(lambda: [torch.mm(a, b), torch.addmm(torch.ones(n, dtype=dtype), a, b)])
    assert one_answer(found)
    torch.testing.assert_close(found[0][0].double(), a.double() @ b.double(), rtol=1e-4, atol=1e-3)


@settings(max_examples=20)
@given(
    batch=st.integers(1, 70),
    channels=st.integers(1, 24),
    outputs=st.integers(1, 40),
    side=st.integers(5, 24),
    width=st.sampled_from((1, 3, 5)),
    stride=st.integers(1, 2),
)
def test_a_convolution_of_any_size_has_one_answer(
    batch: int, channels: int, outputs: int, side: int, width: int, stride: int
) -> None:
    x, w, b = (
        torch.randn(batch, channels, side, side),
        torch.randn(outputs, channels, width, width),
        torch.randn(outputs),
    )

    def both_ways() -> list[torch.Tensor]:
        inputs = [t.clone().requires_grad_() for t in (x, w, b)]
        y = F.conv2d(*inputs, stride=stride)
        return [y.detach(), *torch.autograd.grad(y, inputs, y.detach())]

    assert one_answer(everywhere(both_ways))


@settings(max_examples=20)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=3), st.data())
def test_a_sum_over_any_dimensions_has_one_answer(shape: list[int], data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda d: d % len(shape)))
    x, keep = torch.randn(shape), data.draw(st.booleans())
    assert one_answer(everywhere(lambda: [x.sum(dims, keep), x.mean(dims, keep), x.sum()]))


@pytest.mark.parametrize("rows", [(4, 2048), (2048, 4), (1, 2048), (2048,)])
def test_a_layer_norms_gradients_are_right_whichever_dimension_is_largest(rows: tuple[int, ...]) -> None:
    x, w, g = torch.randn(*rows, 64), torch.randn(64), torch.randn(*rows, 64)

    def gradients(dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = [t.to(dtype).requires_grad_() for t in (x.clone(), w.clone())]
        return list(torch.autograd.grad(F.layer_norm(inputs[0], (64,), inputs[1]), inputs, g.to(dtype)))

    found = everywhere(lambda: gradients(torch.float32))
    assert one_answer(found)
    truth = gradients(torch.float64)
    torch.testing.assert_close([t.double() for t in found[0]], truth, rtol=1e-4, atol=1e-3)


# The bits show how many pieces an operation has: torch's own operations compute the same on one thread.


def in_exact_mode(compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    (first,), *others = everywhere(lambda: [compute()])
    torch.set_num_threads(1)
    assert one_answer([[first], *others])
    return first


def tree_sum(parts: list[torch.Tensor]) -> torch.Tensor:
    while len(parts) > 1:
        parts = [first + second for first, second in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@pytest.mark.parametrize(("depth", "pieces"), [(256, 1), (2048, 2), (4096, 4)])
def test_a_weights_gradient_is_the_sum_of_pieces_of_its_sum(depth: int, pieces: int) -> None:
    a, b = torch.randn(64, depth), torch.randn(depth, 64)
    found = in_exact_mode(lambda: torch.mm(a, b))
    parts = [x @ y for x, y in zip(a.chunk(pieces, 1), b.chunk(pieces), strict=True)]
    assert torch.equal(found, tree_sum(parts))


def test_a_product_whose_partial_sums_would_be_rounded_again_is_not_cut_along_its_sum() -> None:
    a, b = torch.randn(64, 4096).bfloat16(), torch.randn(4096, 64).bfloat16()
    found = in_exact_mode(lambda: torch.mm(a, b))
    assert torch.equal(found, torch.mm(a, b))


def test_sums_in_half_precision_whose_parts_would_overflow_are_not_cut() -> None:
    sign, long = torch.ones(64, 1, 1, 1).half(), torch.ones(600_000, 2).half()
    sign[32:], long[300_000:] = -1, -1
    images = torch.randn(64, 16, 48, 48).half()

    def of_bias(layer: torch.nn.Module) -> torch.Tensor:
        y = layer.half()(images)
        (found,) = torch.autograd.grad(y, layer.get_parameter("bias"), 2 * sign.expand_as(y))
        return found

    for compute in (
        long.sum,
        lambda: long.sum(0),
        lambda: of_bias(torch.nn.Conv2d(16, 16, 3, padding=1)),
        lambda: of_bias(torch.nn.GroupNorm(2, 16)),
    ):
        assert not in_exact_mode(compute).any()


@pytest.mark.parametrize(("batch", "pieces"), [(8, 1), (64, 2), (128, 4)])
def test_a_convolutions_weight_gradient_is_the_sum_of_those_of_groups_of_samples(
    batch: int, pieces: int
) -> None:
    x, w, g = torch.randn(batch, 16, 20, 20), torch.randn(16, 16, 3, 3), torch.randn(batch, 16, 18, 18)

    def gradient(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        weight = w.clone().requires_grad_()
        (found,) = torch.autograd.grad(F.conv2d(inputs, weight), weight, outputs)
        return found

    found = in_exact_mode(lambda: gradient(x, g))
    parts = [gradient(*part) for part in zip(x.chunk(pieces), g.chunk(pieces), strict=True)]
    assert torch.equal(found, tree_sum(parts))


@pytest.mark.parametrize(("size", "pieces"), [(4000, 1), (8000, 2), (32000, 4)])
def test_a_sum_is_the_sum_of_those_of_its_pieces(size: int, pieces: int) -> None:
    x = torch.randn(size, 100)
    found = in_exact_mode(x.sum)
    parts = [part.sum() for part in x.chunk(pieces)]
    assert torch.equal(found, tree_sum(parts))
