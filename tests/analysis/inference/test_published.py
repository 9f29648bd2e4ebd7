from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.inference.published import UnknownPublishedError, difference, load_published, names
from analysis.pipeline import analyze
from analysis.results.printing import Format, render_tables
from analysis.stats import paired
from guest.records.run import Metric

# as printed in table VII of the paper, and in its text: 8.56 % without, 0.0898 to 2.52 % with selection
PRINTED = {
    ("DialogStateTracking", True): 0.000898383,
    ("honk", True): 0.025167763,
    ("DialogStateTracking", False): 0.084248353,
    ("honk", False): 0.085570514,
}


def published(study):
    return analyze(study.directory, against="issre21")


@pytest.fixture(scope="module")
def beside(usual_study):
    return published(usual_study)


def rows(analysis, part):
    frame = analysis.tables["against"].frame
    return frame[frame.statement.str.contains(part, regex=False)].reset_index(drop=True)


def test_the_published_differences_follow_from_the_published_values():
    entries = load_published("issre21")["max_difference"]
    computed = {(e["project"], e["model_selection"]): difference(e["accuracy"]) for e in entries}
    assert computed == pytest.approx(PRINTED, abs=1.1e-9)
    assert max(v for (_, ms), v in computed.items() if not ms) == pytest.approx(0.0856, abs=5e-5)
    with_ms = [v for (_, ms), v in computed.items() if ms]
    assert (min(with_ms), max(with_ms)) == (
        pytest.approx(0.000898, abs=5e-7),
        pytest.approx(0.0252, abs=5e-5),
    )
    assert all(e["max_diff"] == pytest.approx(difference(e["accuracy"]), abs=1.1e-9) for e in entries)


@pytest.mark.needs("studies")
def test_ours_stand_beside_theirs(beside):
    (without,) = rows(beside, "without model selection")[:1].itertuples()
    assert without.ours == pytest.approx(0.07)
    assert without.published == pytest.approx([0.084248353, 0.085570514], abs=1e-8)
    assert without.published_text == "0.084 (DialogStateTracking), 0.086 (honk)"
    assert (without.n, without.interval) == (9, "")
    assert without.remark == "epoch 2; each thread count's runs agree"
    (step,) = rows(beside, "first training step").itertuples()
    assert (step.ours, step.low, step.high, step.n) == (2, 2, 2, 9)
    assert step.published == [9, 4, 2]
    (p,) = rows(beside, "smallest p").itertuples()
    tests = beside.tables["tests"].frame
    mine = tests[(tests.variant == "default") & (tests["view"] == "selected")]
    assert p.ours == mine.p.min()
    assert p.published == [0.237, 0.174]
    (span,) = rows(beside, "between runs of one thread count").itertuples()
    assert (span.ours, span.n) == (pytest.approx(0.02), 3)
    (means,) = rows(beside, "difference of the mean at the end").itertuples()
    assert means.ours == pytest.approx(0.07)
    assert means.published == pytest.approx([0.0014])


def test_means_of_equal_seeds_are_compared_in_pairs(study):
    values = {1: [0.7, 0.76, 0.8, 0.61], 2: [0.6, 0.65, 0.71, 0.52]}
    for cpus, each in values.items():
        for seed, value in enumerate(each, start=1):
            for copy in (0, 10):
                study.run(cpus, seed + copy, seed=seed, accuracies=(0.5, value), weights=f"{cpus}{seed}")
    (end,) = rows(published(study), "difference of the mean at the end").itertuples()
    low, high = paired.bounds(np.subtract(values[1], values[2]), 0.95)
    assert (end.low, end.high) == (pytest.approx(low), pytest.approx(high))
    assert (end.ours, end.n, end.remark) == (pytest.approx(0.0975), 16, "threads 1 and 2")


