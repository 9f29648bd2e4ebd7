import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records.codec import to_json
from guest.records.run import Message, Seeds, Variant
from orchestrator.agent.protocol import parse_message, read_epoch, read_result
from orchestrator.errors import ProtocolError
from tests import factories

SPEC = factories.spec()
RESULT = factories.result({})


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_fail_in_another_way(line):
    with pytest.raises(ProtocolError):
        parse_message(line)


@given(
    st.dictionaries(
        st.sampled_from(["kind", "run_id", "body", "more"]),
        st.none() | st.text() | st.dictionaries(st.text(), st.integers()),
    )
)
def test_only_whole_messages_are_messages(data):
    line = json.dumps(data).encode()
    whole = (
        set(data) == {"kind", "run_id", "body"}
        and data["kind"] in ("hello", "epoch", "heartbeat", "done", "error")
        and isinstance(data["run_id"], str)
        and isinstance(data["body"], dict)
    )
    if whole:
        assert parse_message(line) == Message(**data)
    else:
        with pytest.raises(ProtocolError):
            parse_message(line)


def body(**changes):
    return {"result": to_json(dataclasses.replace(RESULT, **changes))}


def test_a_result_that_fits_is_read_as_it_was_sent():
    assert read_result(body(), SPEC) == RESULT


def test_free_seeds_may_be_any_and_fixed_ones_only_those_that_were_asked_for():
    free = factories.spec(variant=Variant.DEFAULT, seeds=Seeds())
    drawn = Seeds(initialisation=5, data_order=0, augmentation=2**31 - 1, dropout=7)
    assert read_result(body(seeds_used=drawn), free).seeds_used == drawn
    with pytest.raises(ProtocolError, match=r"seeds_used\.initialisation: 5 is not what was asked for"):
        read_result(body(seeds_used=drawn), SPEC)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"seeds_used": Seeds()}, "seeds_used.initialisation: None"),
        ({"step_hashes": {"one": "a" * 64}}, "step_hashes: other names"),
        ({"step_hashes": {"0": "a" * 64}}, "step_hashes: other names"),
        ({"step_hashes": {str(n): "a" * 64 for n in range(1, 99)}}, "step_hashes: other names"),
        ({"step_hashes": {"1": "A" * 64}}, "step_hashes.1: is no SHA-256"),
        ({"hashes": dataclasses.replace(RESULT.hashes, logits="")}, "hashes.logits: is no SHA-256"),
        ({"selected_epoch": 0}, "selected_epoch: 0 is not between 1 and 2"),
        ({"selected_epoch": 3}, "selected_epoch: 3 is not between 1 and 2"),
        ({"last": {}}, "last: accuracy is missing"),
        ({"selected": {"f1_macro": 0.5}}, "selected: accuracy is missing"),
        ({"timings": dataclasses.replace(RESULT.timings, wall_s=math.inf)}, "timings.wall_s: inf"),
        ({"load_by_others": math.nan}, "load_by_others: nan"),
    ],
)
def test_a_result_that_no_run_can_have_is_refused_by_its_field(changes, where):
    with pytest.raises(ProtocolError) as caught:
        read_result(body(**changes), SPEC)
    assert f"{SPEC.run_id}: the agent's result is malformed: done.result.{where}" in caught.value.message


def test_of_an_epoch_numbers_are_taken_and_nothing_else():
    told = read_epoch(
        {"epoch": 3, "train_loss": 0.5, "test_accuracy": 1, "test_loss": 0.1, "test_x": "y", "test_b": True}
    )
    assert (told.epoch, told.train_loss, told.scores) == (3, 0.5, {"accuracy": 1.0})
    assert math.isnan(read_epoch({}).train_loss)
    assert [read_epoch({"epoch": e}).epoch for e in (math.nan, -5, 2.0**70, "3")] == [0, 0, 10**9, 0]
