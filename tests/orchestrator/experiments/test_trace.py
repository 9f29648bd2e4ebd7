"""The tracer, with sides that say what a test wants: windows of steps, equality, sides that do not repeat."""

import dataclasses
import json
import re

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from guest.records import bounded
from guest.records.bounded import Limit
from guest.records.codec import to_json
from guest.records.trace import OPERATIONS, TENSORS, Outcome, StepNote, Task, TraceAnswer
from guest.trace.hash import hash_arrays
from orchestrator.errors import ProtocolError
from orchestrator.experiments.trace import Tracer, TraceScope
from tests import factories
from tests.orchestrator.experiments.test_trace_compare import op


class MadeSide:
    """Trains nothing: from `parts` on its weights are its own. `again` says what it gives when it trains
    anew."""

    def __init__(self, cpus, parts=None, steps=1000, again=0.0, log=(), as_written=True):
        self.guest, self.spec = f"cpus-{cpus}", factories.spec(cpus)
        self.asked = []
        self._parts, self._steps, self._again = parts, steps, again
        self._own, self._log, self._as_written = cpus, log, as_written

    def weights(self, step):
        own = self._own if self._parts is not None and step >= self._parts else 0
        return {"w": np.full(4, step + own * 1e-3, np.float32), "count": np.array([step])}

    def note(self, step):
        full = dict.fromkeys(("loss", "gradients", "optimizer"), "")
        recorded = "sha" if step & (step - 1) == 0 else ""
        return StepNote(step=step, weights=hash_arrays(self.weights(step)), weights_sha256=recorded, **full)

    def ask(self, into, task, steps, operations=()):
        self.asked.append((task, steps))
        notes = ()
        if task is Task.STEPS:
            notes = tuple(self.note(s) for s in range(steps[0], min(steps[1], self._steps) + 1))
        if task is Task.OPERATIONS:
            (into / OPERATIONS).write_text("".join(json.dumps(to_json(n)) + "\n" for n in self._log))
            notes = (dataclasses.replace(self.note(steps[0]), loss="other" if self._again else ""),)
        if task is Task.TENSORS:
            save_file({f"{i}/0": np.array([self._own, 7], np.uint32) for i in operations}, into / TENSORS)
        if task is Task.WEIGHTS:
            arrays = {
                f"{s}/{place}/{name}": array + np.asarray(self._again, array.dtype)
                for s in steps
                for place, (name, array) in enumerate(self.weights(s).items())
            }
            save_file(arrays, into / TENSORS)
        return TraceAnswer(
            steps=notes,
            training_steps=self._steps,
            weights_bytes=16,
            artifacts={},
            environment={},
            as_written=self._as_written,
        )


@pytest.fixture
def traced(tmp_path):
    def run(a, b, steps=100, **scope):
        return Tracer("t", [a, b], TraceScope(steps=steps, **scope), tmp_path, lambda text: None).trace()

    return run


def test_what_is_equal_is_said_after_all_steps(traced):
    a, b = MadeSide(1), MadeSide(4)
    found = traced(a, b, steps=100)
    assert (found.outcome, found.steps, found.step) == (Outcome.EQUAL, 100, None)
    assert a.asked == [(Task.STEPS, window) for window in ((1, 8), (9, 32), (33, 100))]


def test_a_training_that_ends_earlier_is_equal_in_its_own_steps(traced):
    assert traced(MadeSide(1, steps=20), MadeSide(4, steps=20)).steps == 20


@pytest.mark.parametrize("parts", [1, 8, 9, 40, 100])
def test_the_first_difference_step_alone_is_looked_into(traced, parts):
    logs = [op(0, "x", "y")], [op(0, "x", "Y")]
    a, b = (MadeSide(n, parts, log=log) for n, log in zip((1, 4), logs, strict=True))
    found = traced(a, b)
    assert (found.outcome, found.step, found.differs) == (Outcome.OPERATION, parts, "weights")
    assert [steps for task, steps in a.asked if task is Task.OPERATIONS] == [(parts,)]
    (origin,) = found.origins
    assert (origin.index, origin.differing, origin.elements) == (0, 1, 2)
    assert {growth.step for growth in found.growth} >= {parts, 100}
    assert {growth.layer for growth in found.growth} == {"w"}


def test_steps_that_stored_runs_prove_equal_are_not_looked_at(traced):
    a, b = (MadeSide(n, 5, log=[op(0, "x", str(n))]) for n in (1, 4))
    assert traced(a, b, after=4).step == 5
    assert a.asked[0] == (Task.STEPS, (5, 12))


