"""The pipe of a traced program."""

import json
import socket

import pytest

from guest.records.trace import Phase, TensorNote
from guest.trace.wire import OTHER_PROCESS, TENSORS, Settings, Wire, address


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        with address(tmp_path) as path:
            made.bind(path)
        made.listen()
        made.settimeout(120)
        yield made


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def wire(tmp_path, listener, noticed):
    """Makes that of one process of the program."""
    settings: Settings = {
        "library": "", "folder": str(tmp_path), "root": "/", "steps": 1, "keep": None, "growth": 0,
        "hold": [], "loading": True,
    }  # fmt: skip
    return lambda: Wire(settings, lambda kind, what: noticed.append((kind, what)))


def computes(wire, inputs):
    wire.operation("torch", "stack", Phase.FORWARD, ("", "", ""), inputs, (), lambda: ())


def told(listener):
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        return lines.readlines()


def notes(count, last="0"):
    hashes = [*map(str, range(count - 1)), last]
    return [TensorNote(shape=(1,), dtype="float32", hash=each) for each in hashes]


def test_the_first_process_that_computes_is_traced_before_the_tracer_has_listened(wire, listener):
    first, second = wire(), wire()
    for each in (first, second):
        computes(each, notes(1))
    assert (first.on, second.on) == (True, False)
    first.close(b"end")
    first._to.close()
    assert len(told(listener)) == 3, "framework, operation, end"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_what_is_computed_after_the_end_is_not_traced(wire, listener):
    made = wire()
    computes(made, notes(1))
    made.close(b"end")  # as atexit does
    assert not made.on, "frameworks ask this before each operation"
    made.close(b"end")
    made._to.close()
    assert len(told(listener)) == 3, "framework, operation, end"


def test_of_several_ranks_rank_0_is_traced_and_no_other_keeps_outputs(wire, tmp_path, listener, monkeypatch):
    ranks = [wire() for _ in range(3)]
    ranks[0].settings["keep"] = 0
    for rank in (2, 0, 1):
        monkeypatch.setenv("RANK", str(rank))
        computes(ranks[rank], notes(1))
        assert (tmp_path / "outputs.npz").exists() is (rank != 2)
    assert [each.on for each in ranks] == [True, False, False]
    ranks[0]._to.close()


@pytest.mark.parametrize("count", [3, TENSORS, TENSORS + 1, 100_000])
def test_a_line_has_room_for_any_number_of_tensors_and_all_count(wire, tmp_path, listener, count):
    seen = []
    for last in "ab":
        made = wire()
        computes(made, notes(count, last))
        made.close(b"end")
        made._to.close()
        line = told(listener)[1]
        assert len(line) < 1 << 20
        seen.append(json.loads(line.partition(b"\t")[0]))
        (tmp_path / "claimed").unlink()
    assert len(seen[0][2]) == min(count, TENSORS + 1)
    assert seen[0] != seen[1]


def test_another_process_that_trains_is_noted_once(wire, listener, noticed):
    first, second = wire(), wire()
    computes(first, notes(1))
    computes(second, notes(1))
    assert noticed == []
    second.step(list)
    second.step(list)
    assert noticed == [("untraced", OTHER_PROCESS)]
    first._to.close()


def test_other_ranks_are_no_other_processes(wire, listener, noticed, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    rank = wire()
    computes(rank, notes(1))
    rank.step(list)
    assert (rank.on, noticed) == (False, [])


def test_weights_are_kept_after_steps_of_many_operations(wire, tmp_path, listener, monkeypatch):
    monkeypatch.setattr("guest.trace.wire.GROWTH_OPERATIONS", 5)
    made = wire()
    made.settings |= {"keep": 0, "growth": 3}
    for _ in range(2):
        for _ in range(4):
            computes(made, notes(1))
        made.step(list)
    assert (tmp_path / "weights-2.npz").exists()
    made._to.close()
