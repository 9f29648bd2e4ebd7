"""What is seen of Keras at work."""

import numpy as np
import pytest

from guest import workloads
from guest.datasets.datasets import info
from guest.machine import seeds
from guest.records.run import Framework
from guest.records.trace import Phase
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
