"""Whole screens, as a terminal of 80 and of 120 columns shows them, with and without colours."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from analysis.findings import steps, summary
from analysis.load.design import Plan
from analysis.pipeline import analyze
from analysis.report.screen import screen
from benchmarks.fabricated import fabricate
from guest.records.run import Metric

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
PARTS = ("Same model?", "Which thread count?", "Findings", "Next")


def shown(analysis, width=80, colours=False):
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=colours, color_system="standard" if colours else None
    )
    console.print(screen(analysis, "vbstudy -C /s"))
    return file.getvalue()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Eight workloads, three variants, six thread counts."""
    directory = tmp_path_factory.mktemp("large")
    fabricate(directory, 288, 2, samples=50)
    return analyze(directory)


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("width", [80, 120])
def test_the_largest_study_fits_one_screen(large, width, colours):
    text = shown(large, width, colours)
    assert ("\x1b[" in text) is colours
    lines = ESCAPES.sub("", text).splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= width
    begins = [next(i for i, line in enumerate(lines) if line.startswith(part)) for part in PARTS]
    assert begins == sorted(begins)
    assert lines[0].startswith("One seed, 6 thread counts: different models that predict differently")
    assert "48 models" in text


def test_colours_change_no_word(usual):
    assert ESCAPES.sub("", shown(usual, colours=True)) == shown(usual)


def test_a_usual_study_is_answered_line_by_line(usual):
    lines = [line.rstrip() for line in shown(usual).splitlines()]
    assert len(lines) <= 40
    assert " ".join(lines[:3]) == (
        "One seed, 3 thread counts: 3 different models that predict differently; accuracy differs by up to "
        "0.070 at one seed. With free seeds, whether accuracy depends on the thread count is inconclusive "
        "(n = 3)."
    )
    assert "lenet5  ≠ ≠ ≠        = = =  = = =  = = =" in lines
    for line in (
        "same model?     no, only at one count",
        "fastest?        2 (8.20 s, n = 3); its lead is decided",
        "do not trust    times of 4: oversubscribed (more threads than cores)",
        "vbstudy -C /s trace --cpus 1,2       # which operation starts it",
    ):
        assert line in lines
    assert (
        "1 seed should give 1 model; chance that one more run differs: up to 0.78 "
        "(2 equal runs beside the first)" in " ".join(" ".join(lines).split())
    )
    assert not any(line.startswith("F6") for line in lines), "nothing was scanned"


def test_equal_models_are_called_so_and_nothing_is_to_be_traced(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition)
    text = shown(analyze(study.directory))
    assert text.startswith("One seed, 2 thread counts: one and the same model, bit for bit in all 4 runs.")
    assert "same model?     yes, bit for bit" in text
    assert "trace" not in text
    assert "harden" not in text


def test_missing_runs_are_named_below_the_headline_and_in_the_first_note(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, capability="AVX2" if cpus == 1 else "AVX512")
    plan = Plan(runs={f"lenet5/fixed-seed/cpus-{cpus}": 3 for cpus in (1, 2)})
    text = " ".join(shown(analyze(study.directory, plan=plan)).split())
    assert "4 runs (2 of 6 planned runs are missing): lenet5; fixed-seed; threads 1, 2" in text
    assert "note: runs: 2 of 6 planned runs are missing: lenet5/fixed-seed/cpus-1 has 2 of 3" in text


def test_a_damaged_run_is_named_before_those_that_are_missing(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition)
    (study.directory / "runs/lenet5/fixed-seed/cpus-1/0001/run.json").write_text("{")
    plan = Plan(runs={f"lenet5/fixed-seed/cpus-{cpus}": 2 for cpus in (1, 2)})
    text = " ".join(shown(analyze(study.directory, plan=plan)).split())
    assert text.index("cpus-1/0001: run.json: not JSON") < text.index("note: runs: 1 of 4 planned runs")


def test_different_models_behind_equal_accuracy_are_not_called_equal(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"w{cpus}")
    assert (
        shown(analyze(study.directory))
        .replace(" \n", " ")
        .replace("\n", " ")
        .startswith(
            "One seed, 2 thread counts: 2 different models that predict the same, hidden behind equal"
        )
    )


