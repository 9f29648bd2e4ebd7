from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from analysis.cost.times import times
from analysis.findings.decision import Decision, together
from analysis.findings.evidence import evidence
from analysis.findings.findings import RULES
from analysis.findings.performance import _Spreads, model_selection
from analysis.findings.summary import headline, which_threads
from analysis.inference.pairwise import comparisons
from analysis.load.predictions import read_predictions
from analysis.load.study import StudyData, load_study
from analysis.pipeline import analyze
from analysis.quality.histories import loss_rows, loss_sd_by_epoch
from analysis.results.model import Table, Verdict
from analysis.sameness.distance import distance
from analysis.stats.observations import mark_failures
from guest.records.run import Framework, Metric

HOLDS, FAILS, OPEN = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE


# What each finding is decided from; an analysis builds far more.
TABLES: dict[str, Callable[[StudyData], Table]] = {
    "F1": comparisons,
    "F3": lambda study: distance(study, loss_rows(loss_sd_by_epoch(study))),
    "F5": times,
}


def decided(study: Any, name: str, workload: str = "", **more: Table) -> Decision:
    loaded = mark_failures(*read_predictions(load_study(study.directory)))
    tables = more | ({RULES[name][1]: TABLES[name](loaded)} if name in TABLES else {})
    each = RULES[name][2](loaded, tables)
    return each[workload] if workload else together(each)


@pytest.mark.needs("studies")
def test_every_finding_is_decided_over_all_and_by_workload(study):
    study.usual("a", runs=2)
    study.usual("b", runs=2)
    found = [(f.id, f.workload) for f in analyze(study.directory).findings]
    assert found == [*((name, workload) for name in RULES for workload in ("", "a", "b")), ("F6", "")]


def test_the_usual_study(usual):
    found = [f.verdict for f in usual.findings if not f.workload]
    assert found == [OPEN, HOLDS, OPEN, OPEN, OPEN, OPEN]


# ---- F1


def free(study, sets, **options):
    for cpus, accuracies in sets.items():
        for repetition, accuracy in enumerate(accuracies, start=1):
            study.run(
                cpus,
                repetition,
                variant="default",
                accuracies=(0.5, accuracy),
                seed=10 * cpus + repetition,
                weights=f"{cpus} {repetition}",
                **{"truth": (0, 1, 2, 3), "predicted": (0, 1, 2, 3)} | options,  # 0.5 is twice chance
            )


CLOSE = (0.800, 0.801, 0.802, 0.803, 0.804, 0.805)
WIDE = (0.50, 0.52, 0.54, 0.56, 0.58, 0.60)


def shifted(values, by):
    return tuple(value + by for value in values)


def test_f1_holds_when_all_pairs_are_equivalent_within_the_margin(study):
    free(study, {1: CLOSE, 2: shifted(CLOSE, 0.0003), 4: shifted(CLOSE, 0.0001)})
    found = decided(study, "F1")
    assert found.verdict is HOLDS
    assert (
        "all 3 pairs are equivalent within 0.01 (largest p < 0.001, two one-sided t tests: Welch)"
        in found.why
    )
    assert found.numbers["equivalence_p"] < 0.05


def test_f1_the_margin_is_of_the_first_metric_of_each_workload(study):
    for workload, metric in (("a", Metric.ACCURACY), ("b", Metric.F1_MACRO)):
        free(study, {1: CLOSE, 2: CLOSE}, workload=workload, metrics=(metric,))
    assert headline(analyze(study.directory)).endswith(
        "accuracy and f1_macro are equivalent within 0.01 on all thread counts (a and b)."
    )
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 0.001\n")
    found = analyze(study.directory)
    assert [f.numbers["margin"] for f in found.findings if f.id == "F1" and f.workload] == [0.001, 0.001]


def test_f1_the_margin_is_that_of_the_study(study):
    free(study, {1: CLOSE, 2: shifted(CLOSE, 0.0003)})
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 0.001\n")
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert "equivalence within 0.001 is not shown" in found.why


def test_f1_one_pair_that_is_not_shown_is_enough_to_leave_it_open(study):
    free(study, {1: CLOSE, 2: shifted(CLOSE, 0.0003), 4: (0.79, 0.80, 0.81, 0.80, 0.79, 0.82)})
    assert decided(study, "F1").verdict is OPEN


