"""The Keras backend, on TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # else a configuration file in the home decides

import keras
import tensorflow as tf

from guest.datasets.catalogue import DatasetInfo
from guest.records.run import Optimizer, Tier, WorkloadSpec
from guest.workloads import NO_GRADIENT, WorkloadError, in_batches, initial
from guest.workloads.keras_models import construct


class KerasBackend:
    """Implements `guest.workloads.Backend`. `model` and `optimizer` are Keras's own objects."""

    def __init__(self, model: keras.Model, optimizer: keras.Optimizer, weight_decay: float) -> None:
        self.model = model
        self.optimizer = optimizer
        variables = model.trainable_variables
        optimizer.build(variables)

        @tf.function(jit_compile=False)  # type: ignore[untyped-decorator]
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, [v.value for v in variables])
            if isinstance(optimizer, keras.optimizers.Adam):
                # An embedding's gradient has a row each time a token occurs, and Keras's Adam would square
                # these before it adds them. (SGD adds them, and its bits stay.)
                gradients = [tf.convert_to_tensor(g) for g in gradients]
            # What torch calls weight decay: the gradient of an L2 penalty. (Keras's own is decoupled.)
            if weight_decay:
                gradients = [g + weight_decay * v.value for g, v in zip(gradients, variables, strict=True)]
            optimizer.apply(gradients, variables)
            return loss

        any_count = tf.TensorSpec((None, *model.input_shape[1:]), model.inputs[0].dtype)

        @tf.function(jit_compile=False, input_signature=[any_count])  # type: ignore[untyped-decorator]
        def evaluate(x: tf.Tensor) -> tf.Tensor:
            return model(x, training=False)

        @tf.function(  # type: ignore[untyped-decorator]
            jit_compile=False, input_signature=[any_count, tf.TensorSpec((None,), tf.int64)]
        )
        def by_input(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=False))
            return tape.gradient(losses, x)  # of their sum: each sample's own

        self._by_input = by_input
        self._step = step
        self._evaluate = evaluate

    def train_step(self, x: np.ndarray, y: np.ndarray) -> float:
        return float(self._step(tf.constant(x), tf.constant(y)))

    def logits(self, x: np.ndarray) -> np.ndarray:
        return in_batches(lambda part: self._evaluate(tf.constant(part)).numpy(), x)

    def input_gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.dtype != np.float32:
            raise WorkloadError(NO_GRADIENT)
        return in_batches(lambda *parts: self._by_input(*map(tf.constant, parts)).numpy(), x, y)

    def weights(self) -> dict[str, np.ndarray]:
        return {name: variable.numpy().copy() for name, variable in _named(self.model)}

    def load_weights(self, weights: dict[str, np.ndarray]) -> None:
        named = dict(_named(self.model))
        wrong = sorted(set(named) ^ set(weights)) or [
            name for name, variable in named.items() if variable.shape != weights[name].shape
        ]
        if wrong:
            raise WorkloadError(f"these weights belong to another model: {', '.join(wrong[:3])} does not fit")
        for name, variable in named.items():
            variable.assign(weights[name])


def _named(model: keras.Model) -> list[tuple[str, Any]]:
    """Weights by `layer/role`: all parameters, and the running statistics of BatchNorm."""
    return [(f"{layer.name}/{w.name}", w) for layer in model.layers for w in layer.weights]


def build(
    spec: WorkloadSpec, info: DatasetInfo, initialisation: int, dropout: int, deterministic: bool, tier: Tier
) -> KerasBackend:
    """See `guest.workloads.build`."""
    if keras.backend.backend() != "tensorflow":
        raise WorkloadError(
            f"Keras runs on {keras.backend.backend()}: unset KERAS_BACKEND, or set it to tensorflow"
        )
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    if deterministic or tier is Tier.SWITCHES:
        tf.config.experimental.enable_op_determinism()
    if tier is Tier.EXACT:
        from vbstudy import exact

        exact.enable_tensorflow(
            intra_op=tf.config.threading.get_intra_op_parallelism_threads(),
            inter_op=tf.config.threading.get_inter_op_parallelism_threads(),
        )
    model = construct(spec.model, info, dropout)
    _initialise(model, initialisation)
    return KerasBackend(model, _optimizer(spec), spec.weight_decay)


def _initialise(model: keras.Model, seed: int) -> None:
    """Sets every weight. Raises WorkloadError for two of one name: they would start from the same values, and
    only one would be stored."""
    known = set()
    for name, variable in _named(model):
        if name in known:
            raise WorkloadError(
                f"two weights are named {name}: make the layer of simpler ones, each with a name"
            )
        known.add(name)
        variable.assign(initial(seed, name, tuple(variable.shape)))


def _optimizer(spec: WorkloadSpec) -> keras.Optimizer:
    """With torch's constants where the two differ."""
    if spec.optimizer == Optimizer.ADAM:
        return keras.optimizers.Adam(spec.learning_rate, epsilon=1e-8)
    return keras.optimizers.SGD(spec.learning_rate, momentum=spec.momentum)
