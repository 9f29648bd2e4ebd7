import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.projects.hooks.vbstudy_watch import VALUE
from guest.projects.numbers import Patterns
from guest.records.run import MetricSource
from orchestrator.errors import UsageError
from orchestrator.programs import try_study
from orchestrator.programs.try_study import Tried, study
from orchestrator.study import schema
from vbstudy import caches

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
# What `try` names: numbers that are printed, with or without their place, and those in files.
NAMES = st.one_of(
    st.sampled_from(["loss", "epoch", "train_loss", "test_loss", "loss @ train.py:3", "model_sha256"]),
    TEXT,
    st.builds("{}: {}".format, TEXT, TEXT),
)


def workload(*metrics: str, folder: str = "/home/u/exp", command=("python", "train.py")):
    tried = Tried(
        schema_version=1,
        folder=folder,
        command=command,
        seed=1,
        threads=(1, 2),
        framework="",
        metrics=metrics,
        weights="",
        predictions="",
    )
    return schema.parse(study(tried, "study")).workload[0]


@given(st.lists(NAMES, max_size=6), TEXT.filter(lambda name: "/" not in name))
def test_a_study_of_any_program_is_accepted(metrics, folder):
    assert workload("accuracy", *metrics, folder=f"/home/{folder}").metrics["accuracy"].pattern is not None


def test_a_number_whose_name_has_a_nul_is_left_out():
    assert set(workload("accuracy", "pre\0cision", "out.json: re\0call").metrics) == {"accuracy"}


@given(st.lists(NAMES.filter(lambda name: ": " not in name), min_size=1, max_size=3))
def test_each_number_that_is_printed_has_a_name_of_its_own(metrics):
    assert len(workload(*metrics).metrics) == len({name.partition(" @ ")[0] for name in metrics})


@pytest.mark.parametrize(
    ("printed", "names"),
    [
        (["loss"], ["final_loss"]),
        (["loss", "accuracy"], ["final_loss", "accuracy"]),
        (["train_loss @ a.py:1", "test_loss"], ["final_train_loss", "final_test_loss"]),
        (["train_loss", "accuracy"], ["train_loss", "accuracy"]),
        (["m.json: 5-shot acc", "m.json: 1"], ["final_5_shot_acc", "final_1"]),
        (["acc @ a.py:1", "acc @ a.py:9", "m.json: acc"], ["acc", "acc_2"]),
        (["loss (train)", "R²"], ["loss_train", "r2"]),
        (["vbstudy.report.metric: f1", "vbstudy.report.metric: a b"], ["f1"]),
        (["vbstudy.report.metric: train_loss", "loss"], ["train_loss", "final_loss"]),
        (["acc @ a.py:1", "vbstudy.report.metric: acc", "/m.json: b", "../m.json: c", "d"], ["acc", "d"]),
        (["m.json: " + "a" * 70, "m.json: " + "a" * 71], ["a" * 50, "a" * 50 + "_2"]),
    ],
)
def test_metrics_get_names_that_a_study_accepts(printed, names):
    assert list(workload(*printed).metrics) == names


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("Loss: nan", math.nan),
        ("loss=-inf, accuracy 0.5", -math.inf),
        ("'loss': [1.5e-3]", 0.0015),
        ("the loss is 2", 2.0),
        ("loss every 10 steps", None),
        ("loss information", None),
        ("loss 3/10", None),
        ("The loss is 0.910.", 0.91),
        ("loss: 1.2.3", None),
        ("{'loss': np.float64(0.91)}", 0.91),
        ("loss: tensor(0.25, grad_fn=<A>)", 0.25),
        ("loss: 9920/10000", 9920.0),
        ("loss: 12/03/2024", None),
        ("loss: 1,334.50", 1334.5),
        ("loss: [0.91, 0.93]", 0.91),
        ("loss10: 3", None),
        ("'loss': array([0.93, 0.91])", 0.93),
        ("loss: tf.Tensor(0.5, shape=(), dtype=float32)", 0.5),
        ("loss = [[0.5 0.6]]", 0.5),
        ("│ loss       │ 0.91   │", 0.91),
        ("| loss | 3/10 |", None),
    ],
)
def test_a_study_reads_the_numbers_that_try_sees(line, value):
    (metric,) = workload("loss").metrics.values()
    found = Patterns([MetricSource(name="loss", pattern=metric.pattern)]).line(line, 0.0)
    assert found == ({} if value is None else {"loss": pytest.approx(value, nan_ok=True)})


