from __future__ import annotations

import codecs

import pytest

from analysis.load.design import MARGIN, Design, read_design
from analysis.load.study import View, load_study
from guest.records.run import Metric

BOTH = (Metric.ACCURACY, Metric.F1_MACRO)


def declare(study, text):
    (study.directory / "study.toml").write_text(text)


def test_without_a_file_or_the_table_defaults_count(study):
    study.run(1, metrics=BOTH)
    assert load_study(study.directory).design == Design()
    declare(study, 'name = "x"\n')
    loaded = load_study(study.directory)
    assert not loaded.design.declared
    assert loaded.primary("lenet5") == ("accuracy", View.LAST)
    assert loaded.margin("lenet5", "accuracy") == MARGIN


def test_what_is_declared_is_decided_by(study):
    study.run(1, metrics=BOTH)
    declare(study, 'model_selection = "selected"\n[analysis]\nprimary = "f1_macro"\nmargin = 0.02\n')
    loaded = load_study(study.directory)
    assert loaded.primary("lenet5") == ("f1_macro", View.SELECTED)
    assert loaded.margin("lenet5", "f1_macro") == 0.02
    assert loaded.margin("lenet5", "accuracy") == MARGIN, "the margin is that of the primary metric"


def test_a_byte_order_mark_hides_no_declaration(study):
    text = b"[analysis]\nmargin = 0.02\n"
    (study.directory / "study.toml").write_bytes(codecs.BOM_UTF8 + text)
    assert read_design(study.directory) == (Design(margin=0.02, declared=True), ())


def test_the_default_margin_is_for_metrics_between_0_and_1(study):
    study.run(1, accuracies=(0.5, 75.0))
    assert load_study(study.directory).margin("lenet5", "accuracy") is None
    declare(study, "[analysis]\nmargin = 0.5\n")
    assert load_study(study.directory).margin("lenet5", "accuracy") == 0.5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[analysis]\nmargin = 0\n", "analysis.margin = 0; allowed are"),
        ("[analysis]\nmargin = true\n", "analysis.margin = True; allowed are"),
        ("[analysis]\nmargin = nan\n", "analysis.margin = nan"),
        (f"[analysis]\nmargin = {10**400}\n", "analysis.margin = 1000"),
        ("[analysis]\nprimary = 3\n", "analysis.primary = 3; allowed are primary, the name of a metric"),
        ("[analysis]\nprimery = 'f1'\n", "analysis.primery: unknown key"),
        ("analysis = 3\n", "analysis = 3 is no table"),
        ("cpus = [\n", "Invalid"),
    ],
)
def test_a_design_that_cannot_be_read_is_a_reservation(study, text, what):
    study.run(1)
    declare(study, text)
    design, (problem,) = read_design(study.directory)
    assert design == Design()
    assert what in problem.what
    assert load_study(study.directory).problems == (problem,)
