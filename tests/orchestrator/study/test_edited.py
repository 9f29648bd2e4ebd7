import pytest

from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.provenance.study_file import study_file_of
from analysis.report.methods import recipe
from orchestrator.cli import main as cli
from orchestrator.store.store import Store
from orchestrator.study.edited import edited
from tests.analysis.conftest import Fabricator

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


@pytest.mark.needs("studies")
@pytest.mark.parametrize("arguments", ["verify", "export out.zip", "analyze --format csv", "status", "plan"])
def test_every_command_that_reads_both_names_the_difference(study, capsys, monkeypatch, arguments):
    monkeypatch.chdir(study)
    change(study, "epochs = 2", "epochs = 3")
    cli.run(arguments.split())
    assert "epochs = 2 (the study says 3)" in capsys.readouterr().err
