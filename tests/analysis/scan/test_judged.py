from __future__ import annotations

import pytest

from analysis.scan.lint.rules import RULES
from tests.analysis.scan.judged import judged, precision, recall, table


def test_every_judged_finding_has_a_rule_a_place_and_a_reason():
    every = judged()
    assert len(every) >= 400
    assert len({(each.round, *each.place) for each in every}) >= len(every) - 5  # two on one line
    for each in every:
        assert each.rule in RULES
        assert each.line > 0
        assert each.reason


def test_most_rules_and_many_projects_were_judged():
    every = judged()
    assert len({each.rule for each in every}) >= 20
    assert len({each.project for each in every}) >= 20


def test_precision_has_an_interval_by_wilson():
    every = [each for each in judged() if each.rule == "VB504"]
    assert all(each.right for each in every)
    right, n, low, high = precision(every)
    assert right == n == len(every)
    assert high == pytest.approx(1)
    assert low == pytest.approx(n / (n + 1.959963984540054**2))  # what Wilson gives when all are right


def test_the_table_has_a_line_for_each_rule_and_one_for_all():
    lines = table([]).splitlines()
    assert lines[0].startswith("all ")
    assert lines[-1].startswith("recall ")
    assert len(lines) == 2 + len({each.rule for each in judged()})


def test_recall_is_over_scripts_of_several_projects():
    right, n, low, high = recall()
    assert n >= 80
    assert low < right / n < high
