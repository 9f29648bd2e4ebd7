from __future__ import annotations

from analysis.load.study import load_study
from analysis.results.cells import rows
from analysis.results.model import ACROSS
from analysis.sameness.verdicts import (
    DIFFER,
    IDENTICAL,
    LEVELS,
    ONE_RUN,
    ONE_SETTING,
    alarms,
    cpu_models,
    verdicts,
)


def last(study, **where):
    frame = verdicts(load_study(study.directory)).frame
    frame = frame[frame["view"] == "last"]
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.set_index("scope")


def alarms_of(study):
    loaded = load_study(study.directory)
    return alarms(loaded, verdicts(loaded))


def test_identical_within_and_different_across(usual_study):
    frame = last(usual_study, variant="fixed-seed")
    for scope in ("1", "2", "4"):
        assert [frame[level][scope] for level in LEVELS] == [IDENTICAL] * 3
    assert [frame[level][ACROSS] for level in LEVELS] == [DIFFER] * 3
    assert (frame.weights_distinct[ACROSS], frame.predictions_distinct[ACROSS], frame.n[ACROSS]) == (3, 2, 9)


def test_equal_metrics_can_hide_different_models(study):
    study.run(1, weights="a")
    study.run(2, weights="b")
    row = last(study).loc[ACROSS]
    assert [row[level] for level in LEVELS] == [DIFFER, IDENTICAL, IDENTICAL]


def crossed(study, models, repetitions=1, seeds=(1, 2), **options):
    """Runs of each seed on each thread count; `models` names a model by thread count and seed."""
    for cpus in (1, 2):
        for i in range(repetitions * len(seeds)):
            seed = seeds[i % len(seeds)]
            study.run(cpus, i + 1, seed=seed, weights=models(cpus, seed), **options)


def test_runs_of_several_seeds_are_compared_with_those_of_their_seed(study):
    crossed(study, lambda cpus, seed: f"{seed}", repetitions=2, variant="control")
    frame = last(study)
    assert list(frame.weights) == [IDENTICAL] * 3
    assert (frame.weights_distinct[ACROSS], frame.n[ACROSS], frame.seeds[ACROSS]) == (2, 8, 2)
    assert alarms_of(study) == ()


def test_equal_predictions_and_metrics_of_several_seeds_are_not_called_models(study):
    crossed(study, lambda cpus, seed: f"{seed} {cpus}", repetitions=2)
    table = verdicts(load_study(study.directory))
    shown = dict(zip(zip(table.frame["view"], table.frame.scope, strict=True), rows(table), strict=True))
    equal = "identical for each seed (n=8)"
    assert shown["last", ACROSS][-3:] == ["differ (4 distinct of 8)", equal, equal]


def test_one_seed_that_differs_across_thread_counts_is_a_difference(study):
    crossed(study, lambda cpus, seed: f"{seed} {cpus if seed == 2 else 0}", repetitions=2, variant="control")
    frame = last(study)
    assert list(frame.weights) == [IDENTICAL, IDENTICAL, DIFFER]
    assert frame.weights_distinct[ACROSS] == 3
    assert len(alarms_of(study)) == 1


def test_each_seed_once_says_nothing_within_a_thread_count(study):
    crossed(study, lambda cpus, seed: f"{seed}")
    assert list(last(study).weights) == ["one run of each seed: inconclusive"] * 2 + [IDENTICAL]


def test_thread_counts_that_share_no_seed_are_not_compared(study):
    study.run(1, seed=1, weights="a")
    study.run(2, seed=2, weights="b")
    assert last(study).weights[ACROSS] == "no seed on two thread counts: inconclusive"


def test_one_run_and_one_thread_count_cannot_be_told(study):
    study.run(1)
    frame = last(study)
    assert frame.weights["1"] == ONE_RUN
    assert frame.weights[ACROSS] == ONE_SETTING


def test_cpu_models_are_compared_at_each_thread_count_and_threads_on_each_model(study):
    for model, weights in (("max", "a"), ("EPYC", "b")):
        for cpus in (1, 2):
            study.run(cpus, cpu_model_asked=model, weights=weights * (1 if cpus == 2 else 2))
    loaded = load_study(study.directory)
    assert list(loaded.metrics) == ["lenet5@EPYC", "lenet5@max"]
    assert {len(runs) for *_, runs in loaded.experiments()} == {2}  # two thread counts each
    frame = cpu_models(loaded).frame
    frame = frame[frame["view"] == "last"].set_index("threads")
    assert list(frame.models) == ["EPYC, max"] * 2
    assert [frame[level]["1"] for level in LEVELS] == [DIFFER, IDENTICAL, IDENTICAL]
    assert list(frame.difference) == [0.0, 0.0]


def test_a_study_of_one_cpu_model_has_no_table_of_them(usual_study):
    assert cpu_models(load_study(usual_study.directory)).frame.empty


def test_a_control_that_differs_is_said_loudly(study):
    study.run(1, variant="control", weights="a")
    study.run(2, variant="control", weights="b")
    (loud,) = alarms_of(study)
    assert loud.startswith(
        "CONTROL IS NOT BITWISE EQUAL: lenet5, across thread counts: 2 distinct models "
        "(last and selected) in 2 runs"
    )


def test_a_control_whose_runs_have_other_settings_shows_nothing(study):
    study.run(1, variant="control", weights="a")
    study.run(2, variant="control", weights="b", epochs_planned=7)
    assert alarms_of(study) == ()


def test_a_control_on_two_machines_shows_nothing_but_within_one_of_them_and_exact_mode_does(study):
    for cpus, model in ((1, "Intel"), (2, "AMD")):
        for variant in ("control", "exact"):
            study.run(cpus, variant=variant, weights=model, cpu_model=model)
    (loud,) = alarms_of(study)
    assert loud.startswith("EXACT IS NOT BITWISE EQUAL")
    study.run(1, 2, variant="control", weights="other", cpu_model="Intel")
    assert alarms_of(study)[0].startswith(
        "CONTROL IS NOT BITWISE EQUAL: lenet5, threads 1: 2 distinct models"
    )


def test_what_is_not_equal_in_many_workloads_is_one_alarm_of_each_variant(study):
    for workload in ("lenet1", "lenet5"):
        for cpus, variant in ((1, "control"), (2, "control"), (1, "exact"), (2, "exact")):
            study.run(cpus, workload=workload, variant=variant, weights=f"on {cpus}")
    control, exact = alarms_of(study)
    assert control.startswith("CONTROL IS NOT BITWISE EQUAL: lenet1, across thread counts: 2 distinct models")
    assert "; lenet5, across thread counts: 2 distinct models (last and selected) in 2 runs. " in control
    assert exact.startswith("EXACT IS NOT BITWISE EQUAL: lenet1")


def test_a_control_that_repeats_is_silent(study):
    study.run(1, variant="control")
    study.run(2, variant="control")
    assert alarms_of(study) == ()
