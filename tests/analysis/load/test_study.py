from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from analysis.load.runs import Problem
from analysis.load.study import NothingToAnalyse, View, by_threads, load_study, workload_digest
from analysis.pipeline import analyze
from analysis.provenance.checks import reservations
from analysis.report.methods import primary_outcome
from guest.records.codec import NewerSchemaError
from guest.records.run import HISTORY, PREDICTIONS, RECORD, Metric, decode_record
from tests import factories
from tests.faults.damage import flip


def test_the_tables_hold_what_the_runs_said(study):
    study.run(2, losses=(1.0, 0.1 + 0.2), accuracies=(0.25, 0.75), steps={1: "a", 2: "b"}, wall_s=12.5)
    loaded = load_study(study.directory)
    run = loaded.runs.iloc[0]
    assert (run.run_id, run.workload, run.variant, run.label) == (
        "lenet5/fixed-seed/cpus-2/0001",
        "lenet5",
        "fixed-seed",
        "cpus-2",
    )
    assert (run.cpus, run.intra_op, run.inter_op, run.threads, run.wall_s) == (2, 2, 2, "2", 12.5)
    assert (run.last_accuracy, run.cpu_model, run.framework_version) == (0.75, "Fabricated CPU", "2.13.0")
    assert list(loaded.epochs.train_loss) == [1.0, 0.1 + 0.2], "to the last bit"
    assert list(loaded.epochs.epoch) == [1, 2]
    assert list(loaded.steps.step) == [1, 2]
    assert loaded.metrics == {"lenet5": ("accuracy",)}
    assert loaded.problems == ()


def test_runs_are_ordered_by_number_not_by_spelling(study):
    for cpus in (16, 2, 1):
        study.run(cpus)
    study.run(16, intra_op=4)
    loaded = load_study(study.directory)
    assert list(by_threads(loaded.runs)) == ["1", "2", "16 (4 threads)", "16"]


def test_crossed_threads_have_names_of_their_own(study):
    study.run(4, intra_op=1, inter_op=2)
    assert load_study(study.directory).runs.threads.iloc[0] == "4 (1 thread, inter-op 2)"


def test_workloads_with_other_metrics_share_the_tables(study):
    study.run(1, workload="a", metrics=(Metric.F1_MACRO, Metric.ACCURACY), accuracies=(0.5, 0.8))
    study.run(1, workload="b")
    loaded = load_study(study.directory)
    assert loaded.metrics == {"a": ("f1_macro", "accuracy"), "b": ("accuracy",)}
    assert loaded.runs.set_index("workload").last_f1_macro["a"] == 0.8
    assert pd.isna(loaded.runs.set_index("workload").last_f1_macro["b"])
    assert len(loaded.epochs) == 4


def test_losses_that_are_not_finite_are_read_as_such(study):
    study.run(1, losses=(float("nan"), float("inf"), 1.0), accuracies=(0.1, 0.1, 0.1))
    losses = load_study(study.directory).epochs.train_loss
    assert np.isnan(losses[0])
    assert np.isinf(losses[1])


@pytest.mark.parametrize("folder", ["", "runs", "runs/lenet5/default/cpus-1/.0001"])
def test_no_run_says_what_to_do(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    with pytest.raises(NothingToAnalyse, match=r"no finished run in .*; run `vbstudy sweep` first"):
        load_study(tmp_path)


def test_a_folder_that_is_not_there_is_an_empty_study(tmp_path):
    with pytest.raises(NothingToAnalyse):
        load_study(tmp_path / "nowhere")


def test_only_damaged_runs_is_nothing_too_and_says_why(study):
    (study.run(1) / RECORD).write_text("{")
    with pytest.raises(NothingToAnalyse, match="cpus-1/0001: run.json: not JSON"):
        load_study(study.directory)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda run: (run / RECORD).unlink(), "run.json is missing"),
        (lambda run: (run / RECORD).write_text("[]"), "an object was expected"),
        (lambda run: flip(run / RECORD), ""),
        (lambda run: (run / HISTORY).unlink(), "history.csv is missing"),
        (lambda run: flip(run / HISTORY), "history.csv does not match its SHA-256"),
        (lambda run: (run / PREDICTIONS).write_bytes(b"PK"), "predictions.npz has 2 bytes"),
        (lambda run: (run / "log.txt").unlink(), "log.txt is missing"),
    ],
)
def test_a_damaged_run_is_left_out_and_named(study, damage, what):
    damage(study.run(1))
    study.run(1, 2)
    loaded = load_study(study.directory)
    assert list(loaded.runs.repetition) == [2]
    (problem,) = loaded.problems
    assert problem.path == "runs/lenet5/fixed-seed/cpus-1/0001"
    assert what in problem.what
    assert "vbstudy sweep" in problem.todo
    assert problem.skipped


