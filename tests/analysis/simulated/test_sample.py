"""A sample of what `.ci/run simulated` runs in full, always with the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.analysis.simulated import cases
from tests.analysis.simulated.__main__ import BEGIN, END, PAGE
from tests.analysis.simulated.cases import CASES, Case, Promise
from tests.analysis.simulated.simulation import simulate

pytestmark = pytest.mark.needs("studies")

STUDIES = 80
ERRORS = 3.0  # of so small a sample
DECISION = 4  # cost from which a case decides whole studies


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("name", CASES)
def test_what_is_stated_holds_as_often_as_promised(name):
    case = CASES[name]
    whole = case.cost >= DECISION
    sizes, sources = (case.sizes[:1], case.sources[:1]) if whole else (case.sizes, case.sources)
    found = [simulate(name, source, n, STUDIES) for source in sources for n in sizes]
    assert [(each.source, each.n, each.rate) for each in found if not each.kept(ERRORS)] == []


def test_an_interval_that_supposes_normal_values_is_noticed(monkeypatch):
    def chi_square(rng, source, n):
        (values,) = source.sets(rng, n)
        low, high = (values.std(ddof=1) * np.sqrt((n - 1) / stats.chi2.ppf(q, n - 1)) for q in (0.975, 0.025))
        return low <= 1 <= high

    monkeypatch.setitem(cases.CASES, "chi-square", Case(promise=Promise.COVERS, trial=chi_square))
    assert simulate("chi-square", "normal", 30, 800).kept(ERRORS)
    assert not simulate("chi-square", "skewed", 30, 800).kept(ERRORS)


def test_what_too_few_runs_cannot_carry_is_not_stated():
    assert not simulate("SD", "normal", 5, 50).printed
    assert not simulate("mean", "normal", 3, 50).printed
    assert simulate("mean", "normal", 5, 50).printed


def test_the_page_has_every_case_and_nothing_else():
    text = (Path(__file__).parents[3] / PAGE).read_text(encoding="utf-8")
    table = text[text.index(BEGIN) : text.index(END)]
    listed = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([a-z]+) \|", table, re.MULTILINE)
    assert listed[1:] == [(name, source) for name, case in CASES.items() for source in case.sources]
