"""A backend for `guest.workloads` without a framework: softmax regression by gradient descent. Its bits
depend on seeds and data alone (no BLAS, so not on threads)."""

from __future__ import annotations

import numpy as np

from guest.datasets.catalogue import DatasetInfo
from guest.records.run import Tier, WorkloadSpec
from guest.workloads import initial

CLASSES = 10


class NumpyBackend:
    """Implements what training needs of `guest.workloads.Backend`."""

    def __init__(self, seed: int, inputs: int, learning_rate: float) -> None:
        self._w = initial(seed, "dense/kernel", (inputs, CLASSES))
        self._b = np.zeros(CLASSES, np.float32)
        self._rate = np.float32(learning_rate)

    def train_step(self, x: np.ndarray, y: np.ndarray) -> float:
        flat = x.reshape(len(x), -1)
        scores = self.logits(x)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y] + 1e-9).mean()
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        self._w -= self._rate * np.einsum("ni,nc->ic", flat, p)
        self._b -= self._rate * p.sum(axis=0)
        return float(loss)

    def logits(self, x: np.ndarray) -> np.ndarray:
        return np.einsum("ni,ic->nc", x.reshape(len(x), -1), self._w) + self._b

    def weights(self) -> dict[str, np.ndarray]:
        return {"dense.weight": self._w.copy(), "dense.bias": self._b.copy()}


def build(
    spec: WorkloadSpec, info: DatasetInfo, initialisation: int, dropout: int, deterministic: bool, tier: Tier
) -> NumpyBackend:
    print("numpy stands in for torch")  # noqa: T201  (as libraries do: it goes to the run's log)
    return NumpyBackend(initialisation, int(np.prod(info.shape)), spec.learning_rate)
