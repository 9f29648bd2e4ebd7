from __future__ import annotations

from analysis.findings.implications import hardware_sentence
from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.results.model import Verdict
from guest.records.run import Framework
from tests.analysis.provenance.test_overrides import as_project


def drawn(analysis):
    return {i.id: i.evidence for i in analysis.implications}


def test_each_has_the_studys_numbers(usual):
    assert drawn(usual) == {
        "I1": ("lenet5: one seed, 3 distinct models and 2 prediction vectors on 3 thread counts (n=9)",),
        "I4": (
            (
                "lenet5, default: threads 2 (8.20 s, accuracy 0.72300, n=3); "
                "by means alone, differences may be chance"
            ),
        ),
        "I5": (
            (
                "All 18 models were trained on Fabricated CPU in guests with 1, 2 and 4 CPUs "
                "(local provider, hypervisor: none), each framework using as many threads as CPUs, "
                "with torch 2.13.0."
            ),
        ),
    }


def test_none_is_drawn_from_a_finding_that_is_not_supported(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, wall_s=10.0 / cpus + 0.01 * repetition)
    found = analyze(study.directory)
    verdicts = {f.id: f.verdict for f in found.findings}
    assert verdicts["F2"] is Verdict.NOT_SUPPORTED
    assert verdicts["F4"] is verdicts["F5"] is Verdict.INCONCLUSIVE
    assert list(drawn(found)) == ["I4", "I5"]


def test_those_of_selection_and_time_name_the_workloads_that_support_them(study):
    for cpus, (last, seconds) in enumerate(((0.2, 10.0), (0.5, 5.0), (0.7, 8.0)), start=1):
        for seed in range(1, 8):
            study.run(
                cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(0.5, last),
                selected_accuracies=(0.5, 0.8), wall_s=seconds + 0.01 * seed,
            )  # fmt: skip
    study.run(1, workload="other")
    evidence = drawn(analyze(study.directory))
    assert "I1" not in evidence, "one run of each seed"
    assert evidence["I2"] == (
        "lenet5: thread counts lie 0.50 apart without model selection, 0 with (n=21 distinct models)",
    )
    assert evidence["I3"] == ("lenet5, fixed-seed: fastest at 2 (5.04 s, n=7), lead decided",)


def test_no_thread_count_is_advised_by_a_metric_whose_direction_is_not_known(study):
    for cpus in (1, 2):
        as_project(study.run(cpus, accuracies=(0.1, cpus / 10), wall_s=10.0 / cpus), metric="mse")
    evidence = drawn(analyze(study.directory))["I4"]
    assert evidence == ("lenet5: no front, as it is not known whether a larger mse is better",)


def test_emulated_guests_are_called_so(study):
    study.run(1, accelerator="tcg")
    assert "in guests with 1 CPU (local provider, emulated, " in hardware_sentence(
        load_study(study.directory)
    )
    study.run(2, accelerator="kvm")
    assert "(local provider, emulated and with KVM, " in hardware_sentence(load_study(study.directory))


def test_projects_without_a_framework_are_not_given_one(study):
    as_project(study.run(1, workload="mine"), framework=False)
    text = hardware_sentence(load_study(study.directory))
    assert text.endswith("(local provider), each using as many threads as CPUs.")
    study.run(1)
    text = hardware_sentence(load_study(study.directory))
    assert text.endswith("each using as many threads as CPUs, with torch 2.13.0 where a framework is known.")


def test_mixed_hardware_is_all_in_the_sentence(study):
    study.run(4, intra_op=2, inter_op=1)
    study.run(4, 2, intra_op=2, inter_op=1, cpu_model="Other CPU", framework=Framework.TENSORFLOW)
    assert hardware_sentence(load_study(study.directory)) == (
        "All 2 models were trained on Fabricated CPU and Other CPU in guests with 4 CPUs (local provider, "
        "hypervisor: none), with 2 intra-op and 1 inter-op threads, with tensorflow 2.13.0 and torch 2.13.0."
    )
