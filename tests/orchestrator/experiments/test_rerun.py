"""Stored runs done again: real guests, real training, small."""

import dataclasses
import json
import shutil

import pytest

from guest.records.codec import seal
from guest.records.run import RECORD, ProjectResult, Seeds, Variant, decode_record
from orchestrator.cli import main as cli
from orchestrator.errors import UsageError
from orchestrator.experiments.rerun import check_programs, difference, repeatable, sample
from orchestrator.store.store import Store
from orchestrator.study import plan, schema, snapshots
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY

DRAWN, FIXED = "net/default/cpus-1/0001", "net/fixed-seed/cpus-1/0001"
RESULT = factories.result({}, step_hashes={"1": "a" * 64, "2": "b" * 64, "16": "c" * 64})


def vbstudy(directory, *arguments):
    return cli.run(["-q", "-C", str(directory), *arguments])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """One run with fixed seeds and one with drawn ones."""
    directory = tmp_path_factory.mktemp("swept")
    text = STUDY.replace("cpus = [1, 2]", "cpus = [1]").replace("repetitions = 2", "repetitions = 1")
    (directory / "study.toml").write_text(text.replace('["fixed-seed"]', '["fixed-seed", "default"]'))
    assert vbstudy(directory, "provision") == 0
    assert vbstudy(directory, "sweep") == 0
    return directory


@pytest.mark.needs("studies")
def test_runs_with_fixed_and_with_drawn_seeds_come_out_bit_for_bit_from_an_archive(swept, tmp_path, capsys):
    archive = tmp_path / "s.zip"
    assert vbstudy(swept, "export", str(archive)) == 0
    before = listing(swept)
    capsys.readouterr()
    assert vbstudy(swept, "--json", "verify", str(archive), "--rerun", "2") == 0
    told = json.loads(capsys.readouterr().out)["rerun"]
    assert {each["run_id"] for each in told} == {DRAWN, FIXED}
    assert all(each["equal"] for each in told)
    assert "torch 2" in told[0]["computed_on"]
    assert listing(swept) == before


def listing(directory):
    """What is of lasting value."""
    found = (path.relative_to(directory) for path in directory.rglob("*"))
    return sorted(path for path in found if path.parts[0] not in ("guests", "incoming"))


@pytest.mark.needs("studies")
def test_what_does_not_come_out_the_same_ends_with_1_and_is_told(swept, tmp_path, capsys):
    directory = tmp_path / "s"
    shutil.copytree(swept, directory)
    record = decode_record((directory / "runs" / DRAWN / RECORD).read_bytes())
    result = dataclasses.replace(
        record.result,
        hashes=dataclasses.replace(record.result.hashes, weights="0" * 64),
        step_hashes={**record.result.step_hashes, "4": "0" * 64},
        environment={**record.result.environment, "cpu": {"model": "Another CPU"}},
    )
    write(directory, dataclasses.replace(record, result=result))
    record = decode_record((directory / "runs" / FIXED / RECORD).read_bytes())
    workload = dataclasses.replace(record.spec.workload, batch_size=10**6)
    write(directory, dataclasses.replace(record, spec=dataclasses.replace(record.spec, workload=workload)))
    assert vbstudy(directory, "verify", "--rerun", "3") == 1
    found = capsys.readouterr()
    assert f"OTHER BITS: {DRAWN}: weights from step 4 on; in the end weights\n" in found.out
    assert "stored: Another CPU, torch 2" in found.out
    assert "fingerprints differ in: cpu." in found.out
    assert f"failed: {FIXED}: ValueError: batch_size = 1000000" in found.out
    assert "2 of 2 repeated runs differ from the stored ones" in found.err


def write(directory, record):
    """Puts a record in its place, with a checksum that fits."""
    (directory / "runs" / record.spec.run_id / RECORD).write_text(seal(record))


@pytest.mark.needs("studies")
def test_damage_is_told_with_6_before_anything_is_done_again(swept, tmp_path, capsys):
    directory = tmp_path / "s"
    shutil.copytree(swept, directory)
    (directory / "runs" / DRAWN / "log.txt").write_text("x")
    assert vbstudy(directory, "--json", "verify", "--rerun", "1") == 6
    assert json.loads(capsys.readouterr().out)["rerun"] == []


@pytest.mark.needs("studies")
def test_without_guests_of_its_kind_nothing_can_be_done_again(swept, tmp_path, capsys):
    directory = tmp_path / "s"
    shutil.copytree(swept, directory)
    text = (directory / "guests.json").read_text()
    (directory / "guests.json").write_text(text.replace('"cpus-1"', '"cpus-7"'))
    assert vbstudy(directory, "verify", "--rerun", "1") == 2
    assert "belongs to a guest of" in capsys.readouterr().err
    (directory / "guests.json").unlink()
    assert vbstudy(directory, "verify", "--rerun", "1") == 2
    assert f"run `vbstudy -C {directory} provision` first" in capsys.readouterr().err


def test_what_is_asked_for_again_has_the_seeds_that_were_drawn():
    drawn = Seeds(initialisation=5, data_order=6, augmentation=7, dropout=8)
    spec = factories.spec(variant=Variant.DEFAULT, seeds=Seeds(), schema_version=1)
    again = repeatable(factories.record(spec, factories.result({}, seeds_used=drawn)))
    assert again.seeds == drawn
    assert again.run_id == spec.run_id
    assert again.variant is Variant.DEFAULT
    assert again.schema_version == factories.spec().schema_version


