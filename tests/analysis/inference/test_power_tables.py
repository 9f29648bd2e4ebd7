"""The power of the runs at hand, and the interim analyses of a sequential sweep."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from analysis.inference.power_tables import REPEATS, power_table, read_looks
from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.stats.power import Test, detectable

ANSWER = {
    "family": ["lenet5", "default", "last"], "metric": "accuracy", "a": "lenet5/default/cpus-1", "b": "",
    "clear": False, "how": "too wide", "value": 0.02, "runs": 6,
}  # fmt: skip


def test_power_is_that_of_the_pooled_sd(study):
    study.usual(runs=6)
    frame = power_table(load_study(study.directory)).frame
    free = frame[(frame.variant == "default") & (frame["view"] == "last")].iloc[0]
    # Accuracies 0.7 + 0.01 r + 0.003 i: the same SD in each of three sets.
    assert free.sd == pytest.approx(np.std([0.01 * r for r in range(1, 7)], ddof=1))
    assert (free.n, free.tests) == (6, 3)
    assert free.welch == pytest.approx(detectable(6, free.sd, 3, Test.WELCH), rel=1e-6)
    assert free.welch_low < free.welch < free.welch_high
    assert free.welch_high / free.welch == pytest.approx(free.sd_high / free.sd)
    fixed = frame[(frame.variant == "fixed-seed") & (frame["view"] == "last")].iloc[0]
    assert (fixed.sd, fixed.remark) == (0, REPEATS)


def test_few_runs_are_reported_to_show_nothing(study):
    study.usual(runs=2)
    frame = power_table(load_study(study.directory)).frame
    free = frame[frame.variant == "default"].iloc[0]
    assert math.isnan(free.ranks)
    assert "n too small" in free.remark


@pytest.mark.parametrize(("planned", "done"), [("interim", "interim_done"), ("looks", "looks_done")])
def test_interim_analyses_are_read_under_their_present_and_former_names(study, planned, done):
    study.usual()
    kept = {"plan": {"until": "sd_halfwidth<0.002", planned: [3, 6]}, done: 2, "answers": [ANSWER]}
    (study.directory / "sequential.json").write_text(json.dumps(kept))
    table = analyze(study.directory).tables["interim"]
    row = table.frame.iloc[0]
    assert (row.n, row.analysis, row.value, row.decision) == (6, 2, 0.02, "too wide")
    assert "sd_halfwidth<0.002; 2 of 2 planned, at 3, 6 runs" in table.note


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan": {"until": "x", "looks": ["a"]}}', "[" * 100_000])
def test_a_damaged_file_of_interim_analyses_is_a_reservation(study, text):
    study.run(1)
    (study.directory / "sequential.json").write_text(text)
    looks, problems = read_looks(load_study(study.directory))
    assert looks is None
    assert [p.path for p in problems] == ["sequential.json"]
    assert "again" in problems[0].todo