def test_f1_none_found_is_inconclusive_and_says_what_could_have_been_found(study):
    free(study, {1: WIDE, 2: shifted(WIDE, 0.001)})
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert found.why.startswith(
        "no significant difference is found (Brunner and Munzel's test by exact permutation), and "
        "equivalence within 0.01 is not shown (largest p = "
    )
    assert f"show differences from {found.numbers['detectable']:.3f} on" in found.why
    assert found.numbers["detectable"] > 0.05


def test_f1_a_significant_pair_is_named(study):
    free(study, {1: WIDE, 2: shifted(WIDE, 0.3)})
    found = decided(study, "F1")
    assert found.verdict is FAILS
    assert found.why.startswith(
        "significant in Brunner and Munzel's test by exact permutation after Holm's correction over 1 test: "
        "1 | 2 (difference -0.30, p = 0.002)"
    ), "2/924"


def test_f1_is_corrected_over_all_workloads(study):
    apart = {1: WIDE, 2: (0.57, 0.59, 0.61, 0.63, 0.55, 0.65)}
    free(study, apart, workload="a")
    alone = decided(study, "F1").numbers["least_p_holm"]
    for other in "bcd":
        free(study, {1: WIDE, 2: WIDE}, workload=other)
    found = decided(study, "F1", "a")
    assert found.numbers["family"] == 4
    assert found.numbers["least_p_holm"] == pytest.approx(4 * alone)
    assert alone < 0.05 < 4 * alone
    assert found.verdict is OPEN


def test_f1_is_decided_by_the_primary_outcome_alone(study):
    selected = {1: (0.5,) * 6, 2: (0.9,) * 6}
    for cpus, values in {1: CLOSE, 2: shifted(CLOSE, 0.0003)}.items():
        for repetition, accuracy in enumerate(values, start=1):
            study.run(
                cpus,
                repetition,
                variant="default",
                seed=10 * cpus + repetition,
                weights=f"{cpus} {repetition}",
                accuracies=(0.5, accuracy),
                selected_accuracies=(0.5, selected[cpus][0] + repetition / 1000),
            )
    assert decided(study, "F1").verdict is HOLDS
    (study.directory / "study.toml").write_text("model_selection = 'selected'\n")
    assert decided(study, "F1").verdict is FAILS


def test_f1_pairs_of_equal_random_numbers_are_compared_with_each_other(study):
    drift = (0.0, 0.1, 0.2, 0.3, 0.15, 0.05)
    for cpus in (1, 2):
        for repetition, shift in enumerate(drift, start=1):
            study.run(
                cpus,
                repetition,
                variant="default",
                seed=repetition,
                weights=f"{cpus} {repetition}",
                accuracies=(0.5, 0.5 + shift + 0.0004 * cpus * repetition / 6),
            )
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 0.0001\n")
    found = decided(study, "F1")
    assert found.verdict is FAILS, "all six pairs differ in one direction: 2/64"
    assert found.numbers["least_p_holm"] == 0.03125


def test_f1_three_runs_cannot_tell(study):
    free(study, {1: WIDE[:3], 2: WIDE[:3]})
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert "these runs show no difference, however large" in found.why


@pytest.mark.parametrize("sets", [{1: WIDE}, {1: WIDE[:1], 2: WIDE[:1]}])
def test_f1_needs_two_runs_at_two_thread_counts(study, sets):
    free(study, sets)
    assert decided(study, "F1").why.startswith("needs two runs at two thread counts")


def test_f1_constant_sets_show_nothing(study):
    free(study, {1: (0.5,) * 3, 2: (0.5,) * 3})
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert "nothing to test" in found.why


def test_f1_without_a_number_of_any_run_states_no_differences(study):
    for cpus in (1, 2):
        for seed, accuracy in enumerate((1e200, float("inf"), float("nan")), 1):
            study.run(
                cpus, seed, seed=10 * cpus + seed, variant="default", weights=f"{cpus} {seed}",
                metrics=(Metric.F1_MACRO,), accuracies=(0.5, accuracy),
            )  # fmt: skip
    found = decided(study, "F1")
    assert found.why.endswith("; 0 distinct values in 6 runs")
    assert "–" not in found.why