PROJECT = """
cpus = [1]
[[workload]]
name = "%s"
project = "mine"
command = ["python", "%s"]
metrics = { accuracy = { pattern = "acc: (.*)" } }
"""


def with_project(directory, script="print('acc: 1')\n", name="mine", file="train.py"):
    """A study with its snapshot, and the record of a run of it."""
    (directory / "mine").mkdir(parents=True)
    (directory / "mine" / file).write_text(script)
    study, store = schema.parse(PROJECT % (name, file)), Store(directory)
    kept = snapshots.prepare(study, store)[name]
    record = factories.record(plan.plan(study)[0], factories.result({}))
    ran = ProjectResult(
        tree_sha256=kept.tree_sha256, commit="", seed=1, overrides=(), absent=(), notes=(), packages=(),
        disk_bytes=1, weights_file_sha256="",
    )  # fmt: skip
    return study, store, dataclasses.replace(record, result=dataclasses.replace(record.result, project=ran))


@pytest.mark.parametrize("other", [{"script": "print('acc: 2')\n"}, {"name": "ours"}, {"file": "other.py"}])
def test_runs_of_an_archives_own_program_are_not_done_again_with_another_one(tmp_path, other):
    _, runs, record = with_project(tmp_path / "archive")
    check_programs(*with_project(tmp_path / "home")[:2], runs, [record])
    with pytest.raises(UsageError, match="is of another program than the workload 'mine'.*vbstudy import"):
        check_programs(*with_project(tmp_path / "other", **other)[:2], runs, [record])


def test_a_command_that_only_an_archive_names_is_not_run(tmp_path):
    study, store, record = with_project(tmp_path / "home")
    project = dataclasses.replace(record.spec.workload.project, command=("sh", "-c", "true"))
    workload = dataclasses.replace(record.spec.workload, project=project)
    record = dataclasses.replace(record, spec=dataclasses.replace(record.spec, workload=workload))
    with pytest.raises(UsageError, match="is of another program"):
        check_programs(study, store, Store(tmp_path / "archive"), [record])


LAST = "weights from step 16 on, the same in the end"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        (
            {"step_hashes": {**RESULT.step_hashes, "16": "d" * 64}},
            "weights from step 16 on, the same in the end",
        ),
        ({"step_hashes": {"1": "a" * 64}}, "weights from step 2 on, the same in the end"),
        (
            {"hashes": dataclasses.replace(RESULT.hashes, logits="0" * 64, selected_weights="0" * 64)},
            "logits, selected weights",
        ),
    ],
)
def test_a_difference_names_the_first_step_and_what_differs_in_the_end(changes, text):
    assert difference(RESULT, dataclasses.replace(RESULT, **changes)) == text


def test_only_runs_with_known_seeds_and_guests_that_are_there_are_drawn(tmp_path):
    store = Store(tmp_path)
    runs = []
    for repetition in range(1, 9):
        spec = factories.spec(cpus=1 + repetition % 2, repetition=repetition)
        seeds = Seeds() if repetition == 8 else spec.seeds
        folder = store.new_incoming()
        result = factories.result(factories.fill(folder), seeds_used=seeds)
        store.publish(folder, factories.record(spec, result))
        runs.append(spec.run_id)
    (tmp_path / "runs" / runs[1] / RECORD).write_text("damaged")
    drawn = [record.spec.repetition for record in sample(store, runs, ["cpus-1"], 9)]
    assert sorted(drawn) == [4, 6]
    assert len(sample(store, runs, ["cpus-1", "cpus-2"], 3)) == 3
    first = {sample(store, runs, ["cpus-2"], 1)[0].spec.repetition for _ in range(200)}
    assert first == {1, 3, 5, 7}


@pytest.mark.needs("studies")
def test_exact_runs_come_out_bit_for_bit_with_the_instructions_of_another_machine(
    tmp_path, capsys, monkeypatch
):
    text = STUDY.replace("[1, 2]", "[2]").replace("repetitions = 2", "repetitions = 1")
    (tmp_path / "study.toml").write_text(text.replace('["fixed-seed"]', '["exact"]'))
    assert vbstudy(tmp_path, "provision") == 0
    assert vbstudy(tmp_path, "sweep") == 0
    record = decode_record((tmp_path / "runs" / "net" / "exact" / "cpus-2" / "0001" / RECORD).read_bytes())
    assert record.result.environment["framework"]["exact"]["level"] == "machine"
    monkeypatch.setenv("VBSTUDY_EXACT_ISA", "avx2")
    assert vbstudy(tmp_path, "verify", "--rerun", "1") == 0
    assert "the same bits: net/exact/cpus-2/0001" in capsys.readouterr().out
    monkeypatch.setenv("VBSTUDY_EXACT_ISA", "none")  # which guests inherit
    assert vbstudy(tmp_path, "verify", "--rerun", "1") == 1
    assert "VBSTUDY_EXACT_ISA=none: this CPU runs" in capsys.readouterr().out
