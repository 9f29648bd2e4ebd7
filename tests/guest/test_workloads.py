from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training import metrics
from guest.workloads import MODELS, Backend, WorkloadError
from orchestrator.study.networks import MAX_RATE
from tests.needs import at_night

pytestmark = pytest.mark.needs("studies")

SMALL = [name for name in MODELS if name not in ("resnet38", "resnet56", "wrn-28-10")]
DATASET_OF = {"image": "digits", "text": "headlines", "story": "stories"}
WITH_DROPOUT = ["mlp", "lstm", "transformer"]
SEEDS = Seeds(initialisation=1, data_order=2, augmentation=3, dropout=4)


@pytest.fixture(scope="module", autouse=True)
def _frameworks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Both are imported once, quietly: what they warn of while they load is not ours. torch gets one
    thread, because threads that spin on a busy machine take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for framework in Framework:
                workloads.preload(framework)
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


def data_for(model: str) -> datasets.Data:
    return datasets.load(DATASET_OF[MODELS[model]], train_samples=64, test_samples=100)


def build(
    framework: Framework,
    model: str,
    seeds: Seeds = SEEDS,
    *,
    optimizer: Optimizer = Optimizer.SGD,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
    deterministic: bool = False,
) -> Backend:
    info = datasets.info(DATASET_OF[MODELS[model]])
    spec = WorkloadSpec(
        name=model,
        framework=framework,
        model=model,
        dataset=info.name,
        epochs=1,
        batch_size=32,
        learning_rate=learning_rate,
        optimizer=optimizer,
        momentum=0.9 if optimizer is Optimizer.SGD else 0.0,
        weight_decay=weight_decay,
    )
    return workloads.build(spec, info, seeds, deterministic)


def train(backend: Backend, model: str, steps: int) -> list[float]:
    data = data_for(model).train
    return [backend.train_step(data.x[:32], data.y[:32]) for _ in range(steps)]


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return list(first) == list(second) and all(np.array_equal(first[name], second[name]) for name in first)


# What fits what


def test_every_model_fits_the_data_of_its_kind_and_no_other() -> None:
    for model, kind in MODELS.items():
        for name, data in datasets.DATASETS.items():
            if kind == data.kind:
                workloads.check(model, name)
            else:
                with pytest.raises(WorkloadError, match=f"{model} takes {kind} data"):
                    workloads.check(model, name)


def test_a_misfit_names_what_fits() -> None:
    with pytest.raises(WorkloadError, match=r"use digits with lenet1.* or lstm with headlines"):
        workloads.check("lstm", "digits")


def test_an_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(WorkloadError, match="unknown model 'lenet-5': did you mean 'lenet5'"):
        workloads.check("lenet-5", "digits")


def test_free_seeds_must_be_drawn_first() -> None:
    with pytest.raises(WorkloadError, match="must be drawn"):
        build(Framework.TORCH, "lenet1", Seeds(initialisation=1))


# One architecture, two frameworks


@pytest.mark.parametrize(
    "model", [*SMALL, *(at_night("studies", name) for name in MODELS if name not in SMALL)]
)
def test_both_frameworks_start_from_the_same_function(model: str) -> None:
    """The same weights by number, and the same logits: the architectures are one."""
    first, second = (build(framework, model) for framework in Framework)
    torch_count = sum(p.numel() for p in first.model.parameters() if p.requires_grad)
    assert torch_count == sum(int(np.prod(v.shape)) for v in second.model.trainable_variables)
    x = data_for(model).test.x[: 2 if model == "wrn-28-10" else 20]
    ours, theirs = first.logits(x), second.logits(x)
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.shape == (len(x), datasets.info(DATASET_OF[MODELS[model]]).classes)
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(ours).max()


@pytest.mark.parametrize("model", ["lenet5", "cnn-bn", "memn2n"])
@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_both_frameworks_train_the_same_way(model: str, optimizer: Optimizer, decay: float) -> None:
    """Where no dropout comes between: the same losses, step by step, with and without weight decay."""
    losses = [
        train(build(f, model, optimizer=optimizer, learning_rate=0.002, weight_decay=decay), model, 5)
        for f in Framework
    ]
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize(("model", "shape", "parameters"), [
    ("lenet5", (28, 28, 1), 61_706),
    ("resnet20", (32, 32, 3), 269_722),
    ("resnet56", (32, 32, 3), 853_018),
    ("wrn-28-10", (32, 32, 3), 36_479_194),
])  # fmt: skip
def test_parameter_counts_are_the_published_ones(model: str, shape: tuple[int, ...], parameters: int) -> None:
    import torch

    from guest.workloads.torch_models import construct

    info = datasets.info("cifar10" if shape[2] == 3 else "digits")
    with torch.device("meta"):
        network = construct(model, info, torch.Generator("cpu"))
    assert sum(p.numel() for p in network.parameters()) == parameters


