"""Odd studies go through the whole flow: useful words, no traceback, no NaN."""

from __future__ import annotations

import json

import pytest

from analysis.load.study import NothingToAnalyse, View
from analysis.pipeline import analyze
from analysis.results.model import Verdict
from analysis.results.printing import Format, render
from guest.records.run import Metric

NAN, INF = float("nan"), float("inf")

STUDIES = {
    "one run": [{"cpus": 1}],
    "one run a set": [{"cpus": 1}, {"cpus": 2, "weights": "v"}],
    "one thread count": [{"cpus": 1}, {"cpus": 1, "repetition": 2}],
    "one free variant": [{"cpus": c, "variant": "default"} for c in (1, 2)],
    "algo only": [{"cpus": c, "variant": "algo"} for c in (1, 2)],
    "some sets missing": [{"cpus": 1}, {"cpus": 2}, {"cpus": 4, "variant": "default"}],
    "unlike metrics": [
        {"cpus": 1, "workload": "a", "metrics": (Metric.F1_MICRO, Metric.F1_MACRO)},
        {"cpus": 2, "workload": "b"},
    ],
    "metrics changed midway": [{"cpus": 1, "metrics": (Metric.ACCURACY, Metric.F1_MACRO)}, {"cpus": 2}],
    "losses not finite": [{"cpus": c, "repetition": r, "losses": (NAN, INF)} for c in (1, 2) for r in (1, 2)],
    "metric not a number": [
        {"cpus": c, "repetition": r, "accuracies": (0.5, NAN)} for c in (1, 2) for r in (1, 2)
    ],
    "constant metric": [
        {"cpus": c, "repetition": r, "variant": "default", "weights": f"{c}{r}"}
        for c in (1, 2)
        for r in (1, 2, 3)
    ],
    "numbers whose squares underflow": [
        {
            "cpus": c,
            "repetition": r,
            "variant": variant,
            "weights": f"{c}{r}",
            "seed": r,
            "metrics": (Metric.F1_MACRO,),
            "accuracies": (0.5, (c + r) * 1e-300),
            "losses": (1.0, c * r**2 * 1e-200),
        }
        for variant in ("default", "fixed-seed")
        for c in (1, 2)
        for r in range(1, 7)
    ],
    "unlike epochs": [{"cpus": 1}, {"cpus": 2, "losses": (1.0,), "accuracies": (0.5,)}],
    "one class": [{"cpus": c, "truth": (0, 0), "predicted": (0, 0)} for c in (1, 2)],
    "no step hashed twice": [{"cpus": 1, "steps": {1: "a"}}, {"cpus": 2, "steps": {2: "b"}}],
}


@pytest.mark.needs("studies")
@pytest.mark.parametrize("name", STUDIES)
def test_an_odd_study_is_reported_in_every_format(study, name):
    for run in STUDIES[name]:
        study.run(**run)
    analysis = analyze(study.directory)
    for form in Format:
        text = render(analysis, form)
        words = text.lower().replace("nan_", "").split()
        assert "nan" not in [word.strip("|,;[]()") for word in words], form
    json.loads(render(analysis, Format.JSON), parse_constant=lambda word: pytest.fail(word))
    assert all(finding.why for finding in analysis.findings)


def test_nothing_to_analyse_is_an_error_with_advice(tmp_path):
    with pytest.raises(NothingToAnalyse, match="run `vbstudy sweep` first"):
        analyze(tmp_path)


def test_crossed_threads_are_settings_of_their_own(study):
    for intra_op in (1, 2, 4):
        study.run(4, intra_op=intra_op, weights=f"{intra_op}")
        study.run(4, 2, intra_op=intra_op, weights=f"{intra_op}")
    analysis = analyze(study.directory)
    assert list(analysis.tables["time"].frame.threads) == ["4 (1 thread)", "4 (2 threads)", "4"]
    f2 = next(f for f in analysis.findings if f.id == "F2")
    assert f2.verdict is Verdict.SUPPORTED


def test_problems_of_every_stage_are_collected(study):
    study.usual(runs=1)
    (study.run(8) / "run.json").unlink()
    (study.run(16) / "predictions.npz").write_bytes(b"")
    problems = analyze(study.directory).study.problems
    assert [problem.skipped for problem in problems] == [True, True]


def test_tables_show_the_views_that_were_asked_for_and_findings_use_both(usual_study, usual):
    both, selected = usual, analyze(usual_study.directory, (View.SELECTED,))
    assert set(both.tables["performance"].frame["view"]) == {"last", "selected"}
    assert set(selected.tables["performance"].frame["view"]) == {"selected"}
    assert selected.findings == both.findings
    assert "F4" in render(selected, Format.TABLE)