def test_a_run_in_another_runs_place_is_foreign(study):
    study.run(1)
    folder = study.run(2)
    folder.rename(folder.with_name("0007"))
    (problem,) = load_study(study.directory).problems
    assert "the record inside is of lenet5/fixed-seed/cpus-2/0001" in problem.what
    assert "move the folder out" in problem.todo


def test_a_newer_schema_is_not_damage(study):
    path = study.run(1) / RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(NewerSchemaError, match="upgrade vbstudy"):
        load_study(study.directory)


def test_without_takes_runs_out_of_every_table(study):
    study.run(1)
    study.run(2)
    loaded = load_study(study.directory)
    problem = Problem(path="runs/lenet5/fixed-seed/cpus-1/0001", what="is bad", todo="redo")
    rest = loaded.without([problem])
    for frame in (rest.runs, rest.epochs, rest.steps):
        assert set(frame.run_id) == {"lenet5/fixed-seed/cpus-2/0001"}
    assert rest.problems == (problem,)
    assert str(problem) == "runs/lenet5/fixed-seed/cpus-1/0001: is bad (redo)"


def test_a_workload_of_which_no_run_is_left_is_not_spoken_of(study):
    study.run(1)
    (study.run(1, workload="lenet1") / PREDICTIONS).write_bytes(b"damaged")
    found = analyze(study.directory)
    assert list(found.study.metrics) == ["lenet5"]
    assert any("lenet1/fixed-seed/cpus-1/0001: predictions.npz" in str(each) for each in found.study.problems)


def test_views_name_the_columns(study):
    study.run(1)
    loaded = load_study(study.directory)
    for view in View:
        assert view.metric("accuracy") in loaded.runs
        assert view.sha256("weights") in loaded.runs
        assert view.epoch_metric("accuracy") in loaded.epochs


def test_the_fabricated_record_is_valid(study):
    assert decode_record((study.run(1) / RECORD).read_bytes()).spec.threads.cpus == 1


def errors(study, margin=""):
    """The workload `a` with the accuracy, and `b` with a mean squared error, of the same values."""
    for workload in ("a", "b"):
        study.run(1, workload=workload, accuracies=(0.5, 0.002))
    if margin:
        (study.directory / "study.toml").write_text(f"[analysis]\n{margin}\n")
    loaded = load_study(study.directory)
    runs = loaded.runs.assign(last_mse=loaded.runs.last_accuracy)
    return dataclasses.replace(loaded, runs=runs, metrics={"a": ("accuracy",), "b": ("mse",)})


def test_the_default_margin_is_of_shares_whatever_the_values_of_other_metrics(study):
    loaded = errors(study)
    assert loaded.margin("a", "accuracy") == 0.01
    assert loaded.margin("b", "mse") is None
    percent = dataclasses.replace(loaded, runs=loaded.runs.assign(last_accuracy=90.0))
    assert percent.margin("a", "accuracy") is None


def test_a_declared_margin_is_of_the_declared_metric_alone(study):
    loaded = errors(study, "primary = 'accuracy'\nmargin = 1.0")
    assert loaded.margin("a", "accuracy") == 1.0
    assert loaded.margin("b", "mse") is None
    assert primary_outcome(loaded).startswith(
        "The primary outcome was accuracy of the last model, margin of equivalence 1; mse of the last model, "
        "no margin of equivalence ("
    )


def test_a_margin_without_a_metric_is_of_shares_and_of_the_one_that_all_workloads_have(study):
    loaded = errors(study, "margin = 0.5")
    assert [loaded.margin("a", "accuracy"), loaded.margin("b", "mse")] == [0.5, None]
    (problem,) = (problem for problem in reservations(loaded) if problem.path == "study.toml")
    assert problem.what == "the margin 0.5 does not count for mse of b"
    assert loaded.only(["b"]).margin("b", "mse") == 0.5


def test_a_raised_limit_is_no_other_setting_of_a_workload():
    first, raised, other = (
        workload_digest(factories.workload(project=factories.project(**changes)), "tree")
        for changes in ({}, {"timeout_s": 9.0, "disk_limit_mib": 2}, {"command": ("python", "other.py")})
    )
    assert first == raised != other
