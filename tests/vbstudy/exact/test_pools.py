"""TensorFlow's pools stand once it has computed, so each look is a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vbstudy import exact

PROGRAM = """
import hashlib, os, sys, warnings
warnings.simplefilter("ignore")
cores, ours = int(sys.argv[1]), sys.argv[2] == "exact"
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
import numpy as np
import tensorflow as tf
from vbstudy import exact
if ours:
    exact.enable_tensorflow()
else:
    tf.config.threading.set_intra_op_parallelism_threads(cores)
tf.keras.utils.set_random_seed(1)
draw = np.random.default_rng(0)
x, y = draw.random((256, 28, 28, 1), np.float32), draw.integers(0, 10, 256)
net = tf.keras.Sequential([
    tf.keras.Input((28, 28, 1)), tf.keras.layers.Conv2D(16, 5, activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.BatchNormalization(), tf.keras.layers.Flatten(), tf.keras.layers.Dropout(0.2),
    tf.keras.layers.Dense(10),
])
net.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
net.fit(x, y, batch_size=64, epochs=3, verbose=0)
print(hashlib.sha256(b"".join(w.tobytes() for w in net.get_weights())).hexdigest())
"""


def weights(cores: int, how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cores), how], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.needs("exact")
def test_a_keras_network_learns_the_same_weights_on_one_core_and_on_two() -> None:
    assert weights(1, "exact") == weights(2, "exact")


@pytest.mark.needs("exact")
def test_without_it_it_does_not() -> None:
    assert weights(1, "default") != weights(2, "default")


def test_a_pool_without_threads_is_refused() -> None:
    with pytest.raises(exact.ExactError, match="intra_op = 0, inter_op = 1: both must be 1 or more"):
        exact.enable_tensorflow(intra_op=0)


@pytest.mark.needs("exact")
def test_a_call_after_the_first_operation_is_refused() -> None:
    program = (
        "import tensorflow as tf; from vbstudy import exact; tf.ones(3) + 1\n"
        "try: exact.enable_tensorflow()\n"
        "except exact.ExactError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "TensorFlow has computed already" in done.stdout
