"""The scripts of examples/, as workloads of a study on two thread counts."""

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import tomlkit

from guest.records.run import RECORD, decode_record
from orchestrator.cli import main as cli

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = ("torch-loop", "keras-fit")
TRAINERS = {"lightning": "lightning", "hf-trainer": "transformers"}


def sweep(directory: Path, names: tuple[str, ...], cpus: list[int], epochs: int) -> dict:
    """The examples of these names, one run on each thread count, with few epochs."""
    shutil.copytree(EXAMPLES, directory)
    study = tomlkit.parse((EXAMPLES / "study.toml").read_text())
    kept = [table for table in study["workload"] if table["name"] in names]
    for table in kept:
        words = [word for word in table["command"] if word not in ("--epochs", "3")]
        table["command"] = [*words, *(["--epochs"] if table["name"] == "torch-loop" else []), str(epochs)]
    study["workload"], study["cpus"], study["repetitions"] = tomlkit.aot(), cpus, 1
    for table in kept:
        study["workload"].append(table)
    (directory / "study.toml").write_text(tomlkit.dumps(study))
    assert cli.run(["-C", str(directory), "-q", "provision"]) == 0
    code = cli.run(["-C", str(directory), "-q", "sweep"])
    failed = [json.loads(path.read_text())["message"] for path in directory.glob("failed/**/error.json")]
    assert (code, failed) == (0, [])
    return {
        (record.spec.workload.name, record.spec.threads.cpus): record.result
        for record in (decode_record(path.read_bytes()) for path in directory.glob(f"runs/*/*/*/*/{RECORD}"))
    }


def check(results: dict, names: tuple[str, ...], cpus: list[int]) -> None:
    assert set(results) == {(name, count) for name in names for count in cpus}
    for (name, count), result in results.items():
        assert result.hashes.weights, name
        assert result.hashes.predictions, name
        assert 0 < result.last["accuracy"] <= 1
        assert not [note for note in result.project.notes if "asked for" in note]
        seen = result.environment["threads_in_force"]
        assert next(v for k, v in seen.items() if k in ("torch", "tensorflow"))["intra_op"] == count


@pytest.mark.needs("studies")
def test_the_plain_examples_run_unmodified(tmp_path):
    results = sweep(tmp_path / "study", PLAIN, [2], epochs=1)
    check(results, PLAIN, [2])


def test_the_study_of_the_examples_names_every_example():
    study = tomllib.loads((EXAMPLES / "study.toml").read_text())
    assert {table["project"] for table in study["workload"]} == {
        p.name for p in EXAMPLES.iterdir() if p.is_dir()
    }


@pytest.mark.needs("trainers")
def test_the_examples_with_trainers_run_unmodified(tmp_path):
    missing = [library for library in TRAINERS.values() if importlib.util.find_spec(library) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    names = tuple(TRAINERS)
    results = sweep(tmp_path / "study", names, [1, 2], epochs=2)
    check(results, names, [1, 2])
    # transformers seeds itself, whatever a study says: it is told.
    overrides = {o.what for o in results["hf-trainer", 1].project.overrides}
    assert "torch.manual_seed" in overrides
