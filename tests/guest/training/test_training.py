from types import SimpleNamespace

import numpy as np

from guest.datasets import datasets
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training import training


def test_the_seconds_of_training_are_those_of_its_steps_without_the_hashing_of_weights(monkeypatch):
    """A step takes 1 s here, a hash 10 s, an evaluation 100 s, and nothing else any time."""
    clock = SimpleNamespace(now=0.0)
    hash_arrays = training.hash_arrays

    def taking(seconds, result):
        clock.now += seconds
        return result

    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(training, "hash_arrays", lambda arrays: taking(10, hash_arrays(arrays)))
    backend = SimpleNamespace(
        train_step=lambda x, y: taking(1, 0.5),
        weights=lambda: {"w": np.zeros(2, np.float32)},
        logits=lambda x: taking(50, np.zeros((len(x), 10), np.float32)),
    )
    spec = WorkloadSpec(
        name="x", framework=Framework.TORCH, model="mlp", dataset="digits", epochs=2, batch_size=32,
        learning_rate=0.1, optimizer=Optimizer.SGD,
    )  # fmt: skip
    data = datasets.load("digits", train_samples=160, test_samples=20)
    seeds = Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1)
    trained = training.train(backend, data, spec, seeds, lambda row: None, lambda step: None)
    assert list(trained.step_hashes) == ["1", "2", "4", "8"]
    assert (trained.train_s, trained.evaluate_s) == (10.0, 200.0)
