"""The measured facts that any study must reproduce: LeNet-5 on Fashion-MNIST, all seeds fixed, in both
frameworks: bit-identical within a thread count, other weights for each of 1, 2, 4 and 8 threads, and
that from the first step on. Needs the data set (Debian: dataset-fashion-mnist); fails without it."""

import json

import pytest

from guest.datasets import datasets
from guest.records.run import Framework, decode_record
from orchestrator.cli import main as cli

pytestmark = pytest.mark.needs("fashion_mnist")

STUDY = """
cpus = [1, 2, 4, 8]
repetitions = 2
variants = ["fixed-seed"]

[[workload]]
name = "lenet5"
framework = "{framework}"
model = "lenet5"
dataset = "fashion-mnist"
epochs = 2
train_samples = 1280
test_samples = 500
momentum = 0.9
"""


@pytest.fixture(scope="module", params=Framework)
def swept(request, tmp_path_factory):
    assert datasets.find("fashion-mnist"), "install Debian's dataset-fashion-mnist"
    directory = tmp_path_factory.mktemp(request.param)
    (directory / "study.toml").write_text(STUDY.format(framework=request.param))
    for command in ("provision", "sweep"):
        assert cli.run(["-C", str(directory), "-q", command]) == 0
    return directory


def records(directory):
    paths = sorted((directory / "runs").glob("*/*/*/*/run.json"))
    return [decode_record(path.read_bytes()) for path in paths]


def test_the_set_has_as_many_samples_as_a_study_may_ask_for():
    data = datasets.load("fashion-mnist")
    assert (len(data.train.y), len(data.test.y)) == data.info.samples


def test_every_thread_count_has_one_model_and_no_two_have_the_same(swept):
    by_cpus = {}
    for record in records(swept):
        by_cpus.setdefault(record.spec.threads.cpus, set()).add(record.result.hashes.weights)
    assert {cpus: len(models) for cpus, models in by_cpus.items()} == {1: 1, 2: 1, 4: 1, 8: 1}
    assert len(set.union(*by_cpus.values())) == 4


def test_the_weights_part_at_the_first_step(swept):
    first = {record.spec.threads.cpus: record.result.step_hashes["1"] for record in records(swept)}
    assert len(set(first.values())) == 4


def test_the_study_says_so(swept, capsys):
    capsys.readouterr()
    assert cli.run(["-C", str(swept), "-q", "analyze", "--format", "json"]) == 0
    findings = {finding["id"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["F2"]["verdict"] == "supported"
    assert findings["F2"]["why"].startswith("identical within 4 of 4 thread counts (")
    assert "; across them 4 models" in findings["F2"]["why"]
    assert findings["F3"]["numbers"]["parts"]["starts in the first steps"] == "yes"