def test_f1_is_open_where_trainings_failed_for_those_that_did_not_are_no_fair_sample(study):
    for cpus, failing in ((1, 0), (4, 6)):
        for repetition in range(1, 11):
            study.run(
                cpus, repetition, variant="default", seed=10 * cpus + repetition,
                weights=f"{cpus} {repetition}",
                accuracies=(0.5, 0.5 if repetition <= failing else 0.9 + 0.0001 * repetition),
                truth=(0, 1), predicted=(0, 1),
            )  # fmt: skip
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert found.why.startswith("trainings failed at thread counts: 6 of 10 at 4; ")
    assert found.numbers["n"] == [10, 4]
    assert found.numbers["largest_difference_of_means"] < 0.001, "of those that did not fail"
    assert found.numbers["largest_range_within_a_set"] < 0.001
    assert found.numbers["runs_needed"] is None
    analysis = analyze(study.directory)
    assert headline(analysis).endswith("is inconclusive (n = 4 to 10; 6 trainings failed).")
    assert dict(which_threads(analysis))["same accuracy?"] == (
        "inconclusive: trainings failed at thread counts: 6 of 10 at 4"
    )


@pytest.mark.parametrize("finished", [True, False])
def test_f1_is_open_where_attempts_crashed_for_others_have_other_seeds(study, finished):
    free(study, {1: CLOSE, 2: CLOSE})
    assert decided(study, "F1").verdict is HOLDS
    crashed = {"RuntimeError": 2, "Lost": 1}
    if finished:
        study.run(2, len(CLOSE) + 1, variant="default", seed=99, accuracies=(0.5, CLOSE[0]), failures=crashed)
    else:
        for i, kind in enumerate(("RuntimeError", "RuntimeError", "Lost")):
            folder = study.directory / f"failed/lenet5/default/cpus-2/0099-{i}"
            folder.mkdir(parents=True)
            (folder / "error.json").write_text(json.dumps({"kind": kind}))
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert found.why.startswith("trainings failed at thread counts: 2 attempts before the last at 2; ")
    assert headline(analyze(study.directory)).endswith("; 2 trainings failed).")


def test_f1_counts_the_attempts_of_all_sweeps_where_seeds_are_free_and_none_twice(study):
    free(study, {1: CLOSE, 2: CLOSE})
    study.run(2, 99, variant="default", seed=99, accuracies=(0.5, CLOSE[0]), failures={"RuntimeError": 1})
    study.run(2, 99, weights="equal")
    for variant, i in product(("default", "fixed-seed"), range(3)):
        folder = study.directory / f"failed/lenet5/{variant}/cpus-2/0099-{i}"
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(json.dumps({"kind": "RuntimeError"}))
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert found.why.startswith("trainings failed at thread counts: 3 attempts before the last at 2; ")
    assert load_study(study.directory).failures == {"lenet5/default/cpus-2": {"RuntimeError": 3}}


def test_f1_is_not_affected_by_guests_that_were_lost(study):
    free(study, {1: CLOSE, 2: CLOSE})
    study.run(
        2, len(CLOSE) + 1, variant="default", seed=99, accuracies=(0.5, CLOSE[0]), failures={"GuestError": 3}
    )
    assert decided(study, "F1").verdict is HOLDS


def test_f1_a_significant_difference_smaller_than_the_margin_is_equivalent(study):
    apart = shifted(CLOSE, 0.006)
    free(study, {1: CLOSE, 2: apart})
    found = decided(study, "F1")
    assert found.verdict is HOLDS
    assert "equivalent within 0.01" in found.why
    assert "permutation, but smaller than the margin: 1 | 2 (difference -0.0060, p = 0.002)" in found.why
    assert found.numbers["significant_within_margin"] == ["1 | 2"]


def test_f1_a_significant_difference_smaller_than_the_margin_refutes_nothing_beside_an_open_pair(study):
    free(study, {1: CLOSE, 2: shifted(CLOSE, 0.006), 4: WIDE})
    apart = {"1 | 4", "2 | 4"}
    found = decided(study, "F1")
    assert found.verdict is FAILS
    assert all(f"{pair} (difference" in found.why for pair in apart)
    assert "1 | 2 (" not in found.why


def test_f1_a_constant_difference_smaller_than_the_margin_refutes_nothing(study):
    """Equivalence of differences that do not vary is not tested."""
    for cpus in (1, 2):
        for repetition, accuracy in enumerate(WIDE, start=1):
            study.run(
                cpus, repetition, variant="default", seed=repetition, weights=f"{cpus} {repetition}",
                accuracies=(0.5, accuracy + 0.001 * cpus),
            )  # fmt: skip
    found = decided(study, "F1")
    assert found.numbers["least_p_holm"] < 0.05
    assert found.verdict is OPEN
    assert found.why.startswith(
        "significant in exact sign flips of pairs, but smaller than the margin: 1 | 2 "
    )


