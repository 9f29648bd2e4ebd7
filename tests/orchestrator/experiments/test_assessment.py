"""Robustness of stored models: which are measured against which, and real studies, small."""

import dataclasses
import json

import pytest

from analysis.pipeline import analyze
from guest.records.robustness import STRENGTHS, Robustness, decode
from guest.records.run import WEIGHTS, Seeds
from orchestrator.experiments.assessment import Assessment, assessments, is_current
from orchestrator.store.store import Store
from tests import factories
from tests.needs import at_night
from tests.orchestrator.sweep.test_pipeline import STUDY, records, vbstudy


def record(cpus: int, repetition: int, **changes):
    """A record whose weights are named after the run."""
    made = factories.record(factories.spec(cpus, repetition, **changes), factories.result({}))
    hashes = dataclasses.replace(made.result.hashes, weights=made.spec.run_id)
    return dataclasses.replace(made, result=dataclasses.replace(made.result, hashes=hashes))


def targets(found: list[Assessment]) -> dict[str, list[str]]:
    def short(r):
        return r.spec.run_id.removeprefix("lenet5/fixed-seed/cpus-")

    return {short(task.record): [short(target) for target in task.targets] for task in found}


def test_targets_are_the_next_repetition_and_the_same_one_on_other_threads():
    runs = [record(cpus, repetition) for cpus in (1, 2, 4) for repetition in (1, 2)][:-1]
    assert targets(assessments(runs)) == {
        "1/0001": ["1/0002", "2/0001", "4/0001"],
        "1/0002": ["1/0001", "2/0002"],
        "2/0001": ["2/0002", "1/0001", "4/0001"],
        "2/0002": ["2/0001", "1/0002"],
        "4/0001": ["1/0001", "2/0001"],
    }


def test_a_target_on_the_same_threads_has_the_same_seed():
    first, second = (Seeds(initialisation=n, data_order=n, augmentation=n, dropout=n) for n in (1, 2))
    runs = [record(cpus, n, seeds=second if n == 2 else first) for cpus in (1, 2) for n in (1, 2, 3)]
    found = targets(assessments(runs))
    assert found["1/0001"] == ["1/0003", "2/0001"]
    assert found["1/0002"] == ["2/0002"]


def test_models_of_other_workloads_are_no_targets():
    other = record(2, 1, workload=factories.workload(name="other"))
    assert [task.targets for task in assessments([record(1, 1), other])] == [(), ()]


def test_a_result_is_current_only_for_its_model_and_its_targets():
    task = assessments([record(1, 1), record(2, 1)])[0]
    assert not is_current(None, task)
    stored = Robustness(
        run_id="", weights=task.record.result.hashes.weights, seed=20210, samples=0, noise=(), fgsm=(),
        transfer=(), not_applicable="words",
    )  # fmt: skip
    assert is_current(stored, task)
    assert not is_current(dataclasses.replace(stored, weights="another"), task)
    assert not is_current(dataclasses.replace(stored, seed=1), task)
    assert not is_current(dataclasses.replace(stored, not_applicable=""), task)


def results(directory):
    paths = sorted((directory / "robustness").glob("*/*/*/*.json"))
    return {str(p.relative_to(directory / "robustness"))[:-5]: decode(p.read_bytes()) for p in paths}


@pytest.mark.needs("studies")
@pytest.mark.parametrize("framework", ["torch", at_night("studies", "tensorflow")])
def test_a_finished_study_is_measured_once_and_again_where_something_is_missing(tmp_path, capsys, framework):
    text = STUDY.replace('dataset = "digits"', f'dataset = "digits"\nframework = "{framework}"')
    (tmp_path / "study.toml").write_text(text.replace('"fixed-seed"', '"default"'))
    assert vbstudy(tmp_path, "-q", "provision", "--cpus", "1") == 0
    assert vbstudy(tmp_path, "-q", "sweep") == 0
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    command = ("-q", "--json", "sweep", "--robustness")
    capsys.readouterr()
    assert vbstudy(tmp_path, *command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["robustness"] == {"now": 2, "before": 0, "not_applicable": 0, "failed": []}
    found = results(tmp_path)
    stored = records(tmp_path)
    assert list(found) == list(stored) == ["net/default/cpus-1/0001", "net/default/cpus-1/0002"]
    for run, result in found.items():
        assert result.weights == stored[run].result.hashes.weights
        assert [point.strength for point in result.fgsm] == list(STRENGTHS)
        assert result.noise[0] == result.fgsm[0]
        assert result.noise[0].correct / result.samples == stored[run].result.last["accuracy"]
        assert {t.run_id for t in result.transfer} == set(found) - {run}
        assert result.fgsm[-1].correct < result.fgsm[0].correct
    # One is lost, one damaged: both are measured again and come out as before.
    first, second = (tmp_path / "robustness" / f"{run}.json" for run in found)
    first.unlink()
    second.write_text(second.read_text().replace('"samples": 100', '"samples": 1'))
    assert vbstudy(tmp_path, *command) == 0
    assert json.loads(capsys.readouterr().out)["robustness"]["now"] == 2
    assert results(tmp_path) == found
    assert vbstudy(tmp_path, *command) == 0
    again = json.loads(capsys.readouterr().out)["robustness"]
    assert (again["now"], again["before"]) == (0, 2)
    after = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert after == before, "a published run is never edited"
    tables = analyze(tmp_path).tables
    assert len(tables["robustness"].frame) == 2 * len(STRENGTHS)
    assert len(tables["transfer"].frame) == len(STRENGTHS) - 1


@pytest.mark.needs("studies")
def test_words_are_told_to_be_not_applicable_and_other_weights_fail(tmp_path, capsys):
    words = STUDY[STUDY.index("[[workload]]") :].replace('"net"', '"words"').replace("lenet1", "lstm")
    (tmp_path / "study.toml").write_text(STUDY + words.replace("digits", "headlines"))
    assert vbstudy(tmp_path, "-q", "provision", "--cpus", "1") == 0
    assert vbstudy(tmp_path, "-q", "sweep", "--runs", "1") == 0
    store = Store(tmp_path)
    net, lstm = sorted(store.records(), key=lambda r: r.spec.workload.name)
    assert [net.spec.workload.name, lstm.spec.workload.name] == ["net", "words"]
    # Weights that are not those of the record: the last number is another.
    path = store.folder(net.spec) / WEIGHTS
    kept = path.read_bytes()
    path.write_bytes(kept[:-4] + b"\0\0\0\0")
    from orchestrator.experiments import assessment
    from orchestrator.inventory import read_inventory
    from orchestrator.providers import make
    from orchestrator.study.schema import load

    study, said = load(store.study_file), []
    done = assessment.measure(
        study, store, make(study, store), read_inventory(store.guests_file), said.append
    )
    assert done.failed == [net.spec.run_id]
    assert any("not those that its record names" in line for line in said)
    assert store.robustness.read(net.spec.run_id) is None
    path.write_bytes(kept)
    capsys.readouterr()
    assert vbstudy(tmp_path, "-q", "sweep", "--runs", "1", "--robustness") == 0
    assert "robustness of 1 model measured, 0 measured before, not applicable to 1" in capsys.readouterr().out
    assert "headlines is text data" in store.robustness.read(lstm.spec.run_id).not_applicable
