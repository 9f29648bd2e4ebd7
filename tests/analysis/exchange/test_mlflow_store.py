"""Runs as MLflow's file store: read back by our own import, and by MLflow's client (`--needs tools`)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from analysis.exchange.mlflow_store import write_mlflow
from analysis.exchange.readers import read_results
from analysis.load.study import StudyData, load_study
from guest.records.run import Metric
from tests.analysis.provenance.test_overrides import as_project

AT = "2025-01-01T00:00:00Z"


@pytest.fixture
def loaded(study) -> StudyData:
    for cpus in (1, 4):
        for repetition in (1, 2):
            study.run(
                cpus,
                repetition,
                intra_op=2 if cpus == 4 else None,
                accuracies=(1 / 3, 0.7 + repetition / 37),
                losses=(1.25, 0.1 * repetition),
                metrics=(Metric.ACCURACY, Metric.F1_MACRO),
                wall_s=10 + repetition / 7,
            )
    return load_study(study.directory)


def expected(study: StudyData) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["intra_op"], row["repetition"]): row for row in study.runs.to_dict("records")}


def test_what_is_exported_is_imported_with_equal_values(loaded, tmp_path):
    assert write_mlflow(loaded, tmp_path / "mlruns") == 4
    found = read_results(tmp_path / "mlruns", "other", AT)
    assert found.kind == "mlflow"
    runs = {(run.threads, run.repetition): run for run in found.runs}
    assert set(runs) == set(expected(loaded))
    for key, row in expected(loaded).items():
        run = runs[key]
        assert (run.workload, run.variant, run.wall_s) == ("lenet5", "fixed-seed", row["wall_s"])
        for metric in ("accuracy", "f1_macro"):
            assert run.metrics[f"last_{metric}"] == row[f"last_{metric}"]
            assert run.metrics[f"selected_{metric}"] == row[f"selected_{metric}"]
        mine = loaded.epochs[loaded.epochs.run_id == row["run_id"]]
        assert run.history["train_loss"] == tuple(mine.train_loss)
        assert run.history["test_accuracy"] == tuple(mine.test_accuracy)


def test_a_crossed_study_is_imported_with_its_conditions_apart(study, tmp_path):
    for cpus, threads in ((2, 1), (2, 2), (4, 1), (4, 2), (4, 4)):
        study.run(cpus, intra_op=threads)
    write_mlflow(load_study(study.directory), tmp_path / "mlruns")
    found = read_results(tmp_path / "mlruns", "other", AT).runs
    assert len(found) == 5
    assert {r.threads for r in found if r.variant == "fixed-seed cpus-2"} == {1, 2}
    assert {r.threads for r in found if r.variant == "fixed-seed cpus-4"} == {1, 2, 4}


def test_the_same_study_gives_the_same_files_and_nothing_is_overwritten(loaded, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_mlflow(loaded, tmp_path / name / "mlruns")
    a, b = (
        {p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("a", "b")
    )
    assert a.keys() == b.keys()
    assert {p for p in a if a[p] != b[p]} <= {p for p in a if p.name == "meta.yaml"}  # they hold the address
    with pytest.raises(FileExistsError, match="name another folder"):
        write_mlflow(loaded, tmp_path / "a" / "mlruns")
    assert not list((tmp_path / "a").glob(".mlruns-*"))


def test_a_loss_that_is_not_finite_is_kept_as_it_is(study, tmp_path):
    study.run(1, losses=(1.0, float("nan")))
    write_mlflow(load_study(study.directory), tmp_path / "mlruns")
    (path,) = (tmp_path / "mlruns").glob("*/*/metrics/train_loss")
    assert [line.split()[1] for line in path.read_text().splitlines()] == ["1.0", "nan"]


def metrics_of(target: Path, workload: str) -> dict[str, str]:
    """The last value of each metric of the workload's one run."""
    (folder,) = (p.parents[1] for p in target.glob("*/*/params/workload") if p.read_text() == workload)
    return {p.name: p.read_text().split()[-2] for p in (folder / "metrics").iterdir()}


def test_user_projects_are_exported_alone_and_beside_networks_without_values_they_lack(study, tmp_path):
    as_project(study.run(1, workload="mine"))
    write_mlflow(load_study(study.directory), tmp_path / "alone")
    found = metrics_of(tmp_path / "alone", "mine")
    assert found["last_accuracy"] == "0.75"
    assert "selected_accuracy" not in found
    study.run(1, workload="ours")
    write_mlflow(load_study(study.directory), tmp_path / "mixed")
    assert metrics_of(tmp_path / "mixed", "mine") == found
    assert metrics_of(tmp_path / "mixed", "ours")["selected_accuracy"] == "0.75"
    assert "nan" not in found.values()


@pytest.mark.needs("tools")
def test_mlflows_own_client_reads_the_same_values(loaded, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    write_mlflow(loaded, tmp_path / "mlruns")
    client = tracking.MlflowClient((tmp_path / "mlruns").as_uri())
    (experiment,) = client.search_experiments(filter_string="name = 'fabricated'")
    runs = client.search_runs([experiment.experiment_id])
    found = {(int(run.data.params["threads"]), int(run.data.params["repetition"])): run for run in runs}
    assert set(found) == set(expected(loaded))
    for key, row in expected(loaded).items():
        run = found[key]
        assert run.info.status == "FINISHED"
        assert run.info.run_name == run.data.tags["vbstudy.run"] == row["run_id"]
        assert run.data.metrics["last_accuracy"] == row["last_accuracy"]
        assert math.isclose(run.data.metrics["wall_s"], row["wall_s"], rel_tol=0)
        history = client.get_metric_history(run.info.run_id, "train_loss")
        mine = loaded.epochs[loaded.epochs.run_id == row["run_id"]]
        assert [(m.step, m.value) for m in history] == list(zip(mine.epoch, mine.train_loss, strict=True))
