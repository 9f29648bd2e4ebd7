"""What the headline says of the variant `exact`."""

import dataclasses
import math

import pytest

from analysis.findings.steps import ONE_COUNT, OTHER_MODEL, OTHER_VARIANT, next_steps, untraceable
from analysis.findings.summary import headline, which_threads
from analysis.load.design import Plan
from analysis.pipeline import analyze
from analysis.report.page import page
from analysis.results.model import ACROSS
from guest.records.codec import seal
from guest.records.run import RECORD, decode_record
from tests.analysis.provenance.test_overrides import as_project, own


def exact(study, *, models=("Xeon",), asked=False, weights="w", cpus=(1, 2), repetitions=(1, 2)):
    for model in models:
        for count in cpus:
            for repetition in repetitions:
                name = weights.format(cpus=count, model=model)
                on = {"cpu_model_asked" if asked else "cpu_model": model}
                study.run(count, repetition, variant="exact", weights=name, **on)
    return analyze(study.directory)


def fixed(study):
    for cpus in (1, 2):
        study.run(cpus, 1, weights=f"on {cpus}")


def test_models_that_differ_with_one_seed_are_equal_under_exact(study):
    fixed(study)
    found = exact(study)
    assert "One seed, 2 thread counts: 2 different models" in headline(found)
    assert "The variant exact made models equal, bit for bit, on 2 thread counts (4 runs)." in headline(found)
    assert "CPU models" not in headline(found)
    answers = dict(which_threads(found))
    assert answers["same model?"] == "no; not repeated at every count; yes by tier 4 exact mode"
    assert answers["advice"].startswith("use tier 4 exact mode, or keep one count")
    assert found.alarms == ()


def test_exact_is_no_cure_where_it_did_not_run_on_all_thread_counts(study):
    fixed(study)
    study.run(4, weights="on 4")
    answers = dict(which_threads(exact(study)))
    assert answers["same model?"] == "no; not repeated at every count"
    assert answers["advice"].startswith("keep one count")


@pytest.mark.needs("studies")
def test_models_are_the_same_at_one_count_only_where_they_were_repeated_there(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"on {cpus}")
    assert dict(which_threads(analyze(study.directory)))["same model?"] == "no, only at one count"
    study.run(4, weights="on 4")
    assert dict(which_threads(analyze(study.directory)))["same model?"] == "no; not repeated at every count"


def test_one_thread_count_decides_nothing(study):
    study.run(1)
    assert dict(which_threads(analyze(study.directory)))["advice"] == (
        "not known: add thread counts or repetitions"
    )


def test_a_study_that_lacks_planned_runs_says_so_and_sweeps_first(study):
    study.run(1)
    found = analyze(study.directory, plan=Plan(runs={"lenet5/fixed-seed/cpus-1": 3}))
    assert dict(which_threads(found))["advice"] == "not known: 2 of 3 planned runs are missing"
    assert next(next_steps(found)) == ("sweep", "2 of 3 planned runs are missing")


def test_equal_models_of_a_study_that_lacks_planned_runs_are_advised_with_a_condition(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition)
    plan = {f"lenet5/fixed-seed/cpus-{cpus}": 3 for cpus in (1, 2)}
    found = [analyze(study.directory, plan=Plan(runs=runs)) for runs in ({}, plan)]
    assert [dict(which_threads(each))["advice"] for each in found] == [
        "choose by time; state the count with the CPU model",
        "choose by time, if the missing runs agree too; state the count with the CPU model",
    ]


def test_no_sweep_is_advised_where_all_planned_runs_are_done_or_none_can_begin(study):
    study.run(1)
    study.run(1, 2)
    study.run(2)
    runs = {"lenet5/fixed-seed/cpus-1": 2, "lenet5/fixed-seed/cpus-2": 1}
    assert [steps for steps, _ in next_steps(analyze(study.directory, plan=Plan(runs=runs)))] == [
        "analyze --list-tables"
    ]
    watch = ("watch", "a sweep is running")
    found = analyze(study.directory, plan=Plan(runs=dict.fromkeys(runs, 5), instead=watch))
    assert next(next_steps(found)) == watch
    assert "sweep" not in dict(next_steps(found))


