"""Disturbed images: by hand on a linear model, and the real backends against differences of the loss."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file

from guest.datasets import datasets
from guest.datasets.datasets import Split
from guest.records.codec import RecordError, seal
from guest.records.robustness import ModelFile, RobustnessRequest, decode
from guest.records.run import Framework
from guest.training import metrics
from guest.training.perturbation import Assessor, Pixels, assess, noise, not_applicable
from guest.training.training import hash_arrays
from guest.workloads import WorkloadError
from tests import factories
from tests.guest.test_workloads import _frameworks, build, data_for, train  # noqa: F401  (a fixture)

pytestmark = pytest.mark.needs("studies")
BLACK_AND_WHITE = dataclasses.replace(
    datasets.info("digits"), shape=(1, 2, 1), classes=2, mean=(0.0,), std=(1.0,)
)
A, B = (ModelFile(run_id=name, path="", weights=name) for name in "ab")


class Linear:
    """Two pixels, two classes: the logits are the pixels times a matrix. Its gradient is known."""

    matrix = np.eye(2, dtype=np.float32)

    def logits(self, x):
        return x.reshape(len(x), 2) @ self.matrix

    def input_gradient(self, x, y):
        z = self.logits(x)
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        return ((p - np.eye(2)[y]) @ self.matrix.T).reshape(x.shape)


def measured(strengths, x, y, targets=(), matrices=None):
    backend = Linear()

    def load(file):
        backend.matrix = (matrices or {"a": np.eye(2, dtype=np.float32)})[file.run_id]

    request = RobustnessRequest(
        workload=factories.workload(), model=A, targets=targets, strengths=strengths, seed=3
    )
    test = Split(x=np.array(x, np.float32).reshape(-1, 1, 2, 1), y=np.array(y, np.int64))
    return assess(request, backend, test, BLACK_AND_WHITE, load)


def test_fgsm_turns_a_sample_where_half_its_margin_ends():
    # Class 0 wins by 0.2 and by 0.6: a step of s takes s from one pixel and gives s to the other.
    result = measured((0.0, 0.05, 0.15, 0.31), [[0.6, 0.4], [0.8, 0.2]], [0, 0])
    assert [point.correct for point in result.fgsm] == [2, 2, 1, 0]
    assert [point.changed for point in result.fgsm] == [0, 0, 1, 2]
    assert result.samples == 2


def test_an_attack_on_a_wrong_sample_leaves_it_wrong():
    result = measured((0.0, 0.1), [[0.4, 0.6]], [0])
    assert [(point.correct, point.changed) for point in result.fgsm] == [(0, 0), (0, 0)]


def test_noise_is_that_of_the_seed_times_the_strength_within_the_range():
    x = np.array([[0.6, 0.4], [0.55, 0.45]], np.float32).reshape(-1, 1, 2, 1)
    result = measured((0.0, 0.3), x, [0, 0])
    perturbed = np.clip(x + np.float32(0.3) * noise(x.shape, 3), 0, 1).reshape(2, 2)
    wrong = int((perturbed.argmax(axis=1) != 0).sum())
    assert (result.noise[0].correct, result.noise[1].correct) == (2, 2 - wrong)
    assert np.array_equal(noise((2, 3), 3), noise((2, 3), 3))
    assert not np.array_equal(noise((2, 3), 3), noise((2, 3), 4))


def test_transfer_counts_examples_of_samples_that_both_models_have_right():
    eye = np.eye(2, dtype=np.float32)
    stubborn = np.array([[3, 0], [0, 1]], np.float32)  # class 0 wins while 3 a > b
    x, y = [[0.55, 0.45], [0.52, 0.48], [0.2, 0.8], [0.45, 0.55]], [0, 0, 1, 1]
    result = measured((0.0, 0.1, 0.4), x, y, targets=(B, A), matrices={"a": eye, "b": stubborn})
    # At 0.1 three samples of four are turned on a; b has the last one wrong unperturbed, and stays right
    # on the first two: 3 * 0.45 > 0.55. At 0.4 all are turned, on b too: 3 * 0.15 < 0.85.
    assert [(t.run_id, t.strength, t.made, t.transferred) for t in result.transfer] == [
        ("b", 0.1, 2, 0), ("b", 0.4, 3, 3), ("a", 0.1, 3, 3), ("a", 0.4, 4, 4),
    ]  # fmt: skip


def test_pixels_stay_in_their_range_and_no_strength_changes_no_bit():
    data = datasets.load("digits", test_samples=50)
    pixels, x = Pixels(data.info), data.test.x
    assert pixels.moved(x, np.ones_like(x), 0.0) is x
    assert x.min() == pixels.low[0]
    assert x.max() == pixels.high[0]
    far = pixels.moved(x, noise(x.shape, 1), 5.0)
    assert far.min() == pixels.low[0]
    assert far.max() == pixels.high[0]
    assert far.dtype == np.float32
    grey = np.full((1, 28, 28, 1), (pixels.low + pixels.high) / 2, np.float32)
    assert pixels.moved(grey, np.ones_like(grey), 0.1) - grey == pytest.approx(
        0.1 / data.info.std[0], rel=1e-5
    )


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("model", ["lenet1", "cnn-bn", "mlp"])
def test_the_gradient_is_that_of_the_loss(framework, model):
    backend = build(framework, model)
    train(backend, model, 2)
    test = data_for(model).test
    x, y = noise(test.x[:3].shape, 1), test.y[:3]  # no two pixels equal: maximum pooling has no ties
    gradient = backend.input_gradient(x, y)
    assert gradient.shape == x.shape
    assert gradient.dtype == np.float32
    direction = np.sign(gradient)
    step = 1e-3
    for i in range(3):
        losses = []
        for sign in (1, -1):
            moved = x[i : i + 1] + np.float32(sign * step) * direction[i : i + 1]
            losses.append(metrics.cross_entropy(y[i : i + 1], backend.logits(moved)))
        slope = (losses[0] - losses[1]) / (2 * step)
        assert slope == pytest.approx(float(np.abs(gradient[i]).sum()), rel=0.1)


@pytest.mark.parametrize("framework", Framework)
def test_the_gradient_changes_nothing_and_is_each_samples_own(framework):
    backend = build(framework, "mlp")
    test = data_for("mlp").test
    before, logits = backend.weights(), backend.logits(test.x)
    together = backend.input_gradient(test.x[:8], test.y[:8])
    alone = np.concatenate([backend.input_gradient(test.x[i : i + 1], test.y[i : i + 1]) for i in range(8)])
    assert together == pytest.approx(alone, rel=1e-3, abs=1e-6)
    assert hash_arrays(backend.weights()) == hash_arrays(before)
    assert np.array_equal(backend.logits(test.x), logits)


@pytest.mark.parametrize("framework", Framework)
def test_words_have_no_gradient(framework):
    backend = build(framework, "lstm")
    test = data_for("lstm").test
    with pytest.raises(WorkloadError, match="words have no gradient"):
        backend.input_gradient(test.x[:2], test.y[:2])
    assert "headlines is text data" in not_applicable(datasets.info("headlines"))
    assert not_applicable(datasets.info("digits")) == ""


@pytest.mark.parametrize("framework", Framework)
def test_the_same_model_gives_the_same_numbers_and_another_ones_are_refused(framework, tmp_path):
    workload = factories.workload(framework=framework, model="lenet1")
    files = []
    for name, steps in (("a", 30), ("b", 35)):
        backend = build(framework, "lenet1", learning_rate=0.05)
        train(backend, "lenet1", steps)
        path = tmp_path / f"{name}.safetensors"
        save_file(backend.weights(), path)
        files.append(ModelFile(run_id=name, path=str(path), weights=hash_arrays(backend.weights())))
    request = RobustnessRequest(workload=workload, model=files[0], targets=(files[1],))
    assessor = Assessor()
    first = assessor.assess(request)
    other = RobustnessRequest(workload=workload, model=files[1], targets=(files[0],))
    assert assessor.assess(other) != first
    assert assessor.assess(request) == first == Assessor().assess(request)
    assert first.fgsm[0] == first.noise[0]
    assert first.fgsm[-1].correct < first.fgsm[0].correct
    assert decode(seal(first)) == first
    with pytest.raises(RecordError, match="checksum"):
        decode(seal(first).replace('"samples": 100', '"samples": 101'))
    foreign = dataclasses.replace(files[0], weights="0" * 64)
    with pytest.raises(ValueError, match="not those that its record names"):
        assessor.assess(dataclasses.replace(request, model=foreign))


def test_a_workload_that_cannot_be_built_leaves_the_one_before_as_it_was(tmp_path):
    backend = build(Framework.TORCH, "lenet1")
    path = tmp_path / "a.safetensors"
    save_file(backend.weights(), path)
    model = ModelFile(run_id="a", path=str(path), weights=hash_arrays(backend.weights()))
    request = RobustnessRequest(workload=factories.workload(model="lenet1"), model=model, targets=())
    assessor = Assessor()
    first = assessor.assess(request)
    unfit = dataclasses.replace(request.workload, model="lstm", test_samples=50)
    with pytest.raises(WorkloadError, match="lstm takes text data"):
        assessor.assess(dataclasses.replace(request, workload=unfit))
    assert assessor.assess(request) == first
