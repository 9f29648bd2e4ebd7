import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records import codec, run
from guest.records.codec import RecordError, from_json, seal, to_json
from guest.records.run import RunRecord, RunSpec, Seeds, ThreadSpec
from tests import factories

counts = st.integers(1, 64)
specs = st.builds(
    factories.spec,
    repetition=st.integers(1, 9999),
    variant=st.sampled_from(run.Variant),
    threads=st.builds(ThreadSpec, cpus=counts, intra_op=counts, inter_op=counts),
    seeds=st.builds(Seeds, initialisation=st.none() | st.integers(0, 2**31 - 1)),
)


def a_record(tmp_path) -> RunRecord:
    return factories.record(factories.spec(), factories.result(factories.fill(tmp_path)))


@given(specs)
def test_a_spec_survives_the_way_through_json(spec):
    assert from_json(RunSpec, json.loads(json.dumps(to_json(spec)))) == spec


@given(specs, specs)
def test_experiment_sets_with_unlike_threads_have_unlike_folders(a, b):
    assert (a.threads == b.threads) == (a.threads.label == b.threads.label)


def test_a_label_names_only_what_differs_from_the_default():
    assert ThreadSpec(cpus=4, intra_op=4, inter_op=4).label == "cpus-4"
    assert ThreadSpec(cpus=4, intra_op=2, inter_op=2).label == "cpus-4-threads-2"
    assert ThreadSpec(cpus=4, intra_op=4, inter_op=1).label == "cpus-4-interop-1"


def test_a_record_survives_the_way_through_its_file(tmp_path):
    record = a_record(tmp_path)
    assert run.decode_record(seal(record)) == record


def test_sets_on_several_cpu_models_have_folders_of_their_own():
    assert factories.spec().set_id == "lenet5/fixed-seed/cpus-2"
    assert factories.spec(cpu_model="EPYC").run_id == "lenet5/fixed-seed/cpus-2-on-EPYC/0001"


@pytest.mark.parametrize("position", [50, 400, 900, 1500])
def test_a_flipped_byte_in_a_record_is_detected(tmp_path, position):
    data = bytearray(seal(a_record(tmp_path)).encode())
    data[position] ^= 1
    with pytest.raises(RecordError):
        run.decode_record(bytes(data))


def test_a_record_of_a_newer_schema_is_told_from_a_damaged_one(tmp_path):
    data = json.loads(seal(a_record(tmp_path)))
    data["schema_version"] = run.SCHEMA_VERSION + 1
    with pytest.raises(codec.NewerSchemaError, match="newer than this vbstudy"):
        run.decode_record(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repetition": "1"}, r"spec.repetition: int was expected, not '1'"),
        ({"repetition": True}, r"spec.repetition: int was expected, not True"),
        ({"variant": "fixed"}, r"spec.variant: 'fixed' is not a valid Variant"),
        ({"extra": 1}, r"spec: unknown field 'extra'"),
        ({"seeds": []}, r"spec.seeds: an object was expected"),
        ({"workload": {}}, r"spec.workload: field 'name' is missing"),
    ],
)
def test_data_that_does_not_fit_the_schema_is_refused_by_field(change, message):
    with pytest.raises(RecordError, match=message):
        from_json(RunSpec, to_json(factories.spec()) | change, "spec")


@pytest.mark.needs("studies")
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_no_json_makes_reading_a_record_fail_in_another_way(data):
    with pytest.raises(RecordError):
        run.decode_record(json.dumps(data))


def test_the_canonical_digest_does_not_depend_on_the_order_of_keys():
    assert codec.digest({"a": 1, "b": [1, 2]}) == codec.digest({"b": [1, 2], "a": 1})


def test_history_has_both_views_of_every_metric():
    columns = run.history_columns((run.Metric.ACCURACY, run.Metric.F1_MACRO))
    assert {"test_accuracy", "selected_test_accuracy", "test_f1_macro", "selected_test_f1_macro"} <= set(
        columns
    )
    assert len(columns) == len(set(columns))


def test_the_record_of_every_schema_so_far_is_still_read():
    for version in range(1, run.SCHEMA_VERSION + 1):
        text = (Path(__file__).parents[2] / "golden" / f"run-schema-{version}.json").read_text()
        record = run.decode_record(text)
        assert record.schema_version == version
        assert record.spec.cpu_model == ("" if version == 1 else "EPYC")
        variant = "default" if version < 9 else "exact"
        assert record.spec.set_id.startswith(f"lenet5/{variant}/cpus-1")
        assert len(record.result.hashes.weights) == 64
        assert record.order == (None if version < 8 else run.RunOrder(block=1, position=2, of=4))
        assert record.failures == ({} if version < 10 else {"RuntimeError": 2, "Lost": 1})


def test_the_load_by_others_is_what_the_guest_or_its_host_saw_more_of():
    text = (Path(__file__).parents[2] / "golden" / "run-schema-5.json").read_text()
    record = run.decode_record(text)
    assert record.isolation.host == {"wall_s": 2.0, "load_by_others": 0.4, "steal_s": 0.0}
    inside = dataclasses.replace(record.result, load_by_others=0.1)
    assert dataclasses.replace(record, result=inside).load_by_others == 0.4
    busier = dataclasses.replace(record.result, load_by_others=0.7)
    assert dataclasses.replace(record, result=busier).load_by_others == 0.7
    alone = dataclasses.replace(record.isolation, host={})
    untold = dataclasses.replace(record.result, load_by_others=None)
    assert dataclasses.replace(record, result=untold, isolation=alone).load_by_others is None


def test_the_record_of_a_project_is_still_read():
    text = (Path(__file__).parents[2] / "golden" / "run-schema-4-project.json").read_text()
    record = run.decode_record(text)
    assert record.spec.workload.framework is None
    assert record.spec.workload.metric_names == ("accuracy",)
    assert [o.where for o in record.result.project.overrides] == ["train.py:12"]
    assert record.result.project.random.how == "seeded"
    assert record.spec.workload.unexpected_artifacts(record.result.artifacts) == []


def test_the_record_of_a_project_that_replays_is_still_read():
    text = (Path(__file__).parents[2] / "golden" / "run-schema-6-project.json").read_text()
    record = run.decode_record(text)
    assert record.spec.workload.replays
    assert (record.result.project.random.how, record.result.project.random.draws) == ("replayed", 8)
    assert record.result.seeds_used == run.Seeds()
    assert record.spec.workload.unexpected_artifacts(record.result.artifacts) == []
    assert record.spec.workload.unexpected_artifacts({"log.txt", "history.csv", "weights.safetensors"}) == [
        "random.rec"
    ]


def test_a_manifest_is_held_to_what_its_workload_writes():
    ours = factories.workload()
    assert ours.unexpected_artifacts(run.ARTIFACTS) == []
    assert ours.unexpected_artifacts(["log.txt"]) == sorted(set(run.ARTIFACTS) - {"log.txt"})
    text = (Path(__file__).parents[2] / "golden" / "run-schema-4-project.json").read_text()
    own = run.decode_record(text).spec.workload
    assert own.unexpected_artifacts(["history.csv", "log.txt"]) == ["predictions.npz", "weights.safetensors"]
    assert own.unexpected_artifacts(
        ["history.csv", "log.txt", "predictions.npz", "weights.safetensors", "x"]
    ) == ["x"]
    with pytest.raises(ValueError, match="is a project, and has no framework of ours"):
        _ = own.network_framework
