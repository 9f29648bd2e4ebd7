import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.projects import numbers
from guest.projects.numbers import MetricError, Patterns, Value
from guest.records import bounded
from guest.records.run import MetricSource, history_columns
from orchestrator.programs import try_files

ACCURACY = MetricSource(name="accuracy", pattern=r"test acc: ([0-9.a-z%]+)")


def read(*lines: str, source: MetricSource = ACCURACY) -> Patterns:
    patterns = Patterns([source])
    for i, line in enumerate(lines):
        patterns.line(line, float(i))
    return patterns


def collected(tmp_path, source: MetricSource, patterns: Patterns | None = None) -> list[Value]:
    found = numbers.collect([source], patterns or Patterns([source]), tmp_path, tmp_path, "the last line")
    return found[source.name]


def values(found: list[Value]) -> list[float]:
    return [value.value for value in found]


def test_a_pattern_that_matches_repeatedly_gives_a_value_an_epoch():
    patterns = read("epoch 1 test acc: 0.5", "nothing", "epoch 2 test acc: 0.75")
    assert values(patterns.values["accuracy"]) == [0.5, 0.75]
    assert [value.elapsed_s for value in patterns.values["accuracy"]] == [0.0, 2.0]


def test_two_values_on_a_line_count_as_one_the_last_and_are_noted():
    patterns = read("test acc: 0.1 test acc: 0.2", "test acc: 0.3 test acc: 0.4")
    assert values(patterns.values["accuracy"]) == [0.2, 0.4]
    assert len(patterns.notes) == 1
    assert "matches 2 times on one line" in patterns.notes[0]


def test_nan_and_percent_are_numbers_and_text_is_not():
    patterns = read("test acc: nan", "test acc: 93.1%")
    assert math.isnan(patterns.values["accuracy"][0].value)
    assert patterns.values["accuracy"][1].value == 93.1
    with pytest.raises(MetricError, match=r"'0\.9\.1' is not a number, in the line 'test acc: 0\.9\.1'"):
        read("test acc: 0.9.1")


def test_a_pattern_that_never_matches_is_told_with_the_last_lines_of_output(tmp_path):
    with pytest.raises(
        MetricError, match=r"(?s)matched no line of the output; its last lines:\nthe last line"
    ):
        collected(tmp_path, ACCURACY)


def test_json_is_read_at_a_dotted_key_and_a_list_there_is_one_value_an_epoch(tmp_path):
    (tmp_path / "out.json").write_text(json.dumps({"a": {"b": [0.1, 0.2]}, "c": [{"d": 3}]}))
    assert values(collected(tmp_path, MetricSource(name="x", file="out.json", key="a.b"))) == [0.1, 0.2]
    assert values(collected(tmp_path, MetricSource(name="x", file="out.json", key="c.0.d"))) == [3]


@pytest.mark.parametrize(
    ("file", "text", "key", "found"),
    [
        ("a.json", '[{"loss": 0.1}, {"lr": 1}, {"loss": 0.2}]', "loss", [0.1, 0.2]),
        ("a.json", '{"log": [{"eval": {"f1": 0.1}}, {"eval": {"f1": 0.2}}]}', "log.eval.f1", [0.1, 0.2]),
        ("a.json", '{"eval.acc": {"top.1": 0.1}, "eval": 2}', "eval.acc.top.1", [0.1]),
        ("a.json", '{"acc": [[0.1], [0.2]]}', "acc", [0.1, 0.2]),
        ("a.json", "[0.1, [0.2]]", "value", [0.1, 0.2]),
        ("a.jsonl", "0.1\n0.2", "value", [0.1, 0.2]),
        ("a.jsonl", '[{"loss": 0.1}, {"loss": 0.2}]', "loss", [0.1, 0.2]),
        ("a.csv", "epoch, acc\n1, 0.1\n\n2,\n3, 0.2", "acc", [0.1, 0.2]),
        ("a.tsv", "epoch\tacc\n1\t0.1\n2\t0.2", "acc", [0.1, 0.2]),
    ],
)
def test_the_numbers_that_try_names_are_read(tmp_path, file, text, key, found):
    (tmp_path / file).write_text(text)
    assert key in try_files.numbers(tmp_path / file)[0]
    assert values(collected(tmp_path, MetricSource(name="x", file=file, key=key))) == found


