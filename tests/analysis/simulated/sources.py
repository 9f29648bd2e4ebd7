"""Data of known truth, as runs of a study give them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SIZES = (3, 5, 10, 30)
BLOCK_SD = 0.5  # of the SD of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`shape` gives runs of mean 0 and SD 1; `fails` is the share of trainings that fail beside them, `step`
    the resolution of what is measured, `blocks` the SD between the blocks that runs of all sets share."""

    shape: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    fails: float = 0.0
    step: float = 0.0
    blocks: float = 0.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], shift: float = 0.0) -> np.ndarray:
        values = self.shape(rng, shape) + shift
        return np.round(values / self.step) * self.step if self.step else values

    def sets(self, rng: np.random.Generator, n: int, count: int = 1, shift: float = 0.0) -> list[np.ndarray]:
        """`count` sets of n trainings, run in the same blocks, the last one `shift` higher: the values of
        those that did not fail."""
        values = self.draw(rng, (count, n))
        if shift:
            values[-1] = self.draw(rng, (n,), shift)
        if self.blocks:
            values = (values + self.blocks * rng.normal(size=(1, n))) / math.hypot(1, self.blocks)
        failed = rng.random((count, n)) < self.fails
        return [mine[~lost] for mine, lost in zip(values, failed, strict=True)]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """To the left, with skewness -1: gamma with shape 4, mirrored."""
    return (4 - rng.gamma(4, size=shape)) / 2


SOURCES = {
    "normal": Source(shape=normal),
    # accuracies of 1,000 test samples, in SDs: runs differ by some 0.005, in steps of 0.001
    "discrete": Source(shape=normal, step=0.2),
    "skewed": Source(shape=skewed),
    "failing": Source(shape=normal, fails=0.1),
    "blocks": Source(shape=normal, blocks=BLOCK_SD),
}
