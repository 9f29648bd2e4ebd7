"""Where two logs part."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from guest.records.trace import NOT_COMPARED, OpNote, Outcome, Phase, StepNote, TensorNote
from orchestrator.experiments.trace import growth_steps
from orchestrator.experiments.trace_compare import compare, first_difference


def op(index, inputs, outputs, name="aten.mm.default", phase=Phase.FORWARD):
    def tensors(hashes):
        return tuple(TensorNote(shape=(2,), dtype="float32", hash=h) for h in hashes)

    return OpNote(
        index=index,
        phase=phase,
        op=name,
        module="m",
        source="s",
        text="t",
        inputs=tensors(inputs),
        outputs=tensors(outputs),
    )


def step(number, weights="w", gradients="g"):
    return StepNote(step=number, loss="0x0", weights=weights, gradients=gradients, optimizer="o")


def test_the_first_operation_with_equal_inputs_and_unequal_outputs_is_the_origin():
    a = [op(0, "x", "y"), op(1, "y", "z"), op(2, "z", "u"), op(3, "x", "v")]
    b = [op(0, "x", "y"), op(1, "y", "Z"), op(2, "Z", "U"), op(3, "x", "V")]
    found = compare(a, b)
    assert (found.outcome, found.origins, found.at) == (Outcome.OPERATION, (1, 3), None)


def test_equal_logs_locate_nothing():
    log = [op(0, "x", "y")]
    assert compare(log, log).outcome is Outcome.UNLOCATED


def test_unequal_inputs_alone_locate_nothing():
    assert compare([op(0, "x", "y")], [op(0, "X", "Y")]).outcome is Outcome.UNLOCATED


def test_inputs_that_are_not_compared_are_not_taken_as_equal():
    found = compare([op(0, [NOT_COMPARED], "y")], [op(0, [NOT_COMPARED], "Y")])
    assert found.outcome is Outcome.UNLOCATED


def test_other_operations_are_told_where_they_begin():
    a = [op(0, "x", "y"), op(1, "y", "z"), op(2, "z", "u")]
    b = [op(0, "x", "y"), op(1, "y", "z", name="aten.addmm.default"), op(2, "z", "U")]
    found = compare(a, b)
    assert (found.outcome, found.at) == (Outcome.SEQUENCE, 1)


def test_a_log_that_goes_on_is_told():
    a = [op(0, "x", "y")]
    assert compare(a, [*a, op(1, "y", "z")]).at == 1
    assert compare([*a, op(1, "y", "z")], a).at == 1


def test_an_origin_before_other_operations_counts():
    a = [op(0, "x", "y"), op(1, "y", "z")]
    b = [op(0, "x", "Y"), op(1, "Y", "z", name="aten.addmm.default")]
    found = compare(a, b)
    assert (found.outcome, found.origins, found.at) == (Outcome.OPERATION, (0,), 1)


def test_other_shapes_are_other_operations():
    one = op(0, "x", "y")
    wide = dataclasses.replace(one, inputs=(dataclasses.replace(one.inputs[0], shape=(3,)),))
    assert compare([one], [wide]).outcome is Outcome.SEQUENCE


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_the_first_difference_step_is_found(equal):
    a = [step(i) for i in range(1, len(equal) + 1)]
    b = [step(i, weights="w" if same else "W") for i, same in enumerate(equal, 1)]
    found = first_difference(a, b)
    assert found == (None if all(equal) else (equal.index(False) + 1, "weights"))


def test_all_that_differs_is_named():
    assert first_difference([step(1)], [step(1, "W", "G")]) == (1, "weights and gradients")
    other = dataclasses.replace(step(1, "W", "G"), optimizer="O")
    assert first_difference([step(1)], [other]) == (1, "weights, gradients and optimizer state")


@given(st.integers(1, 1000), st.integers(0, 5000), st.integers(1, 20))
def test_growth_is_looked_at_from_the_first_step_to_the_last(first, more, count):
    steps = growth_steps(first, first + more, count)
    assert steps[0] == first
    assert len(steps) <= count
    assert list(steps) == sorted(set(steps))
    assert steps[-1] == (first + more if count > 1 else first)