# ---- F2


def fixed(study, weights, repetitions=2, **options):
    for cpus, name in weights.items():
        for repetition in range(1, repetitions + 1):
            study.run(cpus, repetition, weights=name, **options)


def test_f2_holds_and_says_what_metrics_hide(study):
    fixed(study, {1: "a", 2: "b"})
    found = decided(study, "F2")
    assert found.verdict is HOLDS
    assert "2 models on 2 thread counts" in found.why
    assert "equal metrics hide different models" in found.why
    assert found.numbers["models"] == 2


def test_f2_hides_nothing_behind_metrics_that_are_not_finite(study):
    fixed(study, {1: "a", 2: "b"}, accuracies=(np.nan, np.nan))
    found = decided(study, "F2")
    assert found.verdict is HOLDS
    assert "no finite metric in 4 runs" in found.why
    assert "hide" not in found.why


def test_f2_fails_when_all_are_the_same_model(study):
    fixed(study, {1: "a", 2: "a"})
    assert decided(study, "F2").verdict is FAILS
    assert "bitwise the same model" in decided(study, "F2").why


def test_f2_fails_on_equal_models_of_single_runs_and_states_what_they_leave_possible(study):
    fixed(study, {1: "a", 2: "a"}, repetitions=1)
    found = decided(study, "F2")
    assert found.verdict is FAILS
    assert found.numbers["another_model_below"] == pytest.approx(0.95)
    assert "up to 0.95 that one more run gives another model" in found.why
    analysis = analyze(study.directory)
    (finding,) = [each for each in analysis.findings if each.id == "F2" and not each.workload]
    assert evidence(analysis, finding) == (
        "1 model, 1 set of predictions in 2 runs; 1 seed should give 1 model; "
        "chance that one more run differs: up to 0.95 (1 equal run beside the first)"
    )


def test_f2_fails_when_repetitions_differ_and_says_whether_those_on_one_thread_do(study):
    fixed(study, {1: "a"})
    study.run(2, 1, weights="b")
    study.run(2, 2, weights="c")
    found = decided(study, "F2")
    assert found.verdict is FAILS
    assert found.why == (
        "repetitions already differ at thread counts 2 (2 models in 2 runs); those on one thread are equal "
        "(n = 2), which points to several threads: in PyTorch the gradient of x[index] and MKL's first call "
        "can do it (docs/why-and-cure.md)"
    )
    study.run(1, 3, weights="d")
    assert decided(study, "F2").why == (
        "repetitions already differ at thread counts 1 (2 models in 3 runs), 2 (2 models in 2 runs)"
    )


def test_f2_names_mkl_for_pytorch_alone(study):
    for repetition in (1, 2):
        study.run(1, repetition, weights="a", framework=Framework.TENSORFLOW)
        study.run(2, repetition, weights=f"b{repetition}", framework=Framework.TENSORFLOW)
    assert decided(study, "F2").why.endswith("which points to several threads")


def test_f2_one_run_each_cannot_tell(study):
    fixed(study, {1: "a", 2: "b"}, repetitions=1)
    assert decided(study, "F2").verdict is OPEN


def test_f2_is_open_while_a_thread_count_has_no_repetition(study):
    fixed(study, {1: "a"}, repetitions=1)
    fixed(study, {2: "b"})
    found = decided(study, "F2")
    assert found.verdict is OPEN
    assert found.why.endswith("identical within 1 of 2 thread counts, but no seed ran twice on 1")
    study.run(1, 2, weights="a")
    assert decided(study, "F2").verdict is HOLDS


@pytest.mark.parametrize(
    ("options", "why"),
    [({"cpu_model": "Other CPU"}, "2 CPU models"), ({"seed": 2}, "different seeds")],
)
def test_f2_unlike_runs_cannot_be_compared(study, options, why):
    fixed(study, {1: "a"})
    fixed(study, {2: "b"}, **options)
    found = decided(study, "F2")
    assert found.verdict is OPEN
    assert why in found.why


def test_f2_says_what_equal_repetitions_leave_possible(study):
    fixed(study, {1: "a", 2: "b"}, repetitions=3)
    found = decided(study, "F2")
    assert found.numbers["another_model_below"] == pytest.approx(1 - 0.05**0.5), "0 of 2 after the first"
    assert "a chance of up to 0.78 that a run of a condition gives another model" in found.why


