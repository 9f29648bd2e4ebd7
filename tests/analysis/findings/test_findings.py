from __future__ import annotations

from typing import Any

import pytest

from analysis.findings.findings import RULES
from analysis.pipeline import analyze
from analysis.results.model import Finding, Verdict

HOLDS, FAILS, OPEN = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE


def decided(study: Any, name: str, workload: str = "") -> Finding:
    return next(f for f in analyze(study.directory).findings if (f.id, f.workload) == (name, workload))


def test_every_finding_is_decided_over_all_and_by_workload(study):
    study.usual("a", runs=2)
    study.usual("b", runs=2)
    found = [(f.id, f.workload) for f in analyze(study.directory).findings]
    assert found == [*((name, workload) for name in RULES for workload in ("", "a", "b")), ("F6", "")]


def test_the_usual_study(study):
    study.usual()
    found = [f.verdict for f in analyze(study.directory).findings if not f.workload]
    assert found == [OPEN, HOLDS, HOLDS, HOLDS, OPEN, OPEN]


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
                **options,
            )


ALIKE = (0.50, 0.52, 0.54, 0.56, 0.58)


def test_f1_none_found_is_not_sameness(study):
    free(study, {1: ALIKE, 2: tuple(a + 0.001 for a in ALIKE)})
    found = decided(study, "F1")
    assert found.verdict is HOLDS
    assert "no significant difference found at n=5" in found.why
    assert "not evidence of sameness" in found.why


def test_f1_a_significant_pair_is_named(study):
    free(study, {1: ALIKE, 2: tuple(a + 0.3 for a in ALIKE)})
    found = decided(study, "F1")
    assert found.verdict is FAILS
    assert "1 | 2 (last, p = 0.008), 1 | 2 (selected, p = 0.008)" in found.why, "2/252"


def test_f1_three_runs_cannot_tell(study):
    free(study, {1: ALIKE[:3], 2: ALIKE[:3]})
    found = decided(study, "F1")
    assert found.verdict is OPEN
    assert "n=3, but none could be: the smallest possible p = 0.100" in found.why
    assert "needs 4 runs a set" in found.why


@pytest.mark.parametrize("sets", [{1: ALIKE}, {1: ALIKE[:1], 2: ALIKE[:1]}])
def test_f1_needs_two_runs_at_two_thread_counts(study, sets):
    free(study, sets)
    assert decided(study, "F1").why.startswith("needs two runs at two thread counts")


def test_f1_equal_constant_sets_do_not_differ_and_unequal_are_not_tested(study):
    free(study, {1: (0.5,) * 3, 2: (0.5,) * 3}, workload="equal")
    free(study, {1: (0.5,) * 3, 2: (0.6,) * 3}, workload="unequal")
    assert decided(study, "F1", "equal").verdict is HOLDS
    assert decided(study, "F1", "unequal").verdict is OPEN


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


def test_f2_fails_when_all_are_the_same_model(study):
    fixed(study, {1: "a", 2: "a"})
    assert decided(study, "F2").verdict is FAILS
    assert "bitwise the same model" in decided(study, "F2").why


def test_f2_fails_when_repetitions_differ(study):
    fixed(study, {1: "a"})
    study.run(2, 1, weights="b")
    study.run(2, 2, weights="c")
    found = decided(study, "F2")
    assert found.verdict is FAILS
    assert "repetitions already differ at thread counts 2 (2 models in 2 runs)" in found.why


def test_f2_one_run_each_cannot_tell(study):
    fixed(study, {1: "a", 2: "b"}, repetitions=1)
    assert decided(study, "F2").verdict is OPEN


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


def several(study, model, repetitions=2):
    """Two seeds on two thread counts, each as often as asked; `model` names one by thread count and seed."""
    for cpus in (1, 2):
        for i in range(2 * repetitions):
            study.run(cpus, i + 1, seed=i % 2 + 1, weights=model(cpus, i % 2 + 1))


def test_f2_compares_runs_with_those_of_their_seed(study):
    several(study, lambda cpus, seed: f"{seed} {cpus if seed == 1 else 0}")
    found = decided(study, "F2")
    assert found.verdict is HOLDS
    assert "3 models of 2 seeds (1 of 2 differ across them) on 2 thread counts" in found.why
    assert (found.numbers["seeds"], found.numbers["sets_identical_within"]) == (2, 2)


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


# ---- F3


def diverge(study, at):
    powers = [2**k for k in range(7)]
    for cpus in (1, 2):
        steps = {s: f"{s}" if s < at else f"{s} {cpus}" for s in powers}
        fixed(study, {cpus: f"w{cpus}"}, steps=steps, losses=(1.0 + 0.001 * cpus, 0.5 + 0.01 * cpus))


@pytest.mark.parametrize(("at", "verdict"), [(1, HOLDS), (16, HOLDS), (32, OPEN), (1000, OPEN)])
def test_f3_the_first_steps(study, at, verdict):
    diverge(study, at)
    assert decided(study, "F3").verdict is verdict


def test_f3_gives_the_bracket_and_the_growth(study):
    diverge(study, 4)
    found = decided(study, "F3")
    assert "equal up to step 2, different at step 4" in found.why
    assert (found.numbers["equal_up_to_step"], found.numbers["different_at_step"]) == (2, 4)
    assert found.numbers["loss_sd_last_epoch"] > found.numbers["loss_sd_first_epoch"]


def test_f3_has_nothing_to_explain_without_a_difference(study):
    fixed(study, {1: "a", 2: "a"})
    assert decided(study, "F3").verdict is OPEN


# ---- F4


@pytest.mark.parametrize(
    ("last", "selected", "verdict"),
    [
        ((0.5, 0.7), (0.5, 0.6), HOLDS),
        ((0.5, 0.6), (0.5, 0.7), FAILS),
        ((0.5, 0.6), (0.5, 0.6), OPEN),
        ((0.5, 0.5), (0.5, 0.5), OPEN),
    ],
)
def test_f4_compares_with_and_without_selection(study, last, selected, verdict):
    for cpus, a, b in zip((1, 2), last, selected, strict=True):
        study.run(cpus, accuracies=(0.5, a), selected_accuracies=(0.5, b))
    assert decided(study, "F4").verdict is verdict


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
        ({1: 12.0, 2: 8.0, 4: 9.0}, (), HOLDS, "its lead over 4 decided"),
        ({1: 12.0, 2: 8.0, 4: 6.0}, (), FAILS, "its lead over 1, 2 decided"),
        ({1: 12.0, 2: 8.0, 4: 8.0}, (), OPEN, "not decided"),
        ({1: 8.0, 2: 9.0, 4: 2.0}, (4,), HOLDS, "its lead over 2 decided"),
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


def test_over_all_workloads_one_failure_decides(study):
    timed(study, {1: 12.0, 2: 8.0, 4: 9.0})
    for cpus, mean in {1: 12.0, 2: 8.0, 4: 6.0}.items():
        for repetition in (1, 2, 3):
            study.run(cpus, repetition, workload="other", variant="default", wall_s=mean + 0.01 * repetition)
    found = decided(study, "F5")
    assert found.verdict is FAILS
    assert found.why == "supported: lenet5; not supported: other"
