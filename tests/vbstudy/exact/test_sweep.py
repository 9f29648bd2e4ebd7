"""Every operation of the sweep has the same bits on every thread count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.vbstudy.exact.cases import LAYOUTS, Case, cases
from vbstudy import exact

THREADS = (1, 2, 3, 4, 6, 8)
SEED = 0
# Without their inputs, which are hundreds of megabytes: whoever collects the tests has these.
ALL = [replace(case, inputs=()) for case in cases(torch.Generator().manual_seed(SEED))]
QUICK = [case for case in ALL if case.quick]
TYPES = (torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
# Operations that depend on the thread count in these types alone.
TYPED = {
    "add scaled": torch.bfloat16,
    "sub scaled": torch.float16,
    "rsub scaled": torch.bfloat16,
    "add scaled in place": torch.bfloat16,
    "abs (100003,)": torch.complex64,
    "div": torch.complex64,
    "reciprocal (100003,)": torch.complex128,
    "addcdiv": torch.complex64,
    "arange": torch.bfloat16,
    "std (100003,)": torch.float64,
    "var (333, 777)": torch.complex128,
}


@pytest.fixture(scope="module")
def made() -> dict[str, Case]:
    """All cases, with their inputs."""
    return {case.name: case for case in cases(torch.Generator().manual_seed(SEED))}


@pytest.fixture
def case(request: pytest.FixtureRequest, made: dict[str, Case]) -> Case:
    return made[request.param.name]


def bits(case: Case, threads: int) -> list[bytes]:
    torch.set_num_threads(threads)
    with exact.mode():
        return case.bits()


def one_answer(case: Case, threads: tuple[int, ...]) -> None:
    first = bits(case, threads[0])
    for count in threads[1:]:
        assert bits(case, count) == first, f"{case.name}: {count} threads, not as {threads[0]}"


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name, indirect=True)
def test_an_operation_has_the_same_bits_on_one_and_three_threads(case: Case) -> None:
    one_answer(case, (1, 3))


@pytest.mark.needs("exact")
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name, indirect=True)
def test_an_operation_has_the_same_bits_on_every_thread_count(case: Case) -> None:
    one_answer(case, THREADS)


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    "case", [c for c in ALL if c.name in TYPED], ids=lambda case: case.name, indirect=True
)
def test_an_operation_of_another_type_has_the_same_bits_on_any_thread_count(case: Case) -> None:
    one_answer(case.of(TYPED[case.name]), THREADS)


@pytest.mark.needs("exact")
@pytest.mark.filterwarnings("ignore:Casting complex values to real")  # torch does, in bincount
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name, indirect=True)
def test_an_operation_has_the_same_bits_in_every_type_and_layout(case: Case) -> None:
    for other in (*(case.of(dtype) for dtype in TYPES), *(case.of(torch.float32, way) for way in LAYOUTS)):
        try:
            other.outputs()
        except (RuntimeError, NotImplementedError):
            continue  # torch itself does not compute it
        one_answer(other, (1, 2, 3, 8))


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    "case", [c for c in QUICK if c.gradient and not c.random], ids=lambda case: case.name, indirect=True
)
def test_outputs_and_gradients_are_as_near_to_those_of_float64_as_defaults_are(case: Case) -> None:
    """Relative to the largest element: within four times default's distance, or 1e-5."""
    truth = case.of(torch.float64).outputs()
    with exact.mode():
        ours = case.outputs()
    for right, found, usual in zip(truth, ours, case.outputs(), strict=True):
        scale = right.abs().max().clamp(min=1e-30)
        distance, theirs = ((t.double() - right).abs().max() / scale for t in (found, usual))
        assert distance <= max(4 * theirs, 1e-5)


def test_the_sweep_finds_what_varies_without_exact_mode(made: dict[str, Case]) -> None:
    """Else it would prove nothing."""
    varying = set()
    for case in filter(lambda case: case.quick, made.values()):
        found = set()
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.add(tuple(case.bits()))
        if len(found) > 1:
            varying.add(case.name.split()[0])
    assert {"conv2d", "layer_norm", "sum", "dot", "sigmoid"} <= varying
