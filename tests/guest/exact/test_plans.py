from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 (its usual name)

from guest import exact
from guest.exact.limits import LIMITS
from guest.exact.plans import PLANNERS, Plan, grid, pieces_of
from guest.exact.registry import PIECES


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def everywhere(compute: Callable[[], list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """On one thread and on three, in C++ and in Python."""
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        for compiled in (True, False):
            with exact.mode(compiled=compiled):
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


def test_a_weights_gradient_is_cut_along_its_sum_unless_it_would_be_rounded_again() -> None:
    a, b = torch.empty(64, 4096), torch.empty(4096, 64)
    assert grid(a, b, added=False).depth > 1
    assert grid(a.bfloat16(), b.bfloat16(), added=False).depth == 1
    assert grid(a, b, added=True).depth == 1


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


@given(st.floats(1, 1e15), st.sampled_from((2, 3)), st.integers(0, 10_000))
def test_pieces_are_a_power_of_two_and_no_more_than_there_is_to_cut(
    work: float, root: int, most: int
) -> None:
    pieces = pieces_of(work, 1000, root, most)
    assert pieces & (pieces - 1) == 0
    assert 1 <= pieces <= max(1, min(most, LIMITS["most_pieces"]))
    assert pieces == 1 or work >= 1000 * pieces**root


@given(st.integers(1, 10_000), st.integers(1, 16), st.sampled_from((1, 16)))
def test_the_pieces_of_a_plan_cover_its_size_in_aligned_steps(size: int, pieces: int, align: int) -> None:
    step = Plan(pieces=pieces, size=size, align=align, cuts=()).step()
    assert step % align == 0
    assert -(-size // step) <= pieces


def test_every_way_to_cut_has_a_planner_or_an_engine_of_its_own() -> None:
    own = {"gemm", "sum_out", "contiguous", "contiguous_backward", "lstm"}
    assert set(PIECES.values()) - own <= set(PLANNERS)