def test_the_matrix_says_so_where_it_compares_all_metrics_of_several(study):
    legend = "Same model? weights, predictions, {} at equal seeds"
    study.run(1)
    assert legend.format("metric") in shown(analyze(study.directory))
    study.run(1, workload="two", metrics=(Metric.ACCURACY, Metric.F1_MACRO))
    assert legend.format("all metrics") in shown(analyze(study.directory))


def test_nothing_is_hidden_behind_a_metric_that_is_finite_in_no_run(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"w{cpus}", accuracies=(math.nan, math.nan))
    text = shown(analyze(study.directory))
    assert " ".join(text.split()).startswith(
        "One seed, 2 thread counts: 2 different models that predict the same; accuracy is finite in no run, "
        "so nothing is hidden behind it."
    )
    assert "equal" not in text.partition("Which thread count?")[0].replace("at equal seeds", "")
    assert "lenet5  ≠ = –        = = –  = = –" in text


def test_models_that_do_not_repeat_are_told_first(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"w{cpus}{repetition}")
    text = shown(analyze(study.directory))
    assert "different models even where seed and thread count are equal" in text.replace(" \n", " ").replace(
        "\n", " "
    )
    assert "same model?     no, not even at one count" in text


def test_one_run_of_one_thread_count_is_inconclusive(study):
    study.run(2)
    text = shown(analyze(study.directory))
    assert "whether models are the same is inconclusive (one thread count)" in text.replace(
        " \n", " "
    ).replace("\n", " ")
    assert "same model?     one thread count: inconclusive" in text


def test_without_a_fixed_seed_the_model_is_not_judged(study):
    for cpus in (1, 2):
        study.run(cpus, variant="default", seed=cpus, weights=f"w{cpus}")
    text = shown(analyze(study.directory))
    assert text.startswith("No run has a fixed seed")
    assert "Same model?" not in text


def test_a_control_that_is_not_equal_stands_above_all(study):
    for repetition in (1, 2):
        study.run(1, repetition, variant="control", weights=f"w{repetition}")
    assert shown(analyze(study.directory)).startswith("CONTROL IS NOT BITWISE EQUAL")


def test_no_thread_count_is_recommended_where_not_even_equal_settings_repeat(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"{cpus}{repetition if cpus > 1 else ''}")
    text = shown(analyze(study.directory))
    assert "same model?     no, not even at one count" in text
    assert "advice          equal settings give several models: find out why first (F2)" in text


@pytest.mark.needs("studies")
def test_workloads_that_disagree_are_mixed_and_named(study):
    study.usual("a")
    for cpus in (1, 2, 4):
        for repetition in (1, 2):
            study.run(cpus, repetition, workload="b")
    text = shown(analyze(study.directory))
    assert re.search(r"F2  mixed: 1 of 2 .*\n +supported: a; not supported: b", text)
    assert "trace --cpus 1,2 " in text
    assert "not for a, only at one count" in text


def test_the_runs_that_show_a_difference_as_large_as_the_margin_are_a_command(usual):
    needed = next(f for f in usual.findings if f.id == "F1").numbers["runs_needed"]
    text = " ".join(shown(usual).split())
    assert needed > 3
    assert f"inconclusive; a difference near the margin takes {needed} runs of each condition" in text
    assert f"vbstudy -C /s sweep --runs {needed} " in text


def test_runs_that_nobody_will_make_are_called_out_of_reach(usual, monkeypatch):
    monkeypatch.setattr(summary, "FEASIBLE", 2)
    monkeypatch.setattr(steps, "FEASIBLE", 2)
    needed = next(f for f in usual.findings if f.id == "F1").numbers["runs_needed"]
    text = shown(usual)
    assert f"inconclusive; needs {needed} runs of each condition, out of reach" in text
    assert "sweep --runs" not in text


@pytest.mark.needs("studies")
def test_a_terminal_that_lacks_a_sign_shows_another(study):
    study.run(1, weights="a")
    study.run(2, weights="b")
    made = subprocess.run(
        [sys.executable, "-m", "vbstudy", "-C", study.directory, "analyze"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "(= same, x differ)" in made.stdout
    assert "\n? not known\n" in made.stdout
