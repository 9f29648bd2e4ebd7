"""TensorFlow with the same bits on any number of cores: pools of a fixed size.

TensorFlow divides work by the size of its pool, not by the cores that serve it. A pool of eight threads
computes the same bits on one core as on eight, at about the speed of a pool that fits."""

from __future__ import annotations

from vbstudy.exact.errors import ExactError

LOGICAL_THREADS = 8


def enable_tensorflow(*, intra_op: int = LOGICAL_THREADS, inter_op: int = 1) -> None:
    """Fixes the number of threads within an operation and the number of operations that run at the same time,
    and switches TensorFlow's determinism on, for the rest of the process. Programs that call it with equal
    numbers compute equal bits. Operations that draw random numbers then need a seed, as
    `tf.keras.utils.set_random_seed` gives. Call it before the first operation. Raises ExactError
    after that, or for a number below 1."""
    if intra_op < 1 or inter_op < 1:
        raise ExactError(f"intra_op = {intra_op}, inter_op = {inter_op}: both must be 1 or more")
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError as error:
        raise ExactError(
            "TensorFlow has computed already, and its pools cannot change: call exact.enable_tensorflow() "
            "right after the import of tensorflow"
        ) from error
    tf.config.experimental.enable_op_determinism()
