"""The registry of operations: which a probe tries, which of the frameworks' own operations each covers, and
what decides how its work is split over threads. The entries are in `guest.operations_table`, a line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from guest.records import Framework

SIZES = (8, 32, 128, 512)


class Knob(StrEnum):
    """What splits an operation's work, and so may decide the order of its sums."""

    ONEDNN = "oneDNN"
    GEMM = "gemm"
    REDUCTION = "reduction"
    ELEMENTS = "elements"  # each element is computed by itself: nothing is summed
    SERIAL = "serial"


# What to turn, by framework: for a person.
SETTINGS = {
    Framework.TORCH: {
        Knob.ONEDNN: "oneDNN's primitives, over OpenMP threads (OMP_NUM_THREADS, torch.set_num_threads); off "
        "with torch.backends.mkldnn.enabled = False",
        Knob.GEMM: "the BLAS library's gemm, MKL on x86 (MKL_NUM_THREADS, torch.set_num_threads); on Intel "
        "CPUs MKL_CBWR=AVX2,STRICT makes it independent of threads",
        Knob.REDUCTION: "ATen's parallel sums, over OpenMP threads (OMP_NUM_THREADS, torch.set_num_threads); "
        "no switch makes them independent",
        Knob.ELEMENTS: "ATen's parallel loops, over OpenMP threads (OMP_NUM_THREADS, torch.set_num_threads); "
        "every element is computed by itself, vectors and their rest by unlike code",
        Knob.SERIAL: "nothing: one thread computes it",
    },
    Framework.TENSORFLOW: {
        Knob.ONEDNN: "oneDNN's primitives, over TensorFlow's intra-op pool (TF_NUM_INTRAOP_THREADS); off "
        "with TF_ENABLE_ONEDNN_OPTS=0",
        Knob.GEMM: "oneDNN's or Eigen's gemm, over the intra-op pool (TF_NUM_INTRAOP_THREADS); "
        "TF_ENABLE_ONEDNN_OPTS=0 leaves Eigen's",
        Knob.REDUCTION: "Eigen's parallel sums, over the intra-op pool (TF_NUM_INTRAOP_THREADS)",
        Knob.ELEMENTS: "Eigen's parallel loops, over the intra-op pool (TF_NUM_INTRAOP_THREADS)",
        Knob.SERIAL: "nothing: one thread computes it",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One entry. `inputs` draws the arguments of one size (`guest.probe.Draw`); `torch` and `tensorflow`
    compute the result from the framework's module and these arguments (None: it has no such operation).
    `aten` and `tf` are the operations that this runs, forward and backward, without namespace and overload.
    `backward` is False where there is no gradient, or nothing that a training takes one of."""

    name: str
    knob: Knob
    inputs: Callable[[Any, int], tuple[Any, ...]]
    torch: Callable[..., Any] | None
    tensorflow: Callable[..., Any] | None
    aten: str
    tf: str
    backward: bool = True
    sizes: tuple[int, ...] = SIZES

    def call(self, framework: Framework) -> Callable[..., Any] | None:
        return self.torch if framework is Framework.TORCH else self.tensorflow


def knob(framework: Framework, op: str) -> str | None:
    """What governs an operation, as the framework calls it (`aten.mm.default`, `MatMul`); None for one that
    the registry does not know."""
    found = _covered(framework).get(base_name(op))
    return None if found is None else SETTINGS[framework][found]


def base_name(op: str) -> str:
    """`aten.add_.Tensor` is `add`: in place or not, with whatever arguments."""
    if "." not in op:
        return op
    name = op.split(".")[1]
    return name.rstrip("_") if not name.startswith("__") else name


@cache
def _covered(framework: Framework) -> dict[str, Knob]:
    """The first entry that covers an operation says what governs it."""
    from guest.operations_table import OPERATIONS

    covered: dict[str, Knob] = {}
    for operation in OPERATIONS:
        for name in (operation.aten if framework is Framework.TORCH else operation.tf).split():
            covered.setdefault(name, operation.knob)
    return covered