@pytest.mark.needs("studies")
@pytest.mark.parametrize("asked", [True, False])
def test_equal_models_of_guests_of_two_cpu_models_are_identical_across_them(study, asked):
    if asked:
        found = exact(study, models=("Haswell", "EPYC"), asked=True)
    else:  # one guest here, one there
        study.run(1, 1, variant="exact", cpu_model="Haswell")
        study.run(2, 1, variant="exact", cpu_model="EPYC")
        found = analyze(study.directory)
    n = 8 if asked else 2
    said = "on 2 thread counts, and identical across CPU models (EPYC and Haswell) "
    assert f"made models equal, bit for bit, {said}({n} runs)." in headline(found)


@pytest.mark.needs("studies")
@pytest.mark.parametrize("weights", ["{cpus}", "{model}"])
def test_models_that_exact_does_not_make_equal_are_told(study, weights):
    found = exact(study, models=("Haswell", "EPYC"), asked=True, weights=weights)
    assert "did not make models equal: 2 from 1 seed (8 runs)" in headline(found)
    assert "identical across CPU models" not in headline(found)
    if weights == "{cpus}":
        assert found.alarms[0].startswith("EXACT IS NOT BITWISE EQUAL: lenet5@")


def test_exact_on_runs_of_several_settings_is_not_compared(study):
    for cpus in (1, 2):
        study.run(cpus, variant="exact", weights=f"{cpus}", epochs_planned=5 + cpus)
    found = analyze(study.directory)
    assert "The variant exact is not compared, as its runs differ in more than threads: 2 " in headline(found)
    assert found.alarms == ()


def test_exact_names_the_seeds_that_it_ran_of_those_of_the_study(study):
    for seed in (1, 2, 3, 4, 5):
        for cpus in (1, 2):
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}")
            if seed <= 2:
                study.run(cpus, seed, variant="exact", seed=seed, weights=f"{seed}")
    found = analyze(study.directory)
    said = "The variant exact made models equal, bit for bit, on 2 thread counts, of 2 of 5 seeds (4 runs)."
    assert said in headline(found)
    assert f"{said} The table time shows its cost." in page(found, [])
    answers, shown = dict(which_threads(found)), "tier 4 exact mode (shown for 2 of 5 seeds)"
    assert answers["same model?"].endswith(f"; yes by {shown}")
    assert answers["advice"].startswith(f"use {shown}, or keep one count")


def test_one_run_compares_nothing(study):
    found = exact(study, cpus=(1,), repetitions=(1,))
    assert "The variant exact has one run of each seed, so that nothing is compared (1 run)." in headline(
        found
    )


def free(study, workload, cpus, accuracies):
    for repetition, accuracy in enumerate(accuracies, start=1):
        study.run(
            cpus, repetition, workload=workload, variant="default", seed=100 * cpus + repetition,
            weights=f"{cpus} {repetition}", accuracies=(0.5, accuracy),
        )  # fmt: skip


SPREAD = tuple(0.51 + 0.02 * i for i in range(10))
CLOSE = tuple(0.8 + 0.0005 * i for i in range(10))


@pytest.mark.needs("studies")
def test_the_headline_names_the_workloads_in_which_free_seeds_differ(study):
    for name, by in (("far", 0.3), ("open", 0.001)):
        free(study, name, 1, SPREAD)
        free(study, name, 2, tuple(value + by for value in SPREAD))
    found = analyze(study.directory)
    assert headline(found).endswith(
        "With free seeds, accuracy differs between thread counts (far); is inconclusive (open)."
    )
    assert dict(which_threads(found))["same accuracy?"] == "not for far (F1)"
    free(study, "near", 1, CLOSE)
    free(study, "near", 2, CLOSE)
    assert headline(analyze(study.directory)).endswith(
        "differs between thread counts (far); is equivalent within 0.01 on all thread counts (near); "
        "is inconclusive (open)."
    )