# Training


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("model", SMALL)
def test_a_backend_keeps_its_promises(framework: Framework, model: str) -> None:
    """One build a model, because compiling a network takes longest."""
    data = data_for(model)
    backend = build(framework, model, optimizer=Optimizer.ADAM, learning_rate=0.003)
    start = backend.weights()
    kept = {name: value.copy() for name, value in start.items()}

    losses = train(backend, model, 8)
    assert all(isinstance(loss, float) for loss in losses)
    assert losses[-1] < losses[0]
    assert same(start, kept)  # what weights() gave are copies

    trained = backend.weights()
    logits = backend.logits(data.test.x)
    assert same(trained, backend.weights())  # evaluation changes nothing
    assert np.array_equal(logits, backend.logits(data.test.x))  # and draws nothing

    backend.load_weights(start)
    assert same(start, backend.weights())
    assert not np.array_equal(logits, backend.logits(data.test.x))
    backend.load_weights(trained)
    assert np.array_equal(logits, backend.logits(data.test.x))


@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("framework", Framework)
def test_the_largest_rates_of_a_study_file_can_be_trained_with(
    framework: Framework, optimizer: Optimizer
) -> None:
    rates = {"learning_rate": MAX_RATE, "weight_decay": MAX_RATE}
    assert len(train(build(framework, "lenet1", optimizer=optimizer, **rates), "lenet1", 2)) == 2


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("model", ["lenet1", "cnn-bn", *WITH_DROPOUT])
def test_equal_seeds_give_equal_bits(framework: Framework, model: str) -> None:
    runs = []
    for _ in range(2):
        backend = build(framework, model)
        runs.append((train(backend, model, 3), backend.weights()))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("model", [*WITH_DROPOUT[:-1], at_night("studies", WITH_DROPOUT[-1])])
def test_initialisation_and_dropout_have_seeds_of_their_own(framework: Framework, model: str) -> None:
    other_dropout = Seeds(initialisation=1, data_order=2, augmentation=3, dropout=5)
    other_start = Seeds(initialisation=2, data_order=2, augmentation=3, dropout=4)
    base, dropped, started = (build(framework, model, s) for s in (SEEDS, other_dropout, other_start))
    assert same(base.weights(), dropped.weights())
    assert not same(base.weights(), started.weights())
    assert train(base, model, 1) != train(dropped, model, 1)
    # The masks depend on the dropout seed only: with equal weights, another start gives the same loss.
    again = build(framework, model)
    started.load_weights(again.weights())
    assert train(again, model, 1) == train(started, model, 1)


@pytest.mark.parametrize("framework", Framework)
def test_building_a_model_in_between_disturbs_no_dropout(framework: Framework) -> None:
    alone = train(build(framework, "mlp"), "mlp", 2)
    disturbed = build(framework, "mlp")
    losses = train(disturbed, "mlp", 1)
    build(framework, "lstm")
    assert losses + train(disturbed, "mlp", 1) == alone


@pytest.mark.parametrize("framework", Framework)
def test_weights_of_another_model_are_refused(framework: Framework) -> None:
    backend = build(framework, "lenet1")
    with pytest.raises(WorkloadError):
        backend.load_weights(build(framework, "lenet4").weights())
    with pytest.raises(WorkloadError):
        backend.load_weights({})


@pytest.mark.parametrize("framework", Framework)
def test_batchnorm_statistics_belong_to_the_weights(framework: Framework) -> None:
    backend = build(framework, "cnn-bn")
    before = backend.weights()
    train(backend, "cnn-bn", 1)
    moved = {name for name, value in backend.weights().items() if not np.array_equal(value, before[name])}
    assert any("running_var" in name or "moving_variance" in name for name in moved)


@pytest.mark.parametrize("framework", Framework)
def test_logits_do_not_depend_on_what_else_is_evaluated(framework: Framework) -> None:
    """More samples than one internal batch: the first 500 are computed as if they were alone."""
    backend = build(framework, "lenet1")
    x = datasets.load("digits").train.x[:600]
    logits = backend.logits(x)
    assert logits.shape == (600, 10)
    assert np.array_equal(logits[:500], backend.logits(x[:500]))


@pytest.mark.parametrize(("framework", "model"), [("torch", "lstm"), ("torch", "memn2n")])
def test_the_text_models_learn(framework: str, model: str) -> None:
    data = datasets.load(DATASET_OF[MODELS[model]])
    backend = build(Framework(framework), model, optimizer=Optimizer.ADAM, learning_rate=0.01)
    order = np.random.default_rng(0).permutation(len(data.train.y))
    for start in range(0, len(order) - 63, 64):
        batch = order[start : start + 64]
        backend.train_step(data.train.x[batch], data.train.y[batch])
    accuracy = metrics.accuracy(data.test.y, backend.logits(data.test.x).argmax(axis=1))
    assert accuracy > (0.8 if model == "lstm" else 0.6)


# Initial weights and augmentation


