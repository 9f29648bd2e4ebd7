"""A network of Keras, trained with the fixed pools of exact mode. As a program:

    python -m tests.vbstudy.exact.keras_training MODEL

prints the hash of the weights after five steps."""

from __future__ import annotations

import sys

import numpy as np

from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training.training import hash_arrays
from guest.workloads import MODELS
from tests.vbstudy.exact.training import DATA
from vbstudy import exact

STEPS, BATCH = 5, 32


def main(model: str) -> None:
    exact.enable_tensorflow()
    data = datasets.load(DATA[MODELS[model].kind])
    spec = WorkloadSpec(
        name=model,
        framework=Framework.TENSORFLOW,
        model=model,
        dataset=data.info.name,
        epochs=1,
        batch_size=BATCH,
        learning_rate=0.05,
        optimizer=Optimizer.SGD,
        momentum=0.9,
        weight_decay=0.0,
    )
    seeds = Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1)
    backend = workloads.build(spec, data.info, seeds, False)
    order = np.random.default_rng(0)
    for _ in range(STEPS):
        chosen = order.choice(len(data.train.y), BATCH, replace=False)
        backend.train_step(data.train.x[chosen], data.train.y[chosen])
    sys.stdout.write(hash_arrays(backend.weights()))


if __name__ == "__main__":
    main(sys.argv[1])