def test_json_lines_and_csv_columns_are_read(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"acc": 0.1}\n{"other": 1}\n{"acc": 0.2}\n')
    (tmp_path / "log.csv").write_text("epoch,acc\n1,0.3\n2,0.4\n")
    assert values(collected(tmp_path, MetricSource(name="x", file="log.jsonl", key="acc"))) == [0.1, 0.2]
    assert values(collected(tmp_path, MetricSource(name="x", file="log.csv", key="acc"))) == [0.3, 0.4]


@pytest.mark.parametrize(
    ("file", "text", "key", "told"),
    [
        ("a.json", None, "k", "wrote no such file"),
        ("a.json", "{", "k", "a.json: Expecting"),
        ("a.json", "[1, {}]", "k.0", "has no key 'k.0'; the file has a list"),
        ("a.json", '{"a": {"z": 1}}', "a.b", "has no key 'a.b'; a has z"),
        ("a.json", '{"a": [1]}', "a.value", "has no key 'a.value'; a has a list"),
        ("a.json", '{"a": "high"}', "a", "'high' is not a number"),
        ("a.json", '{"a": "0,93"}', "a", "'0,93' is not a number"),
        ("a.csv", "x,y\n1,2\n", "z", "has no column 'z'; there are x, y"),
        ("a.csv", "x,y\n", "x", "column 'x' is empty"),
        ("a.jsonl", '{"x": 1}\n', "z", "none of its 1 lines has the key 'z'"),
        ("../a.json", "1", "", "leads out of the project's folder"),
    ],
)
def test_a_file_that_does_not_have_the_metric_is_told(tmp_path, file, text, key, told):
    folder = tmp_path / "project"
    folder.mkdir()
    if text is not None:
        (folder / file).write_text(text)
    with pytest.raises(MetricError, match="metric x") as caught:
        collected(folder, MetricSource(name="x", file=file, key=key))
    assert told in str(caught.value)


def test_a_metric_that_is_not_reported_names_what_was(tmp_path):
    (tmp_path / numbers.REPORTED).write_text('{"name": "acc", "value": 0.5, "epoch": null}\n')
    with pytest.raises(MetricError, match=r"did not report it \(it reported acc\)"):
        collected(tmp_path, MetricSource(name="accuracy"))


@pytest.mark.parametrize("text", ["{", "[1]", '{"name": "acc", "value": "x", "epoch": 1}', "a" * (33 << 20)])
def test_reported_metrics_that_are_damaged_or_too_many_are_an_error(tmp_path, text):
    (tmp_path / numbers.REPORTED).write_text(text)
    with pytest.raises(MetricError, match=r"metrics\.jsonl: cannot be read"):
        collected(tmp_path, MetricSource(name="acc"))


def test_a_history_numbers_epochs_by_the_project_where_it_numbers_them():
    rows = numbers.history({"acc": [Value(value=0.1, epoch=2), Value(value=0.2, epoch=3)]}, 9.0)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["test_acc"] for row in rows[1:]] == [0.1, 0.2]
    assert math.isnan(rows[0]["test_acc"])


def test_a_final_value_belongs_to_the_last_epoch():
    each = {
        "acc": [Value(value=0.1), Value(value=0.2)],
        "f1": [Value(value=0.9)],
        "train_loss": [Value(value=1.0)],
    }
    rows = numbers.history(each, 9.0)
    assert [math.isnan(row["test_f1"]) for row in rows] == [True, False]
    assert rows[1]["train_loss"] == 1.0


def test_a_history_of_more_cells_than_analyze_reads_is_refused(monkeypatch):
    columns = len(history_columns(["acc"]))
    monkeypatch.setattr(bounded, "HISTORY", bounded.Limit(bytes=9999, items=11 * columns))
    ten = [Value(value=0.5)] * 10
    assert len(numbers.history({"acc": ten}, 9.0)) == 10
    with pytest.raises(MetricError, match="metric acc: has 11 values, of which at most 10 are kept"):
        numbers.history({"acc": [*ten, Value(value=0.5)]}, 9.0)


@given(st.dictionaries(st.sampled_from(["a", "b", "train_loss"]), st.lists(
    st.builds(Value, value=st.floats(), epoch=st.none() | st.integers(-2, 10**9)), min_size=1, max_size=8),
    min_size=1))  # fmt: skip
def test_every_history_has_all_columns_counts_from_one_and_ends_with_each_last_value(each):
    each = {"accuracy": [Value(value=0.5)], **each}
    rows = numbers.history(each, 1.0)
    names = [name for name in each if name != "train_loss"]
    assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(set(row) == set(history_columns(names)) for row in rows)
    assert len(rows) <= max(100 * len(found) for found in each.values())