def test_initial_weights_follow_their_scheme() -> None:
    dense = workloads.initial(1, "out/kernel", (400, 200))
    assert dense.dtype == np.float32
    assert np.abs(dense).max() <= np.sqrt(6 / 600)
    assert dense.std() == pytest.approx(np.sqrt(2 / 600), rel=0.02)
    convolution = workloads.initial(1, "conv/kernel", (3, 3, 64, 32))
    assert convolution.std() == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.02)
    assert workloads.initial(1, "embedding/embeddings", (500, 50)).std() == pytest.approx(0.1, rel=0.02)
    assert workloads.initial(1, "lstm/bias", (8,)).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert workloads.initial(1, "norm/gamma", (2,)).tolist() == [1, 1]


@pytest.mark.parametrize(("make", "weight"), [
    (lambda nn: nn.Conv1d(2, 3, 2), "weight, of Conv1d,"),
    (lambda nn: nn.GRU(2, 3), "weight_ih_l0, of GRU,"),
    (lambda nn: nn.LSTM(2, 3, num_layers=2), "weight_ih_l1, of LSTM,"),
    (lambda nn: nn.GroupNorm(1, 2), "weight, of GroupNorm,"),
    (lambda nn: nn.ParameterList([nn.Linear(2, 2).weight]), "0, of ParameterList,"),
])  # fmt: skip
def test_a_layer_that_the_seed_would_not_initialise_is_refused_in_torch(make: Any, weight: str) -> None:
    from torch import nn

    from guest.workloads import torch_backend

    with pytest.raises(WorkloadError, match=f"^layer.{weight} gets no initial values from the seed"):
        torch_backend._initialise(nn.ModuleDict({"layer": make(nn), "out": nn.Linear(2, 2)}), 1)


def test_a_layer_with_two_weights_of_one_name_is_refused_in_keras() -> None:
    from keras import Input, Model, layers

    from guest.workloads import keras_backend

    start = Input((5, 4))
    network = Model(start, layers.MultiHeadAttention(2, 3, name="attention")(start, start))
    with pytest.raises(WorkloadError, match="two weights are named attention/kernel"):
        keras_backend._initialise(network, 1)


def test_every_weight_has_a_stream_of_its_own() -> None:
    first = workloads.initial(1, "a/kernel", (50, 50))
    assert np.array_equal(first, workloads.initial(1, "a/kernel", (50, 50)))
    for other in (workloads.initial(2, "a/kernel", (50, 50)), workloads.initial(1, "b/kernel", (50, 50))):
        assert not np.isclose(first, other).any(axis=None) or np.isclose(first, other).mean() < 0.01


@given(st.integers(0, 2**31 - 1), st.integers(1, 5))
@settings(max_examples=20)
def test_augmentation_shifts_and_mirrors_and_no_more(seed: int, count: int) -> None:
    x = np.random.default_rng(seed).normal(size=(count, 28, 28, 3)).astype(np.float32)
    before = x.copy()
    out = workloads.augment(x, np.random.default_rng(seed))
    assert np.array_equal(x, before)
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    for image, result in zip(x, out, strict=True):
        padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
        crops = [padded[i : i + 28, j : j + 28] for i in range(9) for j in range(9)]
        assert any(np.array_equal(result, crop) or np.array_equal(result, crop[:, ::-1]) for crop in crops)


def test_augmentation_is_drawn_from_the_given_generator() -> None:
    x = data_for("lenet1").train.x
    first, second, other = (workloads.augment(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


# A warm parent: preload once, fork a run after the other


FORKED = """
import json, os, sys
from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework, Optimizer, Seeds, WorkloadSpec
from guest.training.training import hash_arrays

framework = Framework(sys.argv[1])

def run():
    data = datasets.load("digits", train_samples=64)
    spec = WorkloadSpec(name="a", framework=framework, model="lenet5", dataset="digits", epochs=1,
                        batch_size=32, learning_rate=0.01, optimizer=Optimizer.SGD, momentum=0.9)
    seeds = Seeds(initialisation=1, data_order=2, augmentation=3, dropout=4)
    backend = workloads.build(spec, data.info, seeds, False)
    for _ in range(3):
        backend.train_step(data.train.x[:32], data.train.y[:32])
    return hash_arrays(backend.weights())

workloads.preload(framework)
threads = len(os.listdir("/proc/self/task"))
loaded = set(sys.modules)
hashes = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, run().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        hashes.append(file.read())
    os.wait()
hashes.append(run())
late = [name for name in set(sys.modules) - loaded if name.startswith(("torch._dynamo", "torch.optim"))]
sys.stdout.write(json.dumps({"threads": threads, "hashes": hashes, "late": late}))
"""


@pytest.mark.parametrize("framework", [Framework.TORCH, at_night("studies", Framework.TENSORFLOW)])
def test_a_preloaded_process_has_one_thread_and_its_forks_train_the_same_bits(
    framework: Framework, tmp_path: Path
) -> None:
    environment = os.environ | {
        # Libraries that start threads when they are imported, unless told not to; see guest.machine.threads.
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "KERAS_HOME": str(tmp_path / "keras"),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", FORKED, framework.value]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen["threads"] == 1
    assert len(set(seen["hashes"])) == 1
    assert len(seen["hashes"][0]) == 64
    assert seen["late"] == []
    assert not (tmp_path / ".keras").exists()