def test_no_more_runs_are_advised_than_there_are(study):
    """The margin would have been found; the difference lies near it."""
    base = [(i - 14.5) / 8.8 for i in range(30)]
    for cpus, mean in ((1, 0.9), (2, 0.903), (4, 0.9059)):
        free(study, "lenet5", cpus, [mean + 0.0105 * x for x in base])
    found = analyze(study.directory)
    needed = next(f for f in found.findings if f.id == "F1").numbers["runs_needed"]
    assert needed is not None
    assert needed <= 30
    assert dict(which_threads(found))["same accuracy?"] == (
        "inconclusive: a difference near the margin takes more than 30 runs"
    )
    assert not [step for step, _ in next_steps(found) if step.startswith("sweep")]


def test_another_variant_than_fixed_seed_is_named_where_its_models_are_compared(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, variant="control")
            study.run(
                cpus,
                repetition,
                variant="default",
                seed=10 * cpus + repetition,
                weights=f"{cpus}{repetition}",
            )
    found = analyze(study.directory)
    assert headline(found).startswith(
        "One seed, 2 thread counts: one and the same model, bit for bit in all 4 runs (variant control). "
    )
    answers = dict(which_threads(found))
    assert answers["same model?"] == "yes, bit for bit (variant control)"
    assert answers["advice"] == "in the variant control choose by time; state both with the CPU model"


def test_the_fastest_is_of_the_variants_that_f5_is_decided_by_or_its_variant_is_named(study):
    for cpus, seconds in ((1, 40.0), (2, 30.0), (4, 20.0)):
        for repetition in (1, 2, 3):
            study.run(cpus, repetition, variant="exact", wall_s=seconds + 0.1 * repetition)
    assert dict(which_threads(analyze(study.directory)))["fastest?"] == (
        "4 (20.2 s, n = 3) with exact; its lead is decided"
    )
    for cpus in (1, 2, 4):
        for repetition, noise in enumerate((0.3, 0.7, 0.5), start=1):
            seconds = 10.0 + noise * (cpus + repetition) + 0.01 * (cpus == 4)
            study.run(cpus, repetition, weights=f"{cpus}", wall_s=seconds)
    found = analyze(study.directory)
    assert dict(which_threads(found))["fastest?"].startswith("1 (")
    assert dict(which_threads(found))["fastest?"].endswith("its lead is not decided")


def test_a_variant_is_named_whose_times_alone_are_excluded(study):
    for variant, contended in (("default", 4), ("fixed-seed", 0)):
        for cpus in (1, 2, 4):
            load = 1.0 if cpus == contended else 0.0
            study.run(cpus, variant=variant, load=load, oversubscribed=cpus == 2)
    found = analyze(study.directory)
    assert dict(which_threads(found))["do not trust"] == (
        "times of 2: oversubscribed (more threads than cores); 4 with default: contended (other programs "
        "used the cores)"
    )
    assert next(f for f in found.findings if f.id == "F5").why.endswith(
        "; with default, 2: oversubscribed; with default, 4: contended; with fixed-seed, 2: oversubscribed"
    )


def test_without_weights_different_predictions_and_metrics_are_reported(study):
    own(study, workload="a", weights=False)
    found = analyze(study.directory)
    assert headline(found) == (
        "One seed, 2 thread counts: different models that predict differently, hidden behind equal accuracy."
    )
    answers = dict(which_threads(found))
    assert answers["same model?"] == "no"
    assert answers["advice"] == "keep one count in all runs; state it with the CPU model"
    assert {"trace --cpus 1,2", "harden"} <= dict(next_steps(found)).keys()
    for name, accuracy, predictions in (("b", 0.75, True), ("c", 0.75, False), ("d", 0.5, False)):
        for cpus in (1, 2):
            folder = study.run(cpus, workload=name, accuracies=(0.5, accuracy if cpus == 1 else 0.75))
            as_project(folder, weights=False, predictions=predictions)
    assert headline(analyze(study.directory)) == (
        "One seed, 2 thread counts: different models that predict differently, hidden behind equal accuracy "
        "(a); whether models are the same is inconclusive (weights are not recorded) (b and c); whether "
        "models are the same is inconclusive (weights are not recorded); accuracy differs by up to 0.25 at "
        "one seed (d)."
    )


def test_without_weights_models_of_one_thread_count_that_predict_differently_are_not_the_same(study):
    for repetition in (1, 2):
        as_project(study.run(1, repetition, predicted=(0, 1, 2, repetition)), weights=False)
    found = analyze(study.directory)
    assert "different models even where seed and thread count are equal" in headline(found)


