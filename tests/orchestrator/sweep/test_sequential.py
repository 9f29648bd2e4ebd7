"""Sweeps that add runs until the answer is clear: with real guests and real training, small."""

import json

import pytest

from analysis.inference.sequential import Decision
from orchestrator.cli import main as cli
from orchestrator.engine import Summary
from orchestrator.errors import StoreError, UsageError
from orchestrator.store.store import Store
from orchestrator.study.schema import parse
from orchestrator.sweep import sequential
from orchestrator.sweep.command import SweepOutcome, summaries
from orchestrator.sweep.progress import composite
from orchestrator.sweep.sequential import (
    Interim,
    Sequential,
    keep_answers,
    keep_plan,
    parse_rule,
    sweep_until,
)
from tests import factories
from tests.orchestrator.store.test_store import publish
from tests.orchestrator.sweep.test_pipeline import STUDY, records, vbstudy


@pytest.fixture
def added(monkeypatch):
    """The runs that sweeps were asked for, in order; nothing is trained."""
    rounds = []

    def run_missing(specs, store, engine, observer, starting):
        starting()
        rounds.append([spec.run_id.removeprefix("net/fixed-seed/") for spec in specs])
        return Summary(planned=len(specs), done_now=len(specs))

    monkeypatch.setattr(sequential, "run_missing", run_missing)
    return rounds


class Engine:
    def __init__(self, *names):
        self.names = names

    def has_guest(self, name):
        return name in self.names

    def run(self, specs, observer, summary, checked):
        raise KeyboardInterrupt


@pytest.fixture
def until(tmp_path):
    def sweep(interim, open_after, guests=("cpus-1", "cpus-2")):
        rule = Sequential(
            rule="sd_halfwidth<0.1",
            interim=interim,
            decide=lambda done: Decision(answers=(), open_sets=open_after(done)),
        )
        observer = composite()
        summary, found = sweep_until(parse(STUDY), Store(tmp_path), Engine(*guests), observer, rule, str)
        outcomes.append(SweepOutcome(summary=summary, interim=found))
        return summary

    outcomes = sweep.outcomes = []
    return sweep


def test_runs_are_added_to_the_open_sets_only(added, until):
    still = {1: {"net/fixed-seed/cpus-2"}, 2: {"net/fixed-seed/cpus-2"}, 3: set()}
    summary = until((1, 2, 4, 9), lambda done: frozenset(still[done]))
    assert added == [["cpus-1/0001", "cpus-2/0001"], ["cpus-2/0002"], ["cpus-2/0003", "cpus-2/0004"]]
    assert (summary.planned, summary.done_now) == (5, 5)


def test_the_cap_ends_it(added, until):
    until((1, 2), lambda done: frozenset({"net/fixed-seed/cpus-1"}))
    assert [len(runs) for runs in added] == [2, 1]


def test_an_open_set_without_its_guest_is_asked_for_once(added, until):
    summary = until((1, 2, 3), lambda done: frozenset({"net/fixed-seed/cpus-2"}), guests=("cpus-1",))
    assert added == [["cpus-1/0001", "cpus-2/0001"]]
    assert summary.without_guest == ["cpus-2"]


def test_an_open_set_without_its_guest_is_analysed_with_the_runs_that_are_stored(tmp_path, added, until):
    store = Store(tmp_path)
    for repetition in (1, 2):
        publish(store, factories.spec(2, repetition, workload=factories.workload(name="net")))
    summary = until((1, 2, 3), lambda done: frozenset({"net/fixed-seed/cpus-2"}), guests=("cpus-1",))
    assert added == [["cpus-1/0001", "cpus-2/0001"], ["cpus-2/0002"]]
    assert summary.without_guest == ["cpus-2"]


def test_conditions_without_runs_are_not_clear(tmp_path, added, until):
    """Of a guest that is not there, or whose every run failed: no question was asked of them."""
    until((1, 2), lambda done: frozenset(), guests=("cpus-1",))
    publish(Store(tmp_path), factories.spec(1, workload=factories.workload(name="net")))
    until((1, 2), lambda done: frozenset(), guests=("cpus-1",))
    none, one = (summaries(outcome, Store(tmp_path))[1] for outcome in until.outcomes)
    of = "interim analysis 1 of 2, not compared, because there are no runs yet: "
    assert f"{of}net/fixed-seed/cpus-1, net/fixed-seed/cpus-2; next:" in none
    assert f"{of}net/fixed-seed/cpus-2; next:" in one


def test_a_study_of_one_condition_has_nothing_to_compare(tmp_path):
    found = Interim(rule="decided(tests)", interim=(3, 30), interim_done=1)
    _, text = summaries(SweepOutcome(summary=Summary(), interim=found), Store(tmp_path))
    assert "interim analysis 1 of 2, there is nothing to compare; next:" in text