def test_means_of_unlike_repetitions_have_welchs_interval(study):
    sets = {1: [0.6, 0.62, 0.61], 2: [0.7, 0.72, 0.74]}
    for cpus, values in sets.items():
        for repetition, value in enumerate(values, start=1):
            study.run(cpus, repetition, accuracies=(0.5, value), weights=f"{cpus}{repetition}")
    expected = stats.ttest_ind(sets[2], sets[1], equal_var=False).confidence_interval(0.95)
    analysis = published(study)
    largest, end = (
        rows(analysis, part).iloc[0]
        for part in ("without model selection", "difference of the mean at the end")
    )
    for row in (largest, end):
        assert row.ours == pytest.approx(np.mean(sets[2]) - np.mean(sets[1]))
        assert row.n == 6
    assert (end.low, end.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    table = analysis.tables["max_difference"].frame.query("view == 'last'").iloc[0]
    assert (largest.low, largest.high) == (table.low, table.high), "one number, one interval"
    assert largest.low < end.low, "the epoch is one of two"


def test_fixed_seeds_of_which_none_is_on_all_thread_counts_have_no_largest_difference(study):
    for cpus, seeds in ((1, (1, 2, 3)), (2, (1, 2)), (4, (3,))):
        for seed in seeds:
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(0.5, 0.1 * seed))
    for row in rows(published(study), "across thread counts at one epoch").itertuples():
        assert (row.ours_text, row.remark) == ("not measured here", "no seed on all thread counts")


@pytest.mark.parametrize(("step", "test"), [(10, "Brunner and Munzel's test"), (0, "sign flips of pairs")])
def test_a_p_that_is_not_of_a_u_test_names_its_test_and_a_range_its_thread_count(study, step, test):
    for cpus in (1, 2):
        for run in (1, 2, 3):
            options = {"variant": "default", "seed": step * cpus + run, "weights": f"{cpus} {run}"}
            study.run(cpus, run, **options, accuracies=(0.5, 0.5 + 0.01 * run * cpus))
    (p,) = rows(published(study), "smallest p").itertuples()
    assert p.remark == f"threads 1 and 2; {test}"
    (span,) = rows(published(study), "between runs of one thread count").itertuples()
    assert (span.ours, span.remark) == (pytest.approx(0.04), "threads 2")


def test_a_workload_of_the_same_name_is_compared_with_that_project_alone(study):
    study.run(1, workload="honk")
    study.run(2, workload="honk", weights="v")
    row = rows(published(study), "without model selection").iloc[0]
    assert (row.projects, row.remark) == (["honk"], "epoch 1-2; one run of each thread count")
    assert row.published == pytest.approx([0.085570514])


def test_what_was_not_measured_is_said(study):
    study.run(1)
    frame = published(study).tables["against"].frame
    assert (frame.ours_text == "not measured here").all()
    assert frame.ours.isna().all()
    shares = frame[frame.statement.str.startswith("share of examined projects")]
    assert list(shares.published_text) == [f"{x} (projects)" for x in ("0.91", "0.22", "0.94", "0.15")]


def test_only_accuracies_stand_beside_published_accuracies(study):
    f1, accuracy = Metric.F1_MACRO, Metric.ACCURACY
    for cpus, value in ((1, 0.25), (2, 0.75)):
        for workload, metrics in (("both", (f1, accuracy)), ("no-accuracy", (f1,))):
            for variant, repetition in (("fixed-seed", 1), ("default", 1), ("default", 2)):
                weights = f"{workload} {cpus} {variant} {repetition}"
                options = {"weights": weights, "seed": cpus * repetition, "accuracies": (value, value)}
                study.run(cpus, repetition, workload=workload, variant=variant, metrics=metrics, **options)
    frame = published(study).tables["against"].frame
    of_metric = frame[(frame.workload != "") & ~frame.statement.str.startswith("first training step")]
    ours = of_metric.groupby("workload").ours
    assert (ours.max()["both"], ours.count()["no-accuracy"]) == (0.25, 0)  # the accuracy is half the F1


def test_equal_weights_have_no_first_step_and_say_up_to_where(study):
    study.run(1)
    study.run(2)
    row = rows(published(study), "first training step").iloc[0]
    assert pd.isna(row.ours)
    assert row.remark == "equal up to step 2, the last recorded"


@pytest.mark.parametrize("form", Format)
def test_it_is_printed_in_every_format(beside, form):
    text = render_tables([beside.tables["against"]], form)
    assert "across thread counts at one epoch" in " ".join(text.split()) or form is Format.TABLE
    assert "issre21" in text or form in (Format.JSON, Format.CSV)


def test_an_unknown_name_says_what_there_is(study):
    study.run(1)
    assert names() == ["issre21"]
    with pytest.raises(UnknownPublishedError, match="'ase20'; there are: issre21"):
        analyze(study.directory, against="ase20")
