from __future__ import annotations

import hashlib
import json

import pytest

from analysis.exchange.archive import DamagedStudyError, pack
from analysis.exchange.verify import verify
from guest.records.codec import NewerSchemaError, seal
from guest.records.run import HISTORY, LOG, RECORD, WEIGHTS
from tests import factories
from tests.analysis.diagnosis.test_traces import trace
from tests.analysis.quality.test_robustness import measure
from tests.faults.damage import flip


def test_a_whole_study_has_nothing_damaged_and_says_what_is_missing(study):
    study.usual(runs=1)
    there, gone = "lenet5/default/cpus-1/0001", "lenet5/default/cpus-1/0002"
    found = verify(study.directory, [there, gone])
    assert (found.runs, found.damaged, found.missing, found.planned) == (6, (), (gone,), 2)
    assert str(found) == "6 runs checked byte for byte: 0 damaged; 1 of 2 planned runs missing"
    assert verify(study.directory).planned is None


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda run: flip(run / WEIGHTS), "weights.safetensors does not match its SHA-256"),
        (lambda run: flip(run / LOG), "log.txt does not match its SHA-256"),
        (lambda run: (run / WEIGHTS).write_bytes(b""), "has 0 bytes"),
        (lambda run: (run / HISTORY).unlink(), "history.csv is missing"),
        (lambda run: (run / RECORD).write_text("{}"), "checksum"),
        (lambda run: (run / "extra.txt").write_text("x"), "extra.txt is no file of a run"),
        (lambda run: run.rename(run.with_name("0009")), "the record inside is of"),
    ],
)
def test_every_damage_is_found_also_in_files_that_no_analysis_reads(study, damage, what):
    study.run(2)
    damage(study.run(1))
    (problem,) = verify(study.directory).damaged
    assert "cpus-1" in problem.path
    assert what in problem.what


def test_a_hidden_file_in_the_folder_of_a_run_is_neither_damage_nor_exported(study, tmp_path):
    (study.run(1) / ".DS_Store").write_bytes(b"")
    assert verify(study.directory).damaged == ()
    assert pack(study.directory, tmp_path / "x.zip") == 1
    assert b".DS_Store" not in (tmp_path / "x.zip").read_bytes()


def test_a_link_is_no_file_of_a_run(study, tmp_path):
    run = study.run(1)
    (run / LOG).rename(tmp_path / "log.txt")
    (run / LOG).symlink_to(tmp_path / "log.txt")
    (problem,) = verify(study.directory).damaged
    assert "log.txt is not a plain file" in problem.what


def test_a_record_behind_a_link_is_damage(study, tmp_path):
    run = study.run(1)
    (run / "run.json").rename(tmp_path / "run.json")
    (run / "run.json").symlink_to(tmp_path / "run.json")
    (problem,) = verify(study.directory).damaged
    assert "not a plain file" in problem.what


def test_predictions_that_match_their_hash_and_are_no_predictions_are_damage(study, monkeypatch):
    import numpy as np

    def pickled(file, **arrays):
        np_savez(file, **arrays | {"last": np.array([{}], dtype=object)})

    np_savez = np.savez
    monkeypatch.setattr(np, "savez", pickled)
    study.run(1)
    (problem,) = verify(study.directory).damaged
    assert "allow_pickle=False" in problem.what


def test_a_file_that_belongs_to_no_run_is_named(study):
    study.run(1)
    (study.directory / "runs" / "notes.txt").write_text("x")
    (study.directory / "runs" / "lenet5" / ".writing").write_text("x")
    (problem,) = verify(study.directory).damaged
    assert (problem.path, problem.what) == ("runs/notes.txt", "belongs to no run")


def test_a_damaged_import_is_found(study):
    study.run(1)
    (study.directory / "imported").mkdir()
    (study.directory / "imported" / "a.json").write_text('{"sha256": "x"}')
    found = verify(study.directory)
    assert found.imports == 1
    assert "own checksum" in found.damaged[0].what


def test_a_project_whose_archive_is_not_the_one_taken_is_damage_and_not_exported(study, tmp_path):
    study.run(1)
    projects = study.directory / "projects"
    projects.mkdir()
    for name in ("mine", "whole"):
        (projects / f"{name}.tar").write_bytes(b"x" * 4000)
        kept = {"archive_sha256": hashlib.sha256(b"x" * 4000).hexdigest()}
        (projects / f"{name}.json").write_text(json.dumps(kept))
    assert verify(study.directory).damaged == ()
    (projects / "mine.tar").write_bytes(b"x" * 2000)
    (problem,) = verify(study.directory).damaged
    assert (problem.path, problem.what) == ("projects/mine.tar", "does not match its SHA-256")
    with pytest.raises(DamagedStudyError, match="1 damaged"):
        pack(study.directory, tmp_path / "x.zip")
    (projects / "mine.tar").unlink()
    assert verify(study.directory).damaged[0].what == "No such file or directory"
    (projects / "mine.tar").write_bytes(b"")
    (projects / "mine.json").write_text("[]")
    assert verify(study.directory).damaged[0].path == "projects/mine.json"


def what_lies_beside(study):
    """The text of each kind of file, by its name."""
    run = next(study.directory.glob("runs/*/*/*/*"))
    measure(run, (9, 8))
    robustness = (run.parents[4] / "robustness").joinpath(*run.parts[-4:]).with_suffix(".json")
    return {
        "trace/2026-1/trace.json": seal(trace()),
        "harden/net.json": seal(factories.hardening([])),
        robustness.relative_to(study.directory).as_posix(): robustness.read_text(),
        "sequential.json": '{"plan": {"until": "sd_halfwidth<0.1", "interim": [3, 6]}}',
    }


def test_what_lies_beside_runs_is_checked_too(study, tmp_path):
    study.run(1)
    files = what_lies_beside(study)
    for name, text in files.items():
        (study.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (study.directory / name).write_text(text)
    assert verify(study.directory).damaged == ()
    for name in files:
        (study.directory / name).write_text("{}")
    assert {problem.path for problem in verify(study.directory).damaged} == set(files)
    with pytest.raises(DamagedStudyError, match="4 damaged"):
        pack(study.directory, tmp_path / "x.zip")


def test_a_newer_record_is_not_damage(study):
    path = study.run(1) / RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(NewerSchemaError, match="upgrade"):
        verify(study.directory)


def test_a_newer_trace_is_not_damage(study):
    study.run(1)
    (study.directory / "trace" / "t").mkdir(parents=True)
    (study.directory / "trace" / "t" / "trace.json").write_text(seal(trace(version=99)))
    with pytest.raises(NewerSchemaError, match="upgrade"):
        verify(study.directory)
