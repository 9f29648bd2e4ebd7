"""Prints hashes of convolutions and products of shapes that are drawn: python -m
tests.vbstudy.exact.drawn_convolutions."""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vbstudy import exact

SHAPES = 60


def drawn(draw: random.Random, generator: torch.Generator) -> Iterator[list[Tensor]]:
    """Results and gradients. The inputs are quotients of integers, which every CPU draws alike."""

    def numbers(*shape: int) -> Tensor:
        return torch.randint(-999, 999, shape, generator=generator).float() / 997

    for _ in range(SHAPES):
        dims = draw.choice([1, 2, 2, 2, 3])
        depthwise, transposed, last = draw.random() < 0.4, draw.random() < 0.3, draw.random() < 0.5
        groups = draw.choice([8, 9, 17, 33, 70] if depthwise else [1, 1, 2])
        inputs = groups if depthwise else groups * draw.choice([3, 8, 20])
        outputs = groups if depthwise else groups * draw.choice([5, 16, 20, 40])
        kernel = [draw.choice([1, 2, 3]) for _ in range(dims)]
        dilation, stride = ([draw.choice([1, 1, 2]) for _ in range(dims)] for _ in range(2))
        padding = [draw.choice([0, 0, 1]) for _ in range(dims)]
        size = [max(d * (k - 1) + 1 - 2 * p, 1) + draw.choice([0, 1, 3, 7])
                for k, d, p in zip(kernel, dilation, padding, strict=True)]  # fmt: skip
        sizes = [(s - 1) * t - 2 * p + d * (k - 1) + 1
                 for s, t, p, d, k in zip(size, stride, padding, dilation, kernel, strict=True)]  # fmt: skip
        if transposed and min(sizes) < 1:
            continue
        x = numbers(draw.choice([1, 2, 7]), inputs, *size)
        if last and dims > 1:
            x = x.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
        w = numbers(*((inputs, outputs // groups) if transposed else (outputs, inputs // groups)), *kernel)
        options = (stride, padding, dilation, transposed, [0] * dims, groups)
        y = torch.convolution(x, w, numbers(outputs), *options)
        backward = torch.ops.aten.convolution_backward
        dx, dw, _ = backward(numbers(*y.shape), x, w, None, *options, [True, True, False])
        yield [y, dx, dw]
    for m, k, n in (
        (1, 512, 10),
        (1, 37, 100),
        (8, 300, 15),
        (3, 3, 3),
        (2, 4, 5),
        (1, 1000, 1),
        (5, 17, 33),
    ):
        a, b = numbers(m, k), numbers(n, k)
        yield [nn.functional.linear(a, b, numbers(n)), torch.bmm(a[None], b.t()[None].contiguous())]


def main() -> None:
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with exact.mode(strict=True):
            for results in drawn(random.Random(1), torch.Generator().manual_seed(1)):
                assert all(math.isfinite(each.sum()) for each in results)
                found.append(b"".join(each.contiguous().numpy().tobytes() for each in results))
    half = len(found) // 2
    assert found[:half] == found[half:]
    sys.stdout.write(f"{hashlib.sha256(b''.join(found)).hexdigest()}\n")


if __name__ == "__main__":
    main()