@pytest.mark.parametrize(
    ("lines", "pattern"),
    [
        (["Epoch 1 Loss: 0.5 val loss: 0.6", "loss: nan"], r"(?i)\b(?<!val )loss" + try_study.PLAIN),
        (["loss: 1,334.5 val loss: 0.6"], None),
        (["loss 3/10", "loss: 0.5 val loss: 0.6"], None),
        (["a bar wrote loss elsewhere"], None),
    ],
)
def test_a_pattern_is_short_where_it_finds_the_same(tmp_path, monkeypatch, lines, pattern):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    compared = [
        SimpleNamespace(name=name, kind="number", result=True) for name in ("loss @ a.py:1", "val loss")
    ]
    report = SimpleNamespace(
        verdicts=(SimpleNamespace(compared=compared),), command=("a",), seed=1, software={}
    )
    try_study.note(report, tmp_path, [1, 2], (), lines)
    text = study(try_study.last(), "study")
    found = schema.parse(text).workload[0].metrics["final_loss"].pattern
    if pattern is None:
        assert found.endswith(VALUE)
    else:
        assert found == pattern
        assert f"{{pattern = '{pattern}'}}" in text


def test_a_reported_metric_is_read_as_such():
    metrics = workload("vbstudy.report.metric: mcc", "vbstudy.report.metric: train_loss").metrics
    assert [(name, each.report) for name, each in metrics.items()] == [("mcc", True), ("train_loss", True)]
    with pytest.raises(UsageError, match="a study needs a metric"):
        workload("vbstudy.report.metric: train_loss")


def test_a_name_that_ends_another_is_not_read_from_that_one():
    metrics = workload("loss @ a.py:1", "acc", "val loss", "top-acc", "val acc").metrics
    patterns = Patterns([MetricSource(name=name, pattern=each.pattern) for name, each in metrics.items()])
    found = patterns.line("epoch 1 loss 0.5 acc 0.4 Val loss 0.6 val acc 0.3 top-acc 0.7", 0.0)
    assert found == {"final_loss": 0.5, "acc": 0.4, "val_loss": 0.6}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("_exp", "exp"),
        ("My Program", "my-program"),
        ("Übung", "ubung"),
        ("日本", "program"),
        ("a" * 99, "a" * 64),
    ],
)
def test_a_folder_of_any_name_names_its_workload(folder, name):
    assert workload("accuracy", folder=str(Path("/home/u", folder))).name == name


def test_a_python_in_an_environment_that_no_copy_has_is_named_by_its_absolute_path(tmp_path):
    for each in (".venv/bin/python", "tools/python"):
        (tmp_path / each).parent.mkdir(parents=True)
        (tmp_path / each).touch(0o755)
    commands = [(each, "train.py") for each in (".venv/bin/python", "tools/python", "absent/.venv/python")]
    made = [workload("accuracy", folder=str(tmp_path), command=each).command for each in commands]
    assert made == [(str(tmp_path / ".venv/bin/python"), "train.py"), *commands[1:]]


def test_what_was_tried_is_for_its_owner_alone_also_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seen, sync = [], os.fsync

    def seeing(number: int) -> None:
        seen.append(os.fstat(number).st_mode & 0o777)
        sync(number)

    monkeypatch.setattr("os.fsync", seeing)
    report = SimpleNamespace(verdicts=(), command=("python", "t.py", "--token=x"), seed=1, software={})
    try_study.note(report, tmp_path, [1, 2])
    assert try_study.last().command == report.command
    assert [*seen, (tmp_path / "vbstudy" / "tried.json").stat().st_mode & 0o777] == [0o600, 0o600]


def test_where_it_cannot_be_noted_what_was_tried_the_answer_is_not_lost(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(caches, "home", lambda: (_ for _ in ()).throw(caches.CacheError("no home")))
    try_study.note(SimpleNamespace(verdicts=(), command=("a",), seed=1, software={}), tmp_path, [1])