def several(study, model, repetitions=2):
    """Two seeds on two thread counts, each as often as asked; `model` names one by thread count and seed."""
    for cpus in (1, 2):
        for i in range(2 * repetitions):
            study.run(cpus, i + 1, seed=i % 2 + 1, weights=model(cpus, i % 2 + 1))


def test_f2_adds_up_the_repetitions_of_several_seeds_and_states_it(study):
    several(study, lambda cpus, seed: f"{seed} {cpus}")
    found = decided(study, "F2")
    assert (found.numbers["repetitions"], found.numbers["repeated_seeds"]) == (2, 2)
    assert "another model: 2 repetitions of 2 seeds, taken together, one-sided 95 % bound)" in found.why


def test_f2_compares_runs_with_those_of_their_seed(study):
    several(study, lambda cpus, seed: f"{seed} {cpus if seed == 1 else 0}")
    found = decided(study, "F2")
    assert found.verdict is HOLDS
    assert "3 models of 2 seeds (1 of 2 differ across them) on 2 thread counts" in found.why
    assert (found.numbers["seeds"], found.numbers["sets_identical_within"]) == (2, 2)


def test_f2_compares_metrics_with_models_seed_by_seed(study):
    """Two seeds have the same two accuracies: at neither do different models share one."""
    for cpus, accuracy in ((1, 0.8), (2, 0.9)):
        for seed in (1, 2):
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(0.5, accuracy))
    found = decided(study, "F2")
    assert "4 models of 2 seeds" in found.why
    assert "4 metric values in 4 runs" in found.why
    assert "hide" not in found.why
    study.run(4, 1, weights="4 1", accuracies=(0.5, 0.8))
    study.run(4, 2, seed=2, weights="1 2", accuracies=(0.5, 0.8))
    assert "equal metrics hide different models at 1 of 2 seeds" in decided(study, "F2").why


def test_f2_fails_when_every_seed_gives_one_model_on_all_threads(study):
    several(study, lambda cpus, seed: f"{seed}")
    found = decided(study, "F2")
    assert found.verdict is FAILS
    assert "gave bitwise the same model of each of 2 seeds" in found.why


def test_f2_each_seed_once_cannot_tell(study):
    several(study, lambda cpus, seed: f"{seed} {cpus}", repetitions=1)
    found = decided(study, "F2")
    assert found.verdict is OPEN
    assert "one run a thread count and seed cannot show that repetitions are identical" in found.why


def test_f2_counts_the_seeds_that_ran_on_several_thread_counts(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights="a")
    for repetition in (3, 4):
        study.run(1, repetition, seed=2, weights="b")
    found = decided(study, "F2")
    assert found.why == (
        "all 4 runs on 2 thread counts gave bitwise the same model; this leaves a chance of up to 0.63 that "
        "one more run gives another model (one-sided 95 % bound)"
    )
    assert (found.numbers["seeds"], found.numbers["runs"], found.numbers["models"]) == (1, 4, 1)
    said = headline(analyze(study.directory))
    assert said == "One seed, 2 thread counts: one and the same model, bit for bit in all 4 runs."
    for cpus in (1, 4):
        study.run(cpus, 5, seed=3, weights="c")
    why = (
        "all 6 runs on 3 thread counts gave bitwise the same model of each of 2 seeds, of which 2 did not run"
    )
    assert decided(study, "F2").why.startswith(why)


def test_one_thread_count_on_several_cpus_decides_nothing_of_thread_counts(study):
    for cpus, seconds in {2: 8.0, 4: 10.0, 8: 12.0}.items():
        for repetition in range(1, 9):
            study.run(cpus, repetition, intra_op=2, wall_s=seconds + 0.01 * repetition)
    for name in ("F2", "F5"):
        found = decided(study, name)
        assert found.verdict is OPEN
        assert "the thread count is the same in all conditions; only CPUs differ" in found.why
    assert headline(analyze(study.directory)).startswith("One seed, 1 thread count: one and the same model")


def test_conditions_that_differ_in_inter_op_threads_are_called_thread_settings(study):
    for inter_op, repetition in product((1, 2), (1, 2)):
        study.run(2, repetition, inter_op=inter_op)
    assert decided(study, "F2").why.startswith("all 4 runs on 2 thread settings gave bitwise the same model;")
    assert headline(analyze(study.directory)).startswith("One seed, 2 thread settings: ")


