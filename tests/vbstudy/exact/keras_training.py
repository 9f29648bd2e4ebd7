"""A network of Keras, trained with the fixed pools of exact mode. As a program:

    python -m tests.vbstudy.exact.keras_training MODEL

prints the hash of the weights after five steps."""

from __future__ import annotations

import sys

import numpy as np

from guest.records.run import Framework, Optimizer
from guest.training.training import hash_arrays
from tests.vbstudy.exact.training import build
from vbstudy import exact

STEPS, BATCH = 5, 32


def main(model: str) -> None:
    exact.enable_tensorflow()
    backend, data = build(model, Optimizer.SGD, framework=Framework.TENSORFLOW)
    order = np.random.default_rng(0)
    for _ in range(STEPS):
        chosen = order.choice(len(data.train.y), BATCH, replace=False)
        backend.train_step(data.train.x[chosen], data.train.y[chosen])
    sys.stdout.write(hash_arrays(backend.weights()))


if __name__ == "__main__":
    main(sys.argv[1])
