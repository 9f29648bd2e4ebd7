"""Studies of every earlier schema are read by every command that reads runs."""

import json

import pytest

from guest.records.codec import digest
from guest.records.run import RECORD, SCHEMA_VERSION
from orchestrator.cli import main as cli
from tests.analysis.conftest import Fabricator

OFTEN = (1, SCHEMA_VERSION)  # the others at night: each takes half a minute

ADDED = {  # by schema: what its records have and older ones have not
    2: [("spec", "cpu_model")],
    3: [("isolation", "shares"), ("isolation", "contended"), ("result", "conditions")],
    4: [("spec", "tier"), ("spec", "workload", "project"), ("result", "project")],
    5: [("isolation", "host")],
    8: [("order",)],
    10: [("failures",)],
}
STUDY = """name = "fabricated"
repetitions = 2
cpus = [1, 2]
variants = ["fixed-seed"]
[[workload]]
name = "lenet5"
model = "lenet5"
dataset = "digits"
"""


def write_study(folder):
    """A study of four runs."""
    (folder / "study.toml").write_text(STUDY)
    made = Fabricator(folder)
    for cpus in (1, 2):
        for repetition in (1, 2):
            made.run(cpus, repetition)


def as_written(record, version):
    """The record as a vbstudy of that schema wrote it."""
    for places in (places for schema, places in ADDED.items() if schema > version):
        for *above, name in places:
            inside = record
            for key in above:
                inside = inside[key]
            inside.pop(name, None)
    if 3 <= version < 7:
        record["isolation"]["disturbed"] = record["isolation"].pop("contended")
    record["schema_version"] = record["spec"]["schema_version"] = version
    record.pop("record_sha256")
    return record | {"record_sha256": digest(record)}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.needs("studies", long=version not in OFTEN))
        for version in range(1, SCHEMA_VERSION + 1)
    ],
)
def test_every_command_reads_the_runs_of_an_older_schema(tmp_path, monkeypatch, capsys, version):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    for path in tmp_path.glob(f"runs/*/*/*/*/{RECORD}"):
        path.write_text(json.dumps(as_written(json.loads(path.read_text()), version)))
    for command in ("verify", "status", "plan", "analyze", "report", "export x.zip", "export mlruns"):
        assert cli.run(command.split()) == 0, (command, capsys.readouterr().err)
    assert cli.run(["verify", "x.zip"]) == 0