@pytest.mark.parametrize("name", ["F2", "F4", "F5"])
def test_findings_are_open_where_thread_counts_differ_in_more_than_threads(study, name):
    for cpus in (1, 2, 4):
        for seed in range(1, 8):
            study.run(
                cpus, seed, seed=seed, weights=f"{cpus} {seed}", wall_s=8.0 + 4 * (cpus > 1) + 0.01 * seed,
                accuracies=(0.5, 0.5 + 0.1 * cpus), selected_accuracies=(0.5, 0.5),
                cpu_model="Fast CPU" if cpus == 1 else "Slow CPU",
            )  # fmt: skip
    found = decided(study, name)
    assert found.verdict is OPEN
    assert "2 CPU models (Fast CPU, Slow CPU)" in found.why


def test_f2_does_not_blame_threads_where_repetitions_have_two_versions(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"{repetition}", capability=f"AVX{repetition}")
    assert (
        decided(study, "F2").why
        == "the runs differ in more than threads: 2 instruction sets (ATen AVX1, ATen AVX2)"
    )
    analysis = analyze(study.directory, allow_mixed=True)
    assert headline(analysis) == (
        "One seed, 2 thread counts: whether models are the same is inconclusive "
        "(the runs differ in more than threads)."
    )
    answers = dict(which_threads(analysis))
    assert answers["same model?"] == "the runs differ in more than threads: inconclusive"
    assert answers["advice"] == "not known: run all of a comparison on one machine, with one version"


# ---- F3


def diverge(study, at, ends=(0.0001, 0.05)):
    powers = [2**k for k in range(7)]
    for cpus in (1, 2, 4):
        steps = {s: f"{s}" if s < at else f"{s} {cpus}" for s in powers}
        losses = tuple(loss * (1 + end * cpus) for loss, end in zip((1.0, 0.5), ends, strict=True))
        fixed(study, {cpus: f"w{cpus}"}, steps=steps, losses=losses)


TRACES = {
    "operation": Verdict.SUPPORTED,
    "sequence": Verdict.NOT_SUPPORTED,
    "unrepeatable": Verdict.NOT_SUPPORTED,
    "equal": Verdict.INCONCLUSIVE,
    "unlocated": Verdict.INCONCLUSIVE,
}


def with_trace(study, outcome="operation"):
    """F3 with one stored trace of this outcome."""
    row = {"workload": "lenet5", "variant": "fixed-seed", "threads": "1 | 2", "outcome": outcome}
    row |= {"found": outcome, "started": "at step 1, addmm", "op": "addmm" if outcome == "operation" else ""}
    return decided(study, "F3", traces=Table.of([row], name="traces", title="", note=""))


def test_f3_holds_with_an_early_difference_a_traced_operation_and_growth(study):
    diverge(study, 4)
    found = with_trace(study)
    assert found.verdict is HOLDS
    assert set(found.numbers["parts"].values()) == {"yes"}
    assert found.numbers["operation"] == "addmm"
    assert "equal up to step 2, different at step 4" in found.why
    assert "traced on 1 | 2: at step 1, addmm" in found.why
    assert (
        "starts in the first steps: yes (weights equal up to step 2, different at step 4, n=6 runs of 1 seed)"
        in found.why
    )
    assert (
        "across n=3 thread counts (1 seed, 6 runs) 0.00015 after the first epoch, 0.068 after the last, F "
        "test with 1.45 degrees of freedom, p < 0.001 after Holm's correction)" in found.why
    )


def test_f3_is_open_without_a_trace_and_says_how_to_get_one(study):
    diverge(study, 4)
    found = decided(study, "F3")
    assert found.verdict is OPEN
    assert "an operation: open (not traced: `vbstudy trace` finds the operation)" in found.why


@pytest.mark.parametrize("outcome", TRACES)
def test_f3_rests_on_what_was_traced(study, outcome):
    diverge(study, 4)
    assert with_trace(study, outcome).verdict is TRACES[outcome]


@pytest.mark.parametrize(("at", "verdict"), [(1, HOLDS), (16, HOLDS), (32, FAILS), (1000, FAILS)])
def test_f3_a_late_first_difference_is_no_rounding(study, at, verdict):
    diverge(study, at)
    assert with_trace(study).verdict is verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.0, 0.05), HOLDS), ((0.05, 0.05), OPEN), ((0.05, 0.0001), FAILS), ((0.05, 0.0), FAILS)],
)
def test_f3_what_shrinks_does_not_accumulate(study, ends, verdict):
    diverge(study, 4, ends)
    found = with_trace(study)
    assert found.verdict is verdict
    assert ("; an SD of 0 is not tested)" in found.why) is (0.0 in ends)
    assert ("p = " in found.why or "p < " in found.why) is (0.0 not in ends)