def test_a_stored_run_that_is_not_reproduced_is_noted_once(traced):
    a, b = MadeSide(1), MadeSide(4)
    recorded = {"2": "another", "16": "another", "64": "another"}  # in three windows
    found = traced(a, b, steps=100, stored=({"2": "sha"}, recorded), run_ids=("a", "b"))
    assert len(found.notes) == 1
    assert "its weights after step 2 are not those stored" in found.notes[0]


def test_a_side_that_does_not_repeat_itself_is_named_and_nothing_else_said(traced):
    log = [op(0, "x", "y")]
    found = traced(MadeSide(1, 3, log=log), MadeSide(4, 3, log=log, again=1.0))
    assert (found.outcome, found.origins) == (Outcome.UNREPEATABLE, ())
    assert "cpus-4 does not repeat itself" in found.notes[0]


def test_unlike_operations_are_an_answer(traced):
    logs = [op(0, "x", "y")], [op(0, "x", "y", name="aten.addmm.default")]
    found = traced(*(MadeSide(n, 1, log=log) for n, log in zip((1, 4), logs, strict=True)))
    assert found.outcome is Outcome.SEQUENCE
    assert "aten.mm.default in m, beside aten.addmm.default in m" in found.notes[0]


def test_a_difference_that_no_operation_makes_is_not_put_down_to_one(traced):
    log = [op(0, "x", "y")]
    assert traced(MadeSide(1, 1, log=log), MadeSide(4, 1, log=log)).outcome is Outcome.UNLOCATED


def test_operations_that_the_registry_does_not_know_are_named(traced):
    log = [op(0, "x", "y", name="aten.a_new_one.default")]
    found = traced(MadeSide(1, 1, log=log), MadeSide(4, 1, log=log))
    assert found.unknown == ("aten.a_new_one.default",)


class Noise(MadeSide):
    """Leaves other bytes than it should, or changes its answer."""

    def __init__(self, task, data=None, **changes):
        super().__init__(4, 3, log=[op(0, "x", "Y")])
        self._task, self._data, self._changes = task, data, changes

    def ask(self, into, task, steps, operations=()):
        answer = super().ask(into, task, steps, operations)
        if task is self._task:
            if self._data is not None:
                (into / (OPERATIONS if task is Task.OPERATIONS else TENSORS)).write_bytes(self._data)
            answer = dataclasses.replace(answer, **self._changes)
        return answer


FIRST_STEPS = tuple(MadeSide(4, 3).note(step) for step in range(1, 5))


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (Noise(Task.OPERATIONS, b"\xff\n"), "operations.jsonl of cpus-4 is malformed: not JSON: "),
        (Noise(Task.OPERATIONS, b"[]\n"), "operations.jsonl of cpus-4 is malformed: operations-b.jsonl: an "),
        (
            Noise(Task.OPERATIONS, b"[" * 1001),
            "operations.jsonl of cpus-4 is malformed: larger than 1000 bytes",
        ),
        (Noise(Task.OPERATIONS, steps=()), "guest cpus-4: answered for other steps than those asked for"),
        (Noise(Task.STEPS, steps=FIRST_STEPS[1:]), "guest cpus-4: answered for other steps"),
        (Noise(Task.STEPS, steps=FIRST_STEPS), "the guests answered for 8 and 4 steps"),
        (
            Noise(Task.STEPS, training_steps=2),
            "guest cpus-4: answered for steps after the end of the training",
        ),
        (Noise(Task.TENSORS, b"noise"), "tensors.safetensors of cpus-4 is malformed: "),
        (Noise(Task.TENSORS, save({"0/1": np.zeros(2)})), "tensors.safetensors of cpus-1 and cpus-4 is "),
        (Noise(Task.TENSORS, save({"0/0": np.zeros(9)})), "tensors.safetensors of cpus-1 and cpus-4 is "),
        (Noise(Task.WEIGHTS, b""), "tensors.safetensors of cpus-4 is malformed: "),
        (Noise(Task.WEIGHTS, save({"3/w": np.zeros(2)})), "tensors.safetensors of cpus-1 and cpus-4 is "),
    ],
)
def test_what_a_guest_sends_and_cannot_be_read_is_its_error(traced, monkeypatch, side, message):
    monkeypatch.setattr(bounded, "MESSAGE", Limit(bytes=1000, items=100))
    with pytest.raises(ProtocolError, match=re.escape(message)):
        traced(MadeSide(1, 3, log=[op(0, "x", "y")]), side)
