"""The interim analyses of a sequential sweep."""

from __future__ import annotations

import json

import pytest

from analysis.inference.interim import read_looks
from analysis.pipeline import analyze

ANSWER = {
    "family": ["lenet5", "default", "last"], "metric": "accuracy", "a": "lenet5/default/cpus-1", "b": "",
    "clear": False, "how": "too wide", "value": 0.02, "runs": 6,
}  # fmt: skip


@pytest.mark.parametrize(("planned", "done"), [("interim", "interim_done"), ("looks", "looks_done")])
def test_interim_analyses_are_read_under_their_present_and_former_names(study, planned, done):
    study.run(1)
    kept = {"plan": {"until": "sd_halfwidth<0.002", planned: [3, 6]}, done: 2, "answers": [ANSWER]}
    (study.directory / "sequential.json").write_text(json.dumps(kept))
    table = analyze(study.directory).tables["interim"]
    row = table.frame.iloc[0]
    assert (row.n, row.analysis, row.value, row.decision) == (6, 2, 0.02, "too wide")
    assert row.low is None or row.low != row.low, "files of earlier versions have no bounds"
    kept["answers"] = [ANSWER | {"low": 0.01, "high": 0.05}]
    (study.directory / "sequential.json").write_text(json.dumps(kept))
    bounded = analyze(study.directory).tables["interim"].frame.iloc[0]
    assert (bounded.low, bounded.high) == (0.01, 0.05)
    kept["answers"] = [ANSWER | {"runs": 4}]  # the most that its variant may have
    (study.directory / "sequential.json").write_text(json.dumps(kept))
    few = analyze(study.directory).tables["interim"].frame.iloc[0]
    assert (few.n, few.analysis) == (4, 2)
    assert "sd_halfwidth<0.002; 2 of 2 planned, at 3, 6 runs" in table.note


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan": {"until": "x", "looks": ["a"]}}', "[" * 100_000])
def test_a_damaged_file_of_interim_analyses_is_a_reservation(study, text):
    study.run(1)
    (study.directory / "sequential.json").write_text(text)
    looks, problems = read_looks(study.directory)
    assert looks is None
    assert [p.path for p in problems] == ["sequential.json"]
    assert "remove it" in problems[0].todo, "a sweep refuses to replace what it cannot read"