def test_f3_has_nothing_to_explain_without_a_difference(study):
    fixed(study, {1: "a", 2: "a"})
    assert decided(study, "F3").verdict is OPEN


# ---- F4


def selecting(study, by_epoch, chosen, workload="lenet5", seeds=1):
    """One model a thread count and seed: its metric at each epoch, and that of the selected epoch."""
    for cpus, (values, picked) in enumerate(zip(by_epoch, chosen, strict=True), start=1):
        for seed in range(1, seeds + 1):
            study.run(
                cpus,
                seed,
                seed=seed,
                workload=workload,
                weights=f"{cpus if len(set(by_epoch)) > 1 else 0} {seed}",
                accuracies=values,
                selected_accuracies=(*values[:-1], picked),
                losses=(1.0,) * len(values),
            )


APART = (
    (0.0, 0.3, 0.5, 0.80, 0.6, 0.2, 0.4, 0.5),
    (0.6, 0.1, 0.4, 0.81, 0.2, 0.95, 0.3, 0.7),
    (0.4, 0.6, 0.1, 0.80, 0.7, 0.5, 0.3, 0.2),
)


@pytest.mark.parametrize(
    ("chosen", "seeds", "verdict"),
    [
        ((0.80, 0.81, 0.80), 6, HOLDS),
        ((0.0, 0.95, 0.5), 6, FAILS),
        ((0.0, 0.5, 0.5), 6, OPEN),  # as wide as without
        ((0.80, 0.81, 0.80), 5, OPEN),
        ((0.80, 0.81, 0.80), 1, OPEN),
    ],
)
def test_f4_compares_the_ranges_with_and_without_selection_seed_by_seed(study, chosen, seeds, verdict):
    selecting(study, APART, chosen, seeds=seeds)
    found = decided(study, "F4")
    assert found.verdict is verdict
    assert found.numbers["without"] == pytest.approx(0.5), "at the last epoch"
    assert f"n={seeds} seed" in found.why
    assert ("more seeds are needed" in found.why) is (seeds < 6)


def test_f4_is_not_supported_by_narrower_epochs_than_random_ones_alone(study):
    """Eight seeds, of which selection narrows three, as ResNet-20 of studies/threads-2026."""
    for seed in range(1, 9):
        for cpus, last in ((1, 0.5), (2, 0.6)):
            study.run(
                cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(0.1, 0.9, 0.3, last),
                selected_accuracies=(0.1, 0.9, 0.3, 0.5 if seed > 5 else last), losses=(1.0,) * 4,
            )  # fmt: skip
    found = decided(study, "F4")
    assert found.verdict is OPEN
    assert found.numbers["random_p_holm"] < 0.05
    assert found.numbers["p_holm"] == pytest.approx(0.25), "2 of 8 signs"
    low, high = found.numbers["narrowing_low"], found.numbers["narrowing_high"]
    assert low < 0 < found.numbers["narrowing"] < high
    assert "narrower by 0.037 (95 % interval -0.0058 to 0.081), p = 0.250" in found.why


def test_f4_copies_on_several_thread_counts_choose_as_one(study):
    """One model on all thread counts, whose epochs differ."""
    selecting(study, [APART[0]] * 3, [0.5] * 3, seeds=6)
    assert "no difference across thread counts to narrow" in decided(study, "F4").why


@pytest.mark.parametrize(("models", "epochs"), [(2, 8), (3, 5), (6, 12)])
def test_f4_random_epochs_seem_chosen_in_five_per_cent_of_pure_noise(models, epochs):
    """Selection that knows nothing: any epoch, of a metric that is noise."""
    rng = np.random.default_rng(models)
    groups = np.stack([np.zeros(models, int), np.arange(models) % 3, np.arange(models)], axis=1)
    wrong = 0
    for _ in range(300):
        values = np.round(rng.normal(0.8, 0.01, (models, epochs)), 3)
        chosen = values[np.arange(models), rng.integers(epochs, size=models)]
        wrong += _Spreads(values, chosen, groups).p < 0.05
    assert wrong <= binom.ppf(0.999, 300, 0.05)


