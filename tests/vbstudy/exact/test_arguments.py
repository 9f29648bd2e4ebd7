"""Arguments at the limits of what operations take, at level machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vbstudy import exact
from vbstudy.exact.errors import ExactError


def outputs_and_gradients(convolve: Callable[..., torch.Tensor], *shapes: Any, **options: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]
    y = convolve(*inputs, **options)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), inputs)]


@pytest.mark.parametrize("stride", [(200, 1), (200, 2), (1, 200), (200, 200)])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_a_convolution_whose_stride_passes_over_the_image_reads_zeros(
    stride: tuple[int, int], kernel: int, last: bool
) -> None:
    padding = tuple(90 if step == 200 else 0 for step in stride)

    def both_ways() -> Any:
        def convolve(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            x = x.contiguous(memory_format=torch.channels_last) if last else x
            return F.conv2d(x, w, b, stride, padding)

        return outputs_and_gradients(convolve, (2, 3, 4, 40), (4, 3, kernel, min(kernel, 3)), (4,))

    usual = both_ways()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with exact.mode():
            before = exact.coverage().computed
            for ours, torchs in zip(both_ways(), usual, strict=True):
                torch.testing.assert_close(ours, torchs)
            assert exact.coverage().computed > before


def test_a_convolution_of_many_places_keeps_little_memory_for_the_next_one() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    x, w = torch.randn(1, 29, 8_000, 19), torch.randn(8, 29, 3, 3)
    with exact.mode():
        F.conv2d(x[:, :, :9], w)
        before = resident_bytes()
        y = F.conv2d(x, w)  # rows of 17 places: by packed columns
        assert resident_bytes() - before < 60_000_000
        assert torch.equal(y[:, :, 3_900:3_909], F.conv2d(x[:, :, 3_900:3_911], w))


def test_a_transposed_convolution_of_one_tap_shifts_by_its_padding() -> None:
    def both_ways() -> Any:
        options = {"padding": 1, "output_padding": 2, "dilation": 3}
        return outputs_and_gradients(F.conv_transpose2d, (2, 8, 16, 16), (8, 8, 1, 1), **options)

    usual = both_ways()
    with exact.mode():
        for ours, torchs in zip(both_ways(), usual, strict=True):
            torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((5, 5), (5, 5), {}),
        ((1, 1), (3, 3), {"padding": 1}),
        ((2, 2), (3, 3), {"padding": 1, "stride": 2}),
        ((5, 3), (3, 2), {"dilation": 2}),
        ((3, 4), (1, 2), {"stride": (4, 3)}),
        ((4, 3), (2, 3), {"groups": 2, "padding": (0, 1), "stride": 9}),
        ((4, 4), (4, 4), {"groups": 2}),
        ((2, 3, 4), (2, 3, 4), {}),
    ],
)
def test_the_gradient_of_an_input_with_an_output_of_one_place_is_a_product_over_the_outputs(
    image: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any], last: bool
) -> None:
    convolve = F.conv2d if len(image) == 2 else F.conv3d
    groups = options.get("groups", 1)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn((7, 12, *image), generator=draw)
    if last:
        x = x.contiguous(memory_format=torch.channels_last if len(image) == 2 else torch.channels_last_3d)
    w = torch.randn((600, 12 // groups, *kernel), generator=draw)
    g = torch.randn((7, 600) + (1,) * len(image), generator=draw)

    def gradient() -> torch.Tensor:
        (found,) = torch.autograd.grad(convolve(x.requires_grad_(), w, **options), x, g)
        return found

    usual = gradient()
    seen = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with exact.mode(strict=True):
            seen.append(gradient())
    assert torch.equal(*seen)
    torch.testing.assert_close(seen[0], usual, rtol=1e-4, atol=1e-4)
    if image == kernel:
        with exact.mode():
            parts = [g[:, own].flatten(1) @ w[own].flatten(1) for own in torch.arange(600).chunk(groups)]
        assert torch.equal(seen[0], torch.cat(parts, 1).view(x.shape))


def test_a_product_of_few_numbers_has_the_bits_of_the_same_rows_among_many() -> None:
    draw = torch.Generator().manual_seed(0)
    x, w, b = (torch.randn(shape, generator=draw) for shape in ((3000, 5), (4, 5), (4,)))
    with exact.mode(strict=True):
        together = F.linear(x, w, b)
        pairs = [F.linear(x[i : i + 2], w, b) for i in range(0, 3000, 2)]
        each = torch.bmm(x.view(-1, 2, 5), w.t().expand(1500, 5, 4)) + b
    assert torch.equal(torch.cat(pairs), together)
    assert torch.equal(each.view(3000, 4), together)


def test_a_padded_image_of_more_places_than_an_int_counts_is_left_to_torch() -> None:
    def convolve() -> torch.Tensor:
        return F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 1, 1), stride=40_000, padding=40_000)

    usual = convolve()
    with exact.mode():
        assert torch.equal(convolve(), usual)
        assert exact.coverage().below == {"_convolution": 1}


def test_of_elements_that_are_copied_to_one_place_the_last_stays() -> None:
    places = torch.arange(300_000) * 31 % 1000
    values = torch.arange(300_000.0)
    last = torch.zeros(1000)
    last[places[-1000:]] = values[-1000:]
    torch.set_num_threads(3)
    with exact.mode(strict=True):
        for _ in range(5):
            assert torch.equal(torch.zeros(1000).index_copy(0, places, values), last)
            assert torch.equal(torch.zeros(1000, 1).index_copy_(0, places, values[:, None])[:, 0], last)
        assert exact.coverage().below == {}


def test_an_output_of_another_type_is_treated_as_by_torch() -> None:
    x = torch.randn(100, 100)
    usual = torch.sum(x, 0, out=torch.empty(100, dtype=torch.float64))
    with exact.mode():
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float"):
            torch.mm(x, x, out=torch.empty(100, 100, dtype=torch.float64))
        found = torch.sum(x, 0, out=torch.empty(100, dtype=torch.float64))
    torch.testing.assert_close(found, usual, rtol=1e-12, atol=1e-12)


def test_weights_and_paddings_that_do_not_fit_raise_torchs_own_errors() -> None:
    with exact.mode():
        with pytest.raises(RuntimeError, match="Expected weight to be of same shape as normalized_shape"):
            F.layer_norm(torch.ones(2, 3, 4), (3, 4), torch.ones(12))
        with pytest.raises(RuntimeError, match="Expected bias to be of same shape as normalized_shape"):
            F.layer_norm(torch.ones(2, 3, 4), (3, 4), None, torch.ones(4, 3))
        half = torch.full((3,), 0.5)
        for target in (half * 4, half * float("nan")):
            with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
                F.binary_cross_entropy(half, target)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            F.binary_cross_entropy(half, half, weight=torch.ones(2, 3))
        with pytest.raises(ValueError, match="must either both be None or neither be None"):
            F.batch_norm(torch.ones(5, 4), torch.zeros(4), None, training=True)
        with pytest.raises(RuntimeError, match="Bad in-place call"):
            torch.zeros(1, 4).addmm_(torch.ones(3, 2), torch.ones(2, 4))
        with pytest.raises(RuntimeError, match="Expected a non-complex scalar as the order of norm"):
            torch.linalg.vector_norm(half, 2 + 0j)
        with pytest.raises(RuntimeError, match="output padding must be smaller"):
            F.conv_transpose2d(torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3), output_padding=1)


def test_elu_in_place_with_a_negative_slope_has_torchs_error_in_its_gradient() -> None:
    x = torch.randn(5, requires_grad=True)
    with exact.mode():
        y = F.elu_(x * 1, alpha=-1.0)
        with pytest.raises(RuntimeError, match="with a negative slope which is not supported"):
            y.sum().backward()
        F.elu_(x * 1, alpha=0.5).sum().backward()
        F.elu(x, alpha=-1.0).sum().backward()
        assert not exact.coverage().below


def test_single_numbers_of_float64_are_not_rounded_before_they_are_computed_with() -> None:
    near, tiny = torch.tensor(1 + 1e-9, dtype=torch.float64), torch.tensor(1e-60, dtype=torch.float64)
    with exact.mode():
        assert torch.log(near, out=torch.empty(())) == pytest.approx(1e-9)
        assert torch.tensor(1.0).sub_(near, alpha=0.5) == pytest.approx(0.5)
        assert torch.zeros(()).addcdiv_(tiny, tiny) == 1


LAID_OUT = {
    "transposed": torch.randn(4, 6, 8).transpose(1, 2),
    "channels last": torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last),
    "every other": torch.randn(4, 6, 16)[..., ::2],
    "expanded": torch.randn(4, 1, 8).expand(4, 6, 8),
}


@pytest.mark.parametrize("layout", LAID_OUT)
@pytest.mark.parametrize("function", [F.logsigmoid, lambda x: 2**x], ids=["logsigmoid", "power"])
def test_results_that_torch_makes_contiguous_are_so(
    function: Callable[[torch.Tensor], torch.Tensor], layout: str
) -> None:
    x = LAID_OUT[layout].requires_grad_()
    usual = function(x)
    with exact.mode(strict=True):
        y = function(x)
        y.view(-1).sum().backward()
    assert y.stride() == usual.stride()
    torch.testing.assert_close(y, usual)


def test_empty_tensors_that_take_these_results_become_contiguous() -> None:
    x, given = LAID_OUT["transposed"].detach(), torch.empty(4, 6, 8).transpose(1, 2)
    with exact.mode(strict=True):
        assert torch.pow(2, x, out=torch.empty(0)).is_contiguous()
        assert torch.equal(torch.pow(2, x, out=given), 2**x)
    assert given.stride() == (48, 1, 8)


@pytest.mark.parametrize("channels", [1, 8])
def test_adaptive_pooling_of_channels_last_is_that_of_contiguous_images(channels: int) -> None:
    images = torch.rand(2, channels, 13, 11)
    last = torch.empty(2, 13, 11, channels).permute(0, 3, 1, 2).copy_(images)
    with exact.mode(strict=True):
        pooled, pooled_last = (F.adaptive_avg_pool2d(x, (5, 4)) for x in (images, last))
    assert torch.equal(pooled, pooled_last)
    assert pooled_last.is_contiguous(memory_format=torch.channels_last)
    assert not exact.coverage().below


@pytest.mark.parametrize("function", [F.leaky_relu, F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink])
def test_strict_mode_passes_functions_of_single_steps(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with exact.mode(strict=True):
        function(torch.randn(50, requires_grad=True)).sum().backward()
    assert not exact.coverage().below


PLACES, START = torch.tensor([1, 0, 2, 2]), torch.tensor([0])


@pytest.mark.parametrize(
    ("name", "refused", "passes"),
    [
        ("index_add", lambda x: x.index_add(0, PLACES, x, alpha=0.3), lambda x: x.index_add(0, PLACES, x)),
        ("add", lambda x: x.add(PLACES[:, None], alpha=0.3), lambda x: x.half() - x.half()),
        ("uniform", lambda x: x.double().uniform_(0, 0.3), lambda x: x.double().uniform_(-1, 1)),
        ("log1p", lambda _: PLACES.log1p(), lambda _: PLACES**2),
        ("lgamma", lambda _: PLACES.lgamma(), lambda _: torch.arange(5, dtype=torch.float32)),
        (
            "embedding_dense_backward",
            lambda x: torch.ops.aten.embedding_dense_backward(x, PLACES, 9, -1, True),
            lambda x: torch.ops.aten.embedding_dense_backward(x, PLACES, 9, -1, False),
        ),
        (
            "_embedding_bag_forward_only",
            lambda x: F.embedding_bag(PLACES, x, START, mode="sum", per_sample_weights=x[:, 0]),
            lambda x: F.embedding_bag(PLACES, x, START, mode="sum"),
        ),
    ],
)
def test_strict_mode_refuses_what_is_rounded_as_the_cpu_has_it(
    name: str, refused: Callable[[torch.Tensor], object], passes: Callable[[torch.Tensor], object]
) -> None:
    x = torch.rand(4, 3)
    with exact.mode(strict=True):
        passes(x)
        assert not exact.coverage().below
        with pytest.raises(ExactError, match=f"aten::{name}.* is at level threads: .* computes it at level"):
            refused(x)
    assert exact.coverage().below == {name: 1}
