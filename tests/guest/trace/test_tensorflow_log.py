"""What is seen of Keras at work."""

import contextlib

import numpy as np
import pytest

from guest import workloads
from guest.datasets.datasets import info
from guest.machine import seeds
from guest.records.run import Framework
from guest.records.trace import Phase
from guest.trace.source import line_outside
from tests import factories

pytestmark = pytest.mark.needs("studies")


def test_every_operation_of_a_step_has_its_phase_and_layer():
    from guest.trace import tensorflow_log as eye

    spec = factories.workload(framework=Framework.TENSORFLOW)
    drawn = seeds.draw(factories.spec().seeds)
    backend = workloads.build(spec, info("digits"), drawn, deterministic=False)
    x = np.random.default_rng(0).random((8, *info("digits").shape), dtype=np.float32)
    before = backend.weights()
    with eye.watch(backend, frozenset({0})) as log:
        backend.train_step(x, np.arange(8))
    places = {(n.phase, n.op, n.module.rpartition("/")[2]) for n in log.notes}
    assert {
        (Phase.FORWARD, "Conv2D", "conv1"),
        (Phase.FORWARD, "MatMul", "out"),
        (Phase.BACKWARD, "Conv2DBackpropFilter", "conv1"),
        (Phase.BACKWARD, "MatMul", "out"),
    } <= places
    updates = [n for n in log.notes if n.op == "AssignSubVariableOp" or n.op == "AssignAddVariableOp"]
    assert {n.phase for n in updates} == {Phase.OPTIMIZER}
    assert all(n.inputs[0].hash != n.outputs[0].hash for n in updates if n.outputs[0].name == "conv1/kernel")
    assert list(log.kept) == ["0/0"]
    assert not np.array_equal(before["conv1/kernel"], backend.weights()["conv1/kernel"])


@contextlib.contextmanager
def program():
    """What is seen of a program of TensorFlow, within: operations, and None for each step."""
    import tensorflow as tf
    from tensorflow.python.framework import op_callbacks

    from guest.trace import program_tensorflow, tensorflow_log

    seen = []

    class Wire:
        on = True

        def operation(self, framework, op, phase, where, *_):
            seen.append((op, phase, *where))

        def step(self, weights):
            weights()
            seen.append(None)

        def line(self, frame, packages):
            return line_outside(frame, packages)

    log = program_tensorflow.ProgramLog(Wire())
    tensorflow_log.look(log)
    try:
        yield seen
        log.step_over()
    finally:
        op_callbacks.remove_op_callback(log.called)
        tf.config.run_functions_eagerly(False)


def test_a_gradient_has_the_line_of_the_pass_that_it_is_of():
    import keras
    import tensorflow as tf

    layer = keras.layers.Dense(3)
    with program() as seen:
        layer(tf.ones((1, 4)))  # builds it
        with tf.GradientTape() as tape:
            result = layer(tf.ones((8, 4)))  # trains it
        tape.gradient(result, layer.trainable_variables)
    (text,) = {text for op, phase, _, _, text in seen if (op, phase) == ("MatMul", Phase.BACKWARD)}
    assert text.endswith("# trains it")


def test_each_of_two_optimizers_makes_steps():
    import keras
    import tensorflow as tf

    variables = [keras.Variable(tf.ones(3)) for _ in "ab"]
    optimizers = [keras.optimizers.SGD() for _ in "ab"]
    gradient = tf.ones(3)
    with program() as seen:
        for _ in range(2):
            for optimizer, variable in zip(optimizers, variables, strict=True):
                optimizer.apply_gradients([(gradient, variable)])
    assert seen.count(None) == 4


def test_a_gradient_that_shares_only_a_number_with_a_layer_is_not_of_it():
    import keras
    import tensorflow as tf

    half, other = keras.layers.Lambda(lambda x: x * 0.5, name="half"), tf.ones((8, 4))
    with program() as seen:
        half(tf.ones((3, 3)))
        with tf.GradientTape() as tape:
            tape.watch(other)
            result = other * 0.5  # by itself
        tape.gradient(result, other)
    places = [(module, text) for op, phase, module, _, text in seen if (op, phase) == ("Mul", Phase.BACKWARD)]
    assert places
    assert "half" not in {module for module, _ in places}