def test_a_study_keeps_its_plan_of_interim_analyses(tmp_path):
    store = Store(tmp_path)
    keep_plan(store, (3, 10), "sd_halfwidth<0.1")
    keep_plan(store, (3, 10), "sd_halfwidth<0.1")
    keep_answers(store, 1, [])
    keep_plan(store, (3, 10), "sd_halfwidth<0.1")
    for interim, rule in (((3, 11), "sd_halfwidth<0.1"), ((3, 10), "sd_halfwidth<0.2")):
        with pytest.raises(UsageError, match="remove the file to begin again"):
            keep_plan(store, interim, rule)
    store.sequential_file.write_text("[")
    with pytest.raises(StoreError, match="remove it to begin again"):
        keep_plan(store, (3, 10), "sd_halfwidth<0.1")


def test_a_sweep_that_is_refused_binds_the_study_to_no_plan(tmp_path, until):
    with pytest.raises(UsageError, match="there is no guest"):
        until((1, 2), frozenset, guests=())
    assert not Store(tmp_path).sequential_file.exists()
    with pytest.raises(KeyboardInterrupt):
        until((1, 3), frozenset)
    with pytest.raises(UsageError, match="another plan of interim analyses"):
        until((1, 2), frozenset)


def test_a_plan_that_was_stored_under_its_former_name_is_continued(tmp_path):
    store = Store(tmp_path)
    plan = {"until": "sd_halfwidth<0.1", "looks": [3, 10]}
    store.sequential_file.write_text(json.dumps({"plan": plan, "looks_done": 1, "answers": []}))
    keep_plan(store, (3, 10), "sd_halfwidth<0.1")
    with pytest.raises(UsageError, match="another plan of interim analyses"):
        keep_plan(store, (3, 11), "sd_halfwidth<0.1")
    keep_answers(store, 2, [])
    kept = json.loads(store.sequential_file.read_text())
    assert kept["plan"]["interim"] == [3, 10]
    assert kept["interim_done"] == 2


def test_a_rule_knows_how_many_runs_a_variant_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.inference.sequential.decider", lambda *given: given[-1])
    study = parse(f"repetitions_at_most = {{ fixed-seed = 3 }}\n{STUDY}")
    assert parse_rule(study, Store(tmp_path), 2, "decided(tests)", None).decide == {"fixed-seed": 3}


def test_what_is_not_clear_is_named_with_the_runs_that_it_has(tmp_path):
    def unclear(name, runs):
        return {"a": f"net/{name}/cpus-1", "b": f"net/{name}/cpus-2", "clear": False, "runs": runs}

    answers = (unclear("exact", 3), unclear("default", 30), unclear("control", 9) | {"clear": True})
    found = Interim(
        rule="decided(tests)", interim=(3, 30), interim_done=2, answers=answers,
        open_sets=("net/default/cpus-1", "net/default/cpus-2"),
    )  # fmt: skip
    _, text = summaries(SweepOutcome(summary=Summary(), interim=found), Store(tmp_path))
    assert (
        "interim analysis 2 of 2, not clear after 3 runs: net/exact/cpus-1, net/exact/cpus-2; "
        "not clear after 30 runs: net/default/cpus-1, net/default/cpus-2; next:"
    ) in text
    assert "everything" not in text


@pytest.mark.needs("studies")
def test_a_sweep_stops_where_the_answer_is_clear_and_goes_on_where_it_was_killed(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY.replace('"fixed-seed"', '"fixed-seed", "default"'))
    assert vbstudy(tmp_path, "-q", "provision", "--cpus", "1") == 0
    command = ("--json", "-q", "sweep", "--until", "mean_halfwidth<0.0001", "--max-runs", "3")
    # What a sweep leaves that was killed before its first interim analysis:
    assert vbstudy(tmp_path, "-q", "sweep", "--runs", "1") == 0
    capsys.readouterr()
    assert vbstudy(tmp_path, *command) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["interim"], first["interim_done"], first["done_now"], first["done_before"]) == (
        [2, 3],
        2,
        3,
        2,
    )
    assert first["open_sets"] == ["net/default/cpus-1"]
    counts = [sum(variant in run for run in records(tmp_path)) for variant in ("fixed-seed", "default")]
    assert counts == [2, 3], "copies tell nothing new; free seeds are still open at the cap"
    assert vbstudy(tmp_path, *command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["done_now"], again["answers"]) == (0, first["answers"])
    assert json.loads((tmp_path / "sequential.json").read_text())["answers"] == first["answers"]
    assert cli.run(["-C", str(tmp_path), "sweep", "--until", "decided(tests)"]) == 2