def test_f4_is_open_where_runs_end_at_different_epochs_or_have_no_last_value(study):
    selecting(study, APART, (0.80, 0.81, 0.80), seeds=7)
    loaded = mark_failures(*read_predictions(load_study(study.directory)))
    assert model_selection(loaded, {})["lenet5"].verdict is HOLDS
    one = (loaded.epochs.run_id == loaded.runs.run_id[0]) & (loaded.epochs.epoch == 8)
    short = dataclasses.replace(loaded, epochs=loaded.epochs[~one])
    assert model_selection(short, {})["lenet5"].why == "the runs end at different epochs (7 to 8)"
    lost = dataclasses.replace(
        loaded, epochs=loaded.epochs.assign(test_accuracy=loaded.epochs.test_accuracy.mask(one))
    )
    assert model_selection(lost, {})["lenet5"].numbers["without"] == pytest.approx(0.5), "that of the runs"
    runs = loaded.runs.assign(last_accuracy=loaded.runs.last_accuracy.mask(loaded.runs.index == 0))
    lost = dataclasses.replace(lost, runs=runs)
    assert model_selection(lost, {})["lenet5"].why == "no epoch in common, or a metric that is not finite"


# ---- F5


def timed(study, seconds, over=(), variant="default"):
    for cpus, mean in seconds.items():
        for repetition in (1, 2, 3):
            study.run(
                cpus,
                repetition,
                variant=variant,
                wall_s=mean + 0.01 * repetition,
                oversubscribed=cpus in over,
            )


@pytest.mark.parametrize(
    ("seconds", "over", "verdict", "why"),
    [
        ({1: 12.0, 2: 8.0, 4: 9.0}, (), HOLDS, "faster than 4: 2 (p < 0.001)"),
        ({1: 12.0, 2: 8.0, 4: 6.0}, (), FAILS, "4 is faster than all others"),
        ({1: 12.0, 2: 8.0, 4: 8.0}, (), OPEN, "none is shown to be faster than 4"),
        ({1: 8.0, 2: 9.0, 4: 2.0}, (4,), HOLDS, "faster than 2: 1"),
        (
            {1: 12.0, 2: 8.0, 4: 2.0},
            (4,),
            OPEN,
            "only 1 and 2 have comparable times; 4: oversubscribed",
        ),
        ({1: 12.0, 2: 8.0}, (2,), OPEN, "only 1 has comparable times"),
        ({1: 12.0}, (), OPEN, "one thread count only"),
    ],
)
def test_f5_rests_on_decided_leads_of_sets_with_own_cores(study, seconds, over, verdict, why):
    timed(study, seconds, over)
    found = decided(study, "F5")
    assert found.verdict is verdict
    assert why in found.why


def test_f5_variants_that_contradict_each_other_decide_nothing(study):
    timed(study, {1: 12.0, 2: 8.0, 4: 9.0})
    timed(study, {1: 12.0, 2: 8.0, 4: 6.0}, variant="fixed-seed")
    assert decided(study, "F5").verdict is OPEN


def test_workloads_that_disagree_are_mixed(study):
    timed(study, {1: 12.0, 2: 8.0, 4: 9.0})
    for cpus, mean in {1: 12.0, 2: 8.0, 4: 6.0}.items():
        for repetition in (1, 2, 3):
            study.run(cpus, repetition, workload="other", variant="default", wall_s=mean + 0.01 * repetition)
    found = decided(study, "F5")
    assert found.verdict is Verdict.MIXED
    assert found.why == "supported for 1 of 2 workloads (supported: lenet5; not supported: other)"


def test_over_all_workloads_one_that_holds_beside_open_ones_is_open(study):
    timed(study, {1: 12.0, 2: 8.0, 4: 9.0})
    for other in ("a", "b"):
        study.run(1, workload=other, variant="default")
    found = decided(study, "F5")
    assert found.verdict is OPEN
    assert found.why.startswith("supported for 1 of 3 workloads (supported: lenet5; inconclusive: a, b)")
    assert found.numbers == {"supported": 1, "not supported": 0, "inconclusive": 2}


def test_f5_does_not_ask_for_runs_where_times_do_not_vary(study):
    for cpus in (1, 2, 4):
        for repetition in range(1, 6):
            study.run(cpus, repetition, variant="default", wall_s=12.0 / cpus, block=repetition)
    assert decided(study, "F5").why.endswith("but times that do not vary are not tested")
    study.run(1, workload="once", variant="default")
    study.run(2, workload="once", variant="default")
    assert decided(study, "F5", "once").why.endswith("but two runs at each thread count are needed")
