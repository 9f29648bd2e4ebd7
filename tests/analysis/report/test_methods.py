from __future__ import annotations

import dataclasses
import os
import tomllib

import numpy as np
import pytest

from analysis.findings.decision import Decision, together
from analysis.load.predictions import read_predictions
from analysis.load.runs import Problem
from analysis.load.study import load_study
from analysis.report.checklist import checklist
from analysis.report.methods import exclusions, methods_paragraph, recipe, run_order
from analysis.results.model import Verdict
from tests.analysis.provenance.test_overrides import as_project


def methods(directory, analyses=1):
    study, predictions = read_predictions(load_study(directory))
    return methods_paragraph(study, predictions.workloads, analyses)


def test_the_methods_give_the_numbers_of_the_study(usual_study):
    text = methods(usual_study.directory)
    assert (
        "lenet5 on digits in torch 2.13.0 (lenet5: 2 epochs; sgd, learning rate 0.1, batches of 64; accuracy)"
        in text
    )
    assert "Thread settings were 1, 2 and 4" in text
    assert "Each of the 6 conditions (workload, variant, thread setting) has n = 3 runs, 18 in all" in text
    assert "with nothing fixed (default) and with all seeds fixed (fixed-seed)" in text


def test_the_methods_state_the_rule_by_which_findings_are_decided(usual_study):
    def decided(*verdicts):
        each = {str(i): Decision(verdict=verdict, why="") for i, verdict in enumerate(verdicts)}
        return together(each).verdict

    yes, no, unknown = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE
    rule = {
        "is supported when it is for all of them": decided(yes, yes),
        "not supported when it is refuted for some and": decided(no, unknown),
        "mixed when it is supported for some and refuted for others": decided(yes, no),
        "and else inconclusive": decided(yes, unknown),
    }
    text = methods(usual_study.directory)
    assert all(stated in text and verdict in stated for stated, verdict in rule.items())


def test_unequal_sets_are_said_to_be(study):
    study.run(1)
    study.run(1, 2)
    study.run(2)
    assert "has n = 1 to 2 runs, 3 in all" in methods(study.directory)


def test_the_methods_name_what_was_recorded_of_which_models(study):
    study.run(1)
    compared = (
        "by weights bit for bit (SHA-256), predicted class of every test sample and test metric, for "
        "the last model and for the one with the best validation metric. Churn is"
    )
    assert compared in methods(study.directory)
    as_project(study.run(1, workload="mine"), weights=False)
    text = methods(study.directory)
    assert "weights bit for bit (SHA-256) (of lenet5), predicted class of every test sample and" in text
    assert "for the last model and for the one with the best validation metric (of lenet5). Churn is" in text


def test_the_methods_of_a_project_name_neither_a_framework_nor_classes_nor_a_selection_that_it_lacks(study):
    as_project(study.run(1), predictions=False, framework=False)
    text = methods(study.directory)
    assert "the project lenet5 as it is (tree t; accuracy)." in text
    assert "by weights bit for bit (SHA-256) and test metric, for the last model. The primary" in text
    as_project(study.run(1, workload="other"), values=np.array([0.5, 1.5]))
    assert "predictions that are no classes (of other) and test metric" in methods(study.directory)


def test_the_recipe_starts_from_the_study_file(study):
    study.usual(runs=2)
    (study.directory / "study.toml").write_text('name = "x"  # mine\ncpus = [1, 2]\n')
    how = recipe(load_study(study.directory))
    assert how.study_file == 'name = "x"\ncpus = [1, 2]\n'
    assert how.commands.splitlines()[-3:] == [
        "vbstudy provision",
        "vbstudy sweep --runs 2",
        "vbstudy analyze",
    ]


def test_machines_and_accounts_are_left_out_of_the_study_file(study):
    study.run(1)
    text = '[provider]\nkind = "ssh"\n[[provider.hosts]]\nhost = "node1.example"\ncpus = 2\nuser = "eve"\n'
    (study.directory / "study.toml").write_text(text)
    how = recipe(load_study(study.directory))
    assert tomllib.loads(how.study_file) == {
        "provider": {"kind": "ssh", "hosts": [{"host": "machine-1.invalid", "cpus": 2}]}
    }
    assert "Private settings are left out: provider.hosts; give your own" in how.note


