import dataclasses

import pytest

from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.provenance.study_file import public_study_file, study_file_of
from analysis.report.methods import recipe
from orchestrator.cli import main as cli
from orchestrator.errors import UsageError
from orchestrator.store.store import Store
from orchestrator.study.edited import edited, refused
from orchestrator.study.plan import conditions
from orchestrator.study.schema import parse
from tests.analysis.conftest import Fabricator
from tests.orchestrator.store.test_store import publish

AS_RUN = """name = "fabricated"
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed"]
[[workload]]
name = "net"
model = "lenet5"
dataset = "digits"
epochs = 2
batch_size = 64
learning_rate = 0.1
optimizer = "sgd"
"""
PROJECT = """cpus = [1]
repetitions = 1
variants = ["default"]
[[workload]]
name = "own"
project = "mine"
command = ["python", "train.py"]
metrics = { accuracy = { report = true } }
timeout_s = 60
disk_limit_mib = 10
"""


@pytest.fixture
def study(tmp_path):
    made = Fabricator(tmp_path)
    for cpus in (1, 2):
        for repetition in (1, 2):
            made.run(cpus, repetition, workload="net")
    (tmp_path / "study.toml").write_text(AS_RUN)
    return tmp_path


def change(study, before, after):
    file = study / "study.toml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def test_the_file_of_the_runs_is_not_edited(study):
    assert edited(Store(study)) == ""
    for changed in (("repetitions = 2", "repetitions = 5"), ("cpus = [1, 2]", "cpus = [1, 2, 4]")):
        change(study, *changed)
        assert edited(Store(study)) == "", "more of the same"


def test_what_differs_is_named(study):
    change(study, "epochs = 2", "epochs = 3")
    first, second = edited(Store(study)).split("; ")
    assert first == "net/fixed-seed/cpus-1 was run with epochs = 2 (the study says 3)"
    assert second.startswith("net/fixed-seed/cpus-2 was run with")
    change(study, 'name = "net"', 'name = "other"')
    assert edited(Store(study)).startswith("net/fixed-seed/cpus-1 is not planned; ")


def test_a_project_s_limits_are_no_other_settings_and_what_is_one_is_named(tmp_path):
    store = Store(tmp_path)
    publish(store, conditions(parse(PROJECT))[0])
    store.study_file.write_text(PROJECT.replace("60", "7200").replace("= 10", "= 20"))
    assert (edited(store), refused(store)) == ("", False)
    change(tmp_path, "train.py", "main.py")
    assert edited(store) == (
        "own/default/cpus-1 was run with command = ('python', 'train.py') "
        "(the study says ('python', 'main.py'))"
    )
    with pytest.raises(UsageError, match=r"was run with command = .* \(the study says .*main.py'\)\); set"):
        store.check(conditions(parse(store.study_file.read_text()))[0])


def test_a_published_study_file_is_no_edited_one(tmp_path):
    text = PROJECT.replace('"mine"', '"/home/eve/mine"')
    store = Store(tmp_path)
    publish(store, conditions(parse(text))[0])
    store.study_file.write_text(public_study_file(text)[0])
    assert (edited(store), refused(store)) == ("", False)
    change(tmp_path, '"mine"', '"other"')
    assert edited(store) == "own/default/cpus-1 was run with project = mine (the study says other)"


@pytest.mark.parametrize("text", ["", "cpus = ["])
def test_a_file_that_is_none_is_not_compared(study, text):
    (study / "study.toml").write_text(text)
    assert edited(Store(study)) == ""
    (study / "study.toml").unlink()
    assert edited(Store(study)) == ""


def test_the_recipe_of_an_edited_study_plans_the_runs_again(study):
    change(study, 'model = "lenet5"', 'model = "mlp"')
    difference = edited(Store(study))
    analysis = analyze(study, edited=difference)
    how = recipe(analysis.study)
    assert 'model = "lenet5"' in how.study_file
    assert difference in how.note
    assert difference in str(analysis.study.problems[0])
    (study / "study.toml").write_text(how.study_file)
    assert edited(Store(study)) == ""


def test_threads_and_several_seeds_are_in_the_file_of_the_runs(tmp_path):
    made = Fabricator(tmp_path)
    for repetition, seed in ((1, 7), (2, 8)):
        for intra_op in (1, 2):
            made.run(2, repetition, workload="net", intra_op=intra_op, inter_op=1, seed=seed)
    (tmp_path / "study.toml").write_text(study_file_of(load_study(tmp_path)))
    assert "count = 2\ninitialisation = 7" in (tmp_path / "study.toml").read_text()
    assert edited(Store(tmp_path)) == ""


def planned_by(text):
    return {spec.set_id for spec in conditions(parse(text))}


def test_variants_and_cpu_models_of_workloads_are_in_the_file_of_the_runs(tmp_path):
    made = Fabricator(tmp_path)
    for model in ("Haswell", "Skylake-Client,-avx2"):
        for cpus in (1, 2):
            made.run(cpus, workload="a", cpu_model_asked=model)
            made.run(cpus, workload="a", variant="exact", cpu_model_asked=model)
            made.run(cpus, workload="b", cpu_model_asked=model)
    runs = load_study(tmp_path)
    runs = dataclasses.replace(runs, runs=runs.runs.assign(provider="qemu"))
    assert planned_by(study_file_of(runs)) == set(runs.runs.set_id)


def test_a_file_of_the_runs_that_plans_more_says_so(tmp_path):
    made = Fabricator(tmp_path)
    made.run(2)
    made.run(4)
    made.run(4, intra_op=2)
    text = study_file_of(load_study(tmp_path))
    more = planned_by(text) - {"lenet5/fixed-seed/cpus-2", "lenet5/fixed-seed/cpus-4"}
    assert len(more) == 2
    assert "# It plans 1 condition without a run here.\n" in text


@pytest.mark.needs("studies")
@pytest.mark.parametrize("arguments", ["verify", "export out.zip", "analyze --format csv", "status", "plan"])
def test_every_command_that_reads_both_names_the_difference(study, capsys, monkeypatch, arguments):
    monkeypatch.chdir(study)
    change(study, "epochs = 2", "epochs = 3")
    cli.run(arguments.split())
    assert "epochs = 2 (the study says 3)" in capsys.readouterr().err
