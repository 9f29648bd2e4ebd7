from __future__ import annotations

import tomllib

from analysis.load.study import load_study
from analysis.report.methods import methods_paragraph, recipe


def test_the_methods_give_the_numbers_of_the_study(study):
    study.usual()
    text = methods_paragraph(load_study(study.directory))
    assert "lenet5 on digits in torch 2.13.0 (lenet5: 2 epochs; accuracy)" in text
    assert "Thread settings were 1, 2 and 4" in text
    assert "Each of the 6 conditions (workload, variant, thread setting) has n = 3 runs, 18 in all" in text
    assert "with nothing fixed (default) and with all seeds fixed (fixed-seed)" in text


def test_unequal_sets_are_said_to_be(study):
    study.run(1)
    study.run(1, 2)
    study.run(2)
    assert "has n = 1 to 2 runs, 3 in all" in methods_paragraph(load_study(study.directory))


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
    text = '[provider]\nkind = "ssh"\n[[provider.hosts]]\nhost = "node1.example"\nuser = "eve"\n'
    (study.directory / "study.toml").write_text(text)
    how = recipe(load_study(study.directory))
    assert tomllib.loads(how.study_file) == {"provider": {"kind": "ssh"}}
    assert "Left out of it, as its owner's: provider.hosts; give your own" in how.note


def test_without_a_study_file_the_recipe_says_what_is_not_known(study):
    study.run(4)
    study.run(2)
    how = recipe(load_study(study.directory))
    assert how.study_file == ""
    assert "vbstudy provision --cpus 2,4" in how.commands
    assert "need not be the one" in how.note


def test_a_study_file_that_cannot_be_read_is_no_reason_to_fail(study):
    study.run(1)
    (study.directory / "study.toml").write_text("cpus = [")
    assert "cannot be read" in recipe(load_study(study.directory)).note