def test_without_a_study_file_the_recipe_has_one_that_is_made_from_the_runs(study):
    for repetition in (1, 2):
        study.run(4, repetition)
    study.run(2)
    study.run(2, variant="exact")
    how = recipe(load_study(study.directory))
    made = tomllib.loads(how.study_file)
    assert (made["cpus"], made["repetitions"], made["repetitions_at_most"]) == ([2, 4], 2, {"exact": 1})
    assert "vbstudy provision\n" in how.commands
    assert "is not in the study's folder. The one below is made from the records" in how.note


@pytest.mark.parametrize("text", ["cpus = [", "cpus = " + 2000 * "["])
def test_a_study_file_that_cannot_be_read_is_no_reason_to_fail(study, text):
    study.run(1)
    (study.directory / "study.toml").write_text(text)
    assert "cannot be read" in recipe(load_study(study.directory)).note


def test_the_methods_name_outcome_margin_order_corrections_and_exclusions(study):
    study.usual()
    text = methods(study.directory)
    outcome = "The primary outcome was accuracy of the last model, margin of equivalence 0.01 "
    assert outcome + "(by default; the study file declares none)." in text
    assert "There were no interim analyses." in text
    assert "No finished run was left out" in text
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 0.02\n")
    (study.directory / "runs/lenet5/default/cpus-1/0001/run.json").write_text("")
    text = methods(study.directory, 5)
    assert "0.02 (declared in study.toml; whether before the first run is not recorded)." in text
    assert "results with it hold for this seed alone" in text
    assert "means by Hall's transformed t" in text
    assert "5 interim analyses were planned; only the p values of thread counts compared in a metric" in text
    assert "1 run that was damaged or incomplete was left out" in text


def test_a_study_file_older_than_the_runs_declared_the_outcome_before_them(study):
    study.usual()
    path = study.directory / "study.toml"
    path.write_text("[analysis]\nmargin = 0.02\n")
    os.utime(path, (1_700_000_000,) * 2)  # of 2023; the runs are of 2025
    text = methods(study.directory)
    assert "(declared in study.toml, which was last changed before the first run)" in text


def test_the_methods_name_the_seeds_of_a_crossed_design(study):
    for seed in (1, 2, 3):
        study.run(1, seed, seed=seed)
        study.run(2, seed, seed=seed)
    text = methods(study.directory)
    assert "3 fixed seeds were used on the thread counts, and only runs of one seed were compared." in text


def test_the_order_of_runs_is_that_of_their_records(usual_study):
    loaded = load_study(usual_study.directory)
    runs = loaded.runs.copy()
    seconds = [f"2026-01-01T00:{i:02}:00Z" for i in range(len(runs))]
    runs["started_at"] = seconds
    back_to_back = dataclasses.replace(loaded, runs=runs)
    assert "one after the other, condition by condition" in run_order(back_to_back)
    runs = runs.sort_values(["repetition", "set_id"]).assign(started_at=seconds)
    assert "of 17 starts after the first, 17 were of another" in run_order(
        dataclasses.replace(loaded, runs=runs)
    )


def test_the_checklist_answers_with_the_facts_of_the_study(usual):
    answers = dict(checklist(usual))
    assert answers["Runs"] == "18 runs of 6 conditions, 3 each."
    assert answers["Seeds"].startswith("One fixed seed was used on every thread count;")
    assert answers["Decisions"] == "supported: F2; inconclusive: F1, F3, F4 and F5.", "nothing was scanned"
    assert answers["Reservations"] == "None."


def test_a_damaged_import_is_no_run_that_was_left_out(usual_study):
    loaded = load_study(usual_study.directory)
    damaged = Problem(path="imported/x.json", what="not JSON", todo="import again")
    assert exclusions(dataclasses.replace(loaded, problems=(damaged,))).startswith(
        "No finished run was left out"
    )
