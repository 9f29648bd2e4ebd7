"""The line of evidence of a finding."""

from analysis.findings.evidence import evidence, shortened
from analysis.findings.summary import which_threads
from analysis.pipeline import analyze
from tests.analysis.provenance.test_overrides import own


def line(found, name):
    return evidence(found, next(f for f in found.findings if f.id == name))


def test_f1_names_the_workload_whose_trainings_failed(study):
    for cpus in (1, 2):
        for repetition in range(1, 6):
            seed = 10 * cpus + repetition
            value = 0.7 + 0.01 * repetition
            for workload, accuracy in (("learns", value), ("fails", value if repetition < cpus else 0.25)):
                study.run(
                    cpus,
                    repetition,
                    workload=workload,
                    variant="default",
                    seed=seed,
                    weights=f"{workload} {seed}",
                    accuracies=(0.5, accuracy),
                )
    found = line(analyze(study.directory), "F1")
    assert found.startswith("means lie up to 0 apart; n = 5 can show 0.0")
    assert found.endswith(" or more; trainings failed (fails)")


def test_f2_states_how_many_models_its_seeds_should_give(study):
    for workload in ("a", "b"):
        for cpus in (1, 2):
            for repetition in (1, 2):
                study.run(cpus, repetition, workload=workload, weights=f"{workload} on {cpus}")
        made = line(analyze(study.directory), "F2")
        one = (
            "1 seed should give 1 model"
            if workload == "a"
            else "the seeds of 2 workloads should give 2 models"
        )
        assert f"; {one}; chance that one more run differs: up to " in made


def test_f2_states_over_how_many_seeds_its_repetitions_are_added_up(study):
    for cpus in (1, 2):
        for repetition, seed in enumerate((1, 2, 1, 2), start=1):
            study.run(cpus, repetition, seed=seed, weights=f"{seed} on {cpus}")
    assert line(analyze(study.directory), "F2").endswith(
        "0.78 (2 equal repetitions of 2 seeds, taken together)"
    )


def test_f2_counts_no_predictions_that_were_not_recorded(study):
    own(study, predictions=False)
    found = analyze(study.directory)
    assert line(found, "F2").startswith("2 models in 4 runs; ")
    finding = next(f for f in found.findings if f.id == "F2")
    assert "2 models on 2 thread counts, predictions not recorded, 1 metric value in 4 runs" in finding.why
    assert finding.numbers["prediction_vectors"] is None
    (implication,) = next(i.evidence for i in found.implications if i.id == "I1")
    assert ": one seed, 2 distinct models on 2 thread counts (n=4)" in implication


def test_a_long_reason_ends_before_its_bracket_and_a_short_one_keeps_it():
    why = "10 models of 5 seeds (5 of 5 differ in their weights); 3 more"
    assert shortened(why, 60) == "10 models of 5 seeds (5 of 5 differ in their weights)"
    assert shortened(why, 40) == "10 models of 5 seeds"


def test_f1_of_runs_that_do_not_vary_is_not_called_a_matter_of_too_few(study):
    for cpus in (1, 2):
        for repetition in range(1, 11):
            seed = 100 * cpus + repetition
            study.run(cpus, repetition, variant="default", seed=seed, weights=f"{seed}")
    assert line(analyze(study.directory), "F1") == (
        "means lie up to 0 apart; runs of a condition do not vary (lenet5)"
    )


def test_f5_names_the_fastest_that_leads_though_one_slow_run_moves_its_mean(study):
    for cpus, seconds in ((1, 9.95), (2, 8.0), (4, 14.0)):
        for repetition in range(1, 13):
            slow = cpus == 2 and repetition == 1
            study.run(cpus, repetition, wall_s=60.0 if slow else seconds + 0.01 * repetition)
    found = analyze(study.directory)
    assert line(found, "F5") == "fastest: 2 of 1, 2, 4"
    assert dict(which_threads(found))["fastest?"].startswith("2 (12.4 s, n = 12)")
    assert next(f for f in found.findings if f.id == "F5").why.startswith("fixed-seed: fastest at 2 ")


def test_f5_names_the_fastest_of_the_variant_whose_lead_is_decided(study):
    for cpus in (1, 2):
        for repetition in range(1, 6):
            free, fixed = 10.0 + 0.1 * cpus + repetition, 20.0 / cpus + 0.1 * repetition
            study.run(cpus, repetition, variant="default", seed=10 * cpus + repetition, wall_s=free)
            study.run(cpus, repetition, wall_s=fixed)
    found = analyze(study.directory)
    assert line(found, "F5") == "fastest: 2 of 1, 2"
    assert dict(which_threads(found))["fastest?"].startswith("2 (")