def test_equal_accuracy_is_not_said_to_differ_where_another_metric_does(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"{cpus}", predicted=(0, 1, 2, cpus - 1))
    found = analyze(study.directory)
    rows = found.tables["verdicts"].frame
    rows["metric"] = rows["metric"].where(rows.scope != ACROSS, "differ")  # of a second metric
    assert headline(found).endswith("that predict differently; accuracy is equal, another metric differs.")


def test_accuracy_that_is_finite_on_some_thread_counts_only_is_not_another_metric(study):
    for cpus, value in ((1, 0.91), (2, math.nan)):
        for repetition in (1, 2, 3):
            study.run(cpus, repetition, weights=f"{cpus}", accuracies=(0.5, value))
    said = headline(analyze(study.directory))
    assert said.endswith("; accuracy is finite in 3 of 6 runs only, and equal in these.")


def test_of_selected_models_that_alone_differ_the_next_step_names_the_two_thread_counts(study):
    for cpus in (1, 2):
        folder = study.run(cpus)
        record = decode_record((folder / RECORD).read_bytes())
        hashes = dataclasses.replace(record.result.hashes, selected_weights=f"{cpus}" * 64)
        result = dataclasses.replace(record.result, hashes=hashes)
        (folder / RECORD).write_text(seal(dataclasses.replace(record, result=result)))
    (study.directory / "study.toml").write_text('model_selection = "selected"\n')
    assert ("trace --cpus 1,2", "which operation starts it") in next_steps(analyze(study.directory))


def traces(study, **plan):
    found = analyze(study.directory, plan=Plan(**plan))
    return [step for step, _ in next_steps(found) if step.startswith("trace")], untraceable(found)


@pytest.mark.needs("studies")
def test_the_trace_names_its_workload_where_there_are_several(study):
    """`trace` takes the first of study.toml; the analysis sorts by name."""
    for cpus in (1, 2):
        study.run(cpus, workload="aa", weights=f"{cpus}")
    assert traces(study) == (["trace --cpus 1,2"], [])
    planned = dict.fromkeys(("zz/fixed-seed/cpus-1", "aa/fixed-seed/cpus-1", "aa/fixed-seed/cpus-2"), 1)
    assert traces(study, runs=planned) == (["trace --cpus 1,2 --workload aa"], [])
    study.run(1, workload="zz")
    assert traces(study) == (["trace --cpus 1,2 --workload aa"], [])


def test_the_trace_names_the_variant_in_which_models_differ(study):
    for cpus in (1, 2):
        study.run(cpus, variant="control", weights=f"{cpus}")
    assert traces(study) == (["trace --cpus 1,2 --variant control"], [])


def test_a_project_is_traced_with_fixed_seeds_alone(study):
    for cpus in (1, 2):
        as_project(study.run(cpus, variant="control", weights=f"{cpus}"))
    assert traces(study) == ([], [OTHER_VARIANT])


@pytest.mark.needs("studies")
@pytest.mark.parametrize("first", ["Haswell", "Skylake"])
def test_only_models_of_the_first_cpu_model_are_traced(study, first):
    for model in ("Haswell", "Skylake"):
        for cpus in (1, 2):
            study.run(cpus, cpu_model_asked=model, weights=f"{model == 'Skylake' and cpus}")
    other = {"Haswell": "Skylake", "Skylake": "Haswell"}[first]
    planned = {f"lenet5/fixed-seed/cpus-{cpus}-on-{model}": 1 for model in (first, other) for cpus in (1, 2)}
    wanted = (["trace --cpus 1,2"], []) if first == "Skylake" else ([], [OTHER_MODEL])
    assert traces(study, runs=planned) == wanted


def test_where_the_first_workload_cannot_be_traced_the_next_one_is(study):
    for threads in (1, 2):
        study.run(4, intra_op=threads, workload="aa", weights=f"{threads}")
        study.run(threads, workload="zz", weights=f"{threads}")
    assert traces(study) == (["trace --cpus 1,2 --workload zz"], [ONE_COUNT])
