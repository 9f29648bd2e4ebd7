from __future__ import annotations

import dataclasses

import pytest

from analysis.load.design import Plan
from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.provenance.checks import (
    MixedHardwareError,
    missing_runs,
    mixture,
    refuse_mixed,
    reservations,
)


def found(study):
    return reservations(load_study(study.directory))


def test_a_whole_study_has_no_reservations(usual_study):
    assert found(usual_study) == ()


def test_cpu_models_mixed_across_and_within_sets(study):
    study.run(1, 1)
    study.run(1, 2, cpu_model="Other CPU")
    study.run(2, 1)
    study.run(2, 2)
    (problem,) = found(study)
    assert problem.path == "runs/lenet5/fixed-seed"
    assert problem.what == (
        "2 CPU models in one comparison (Fabricated CPU, Other CPU), even within threads 1"
    )
    assert not problem.skipped
    assert mixture(load_study(study.directory).runs) == "2 CPU models (Fabricated CPU, Other CPU)"


def test_an_instruction_set_that_parts_the_weights_is_named_as_the_reason(study):
    study.run(1, 1, weights="a")
    study.run(1, 2, weights="b", capability="AVX512")
    study.run(2, 1, weights="c")
    study.run(2, 2, weights="c", capability="AVX512")
    (problem,) = found(study)
    assert problem.what == (
        "2 instruction sets in one comparison (ATen AVX2, ATen AVX512), even within threads 1, 2, "
        "across which the weights of equal seeds diverge (threads 1)"
    )
    assert problem.todo == "isa = 'portable' gives equal bits on different CPUs"


def test_other_settings_of_the_workload(study):
    study.run(1)
    study.run(2, epochs_planned=7)
    problem, short = found(study)
    assert problem.what == "2 settings of the workload in one comparison"
    assert short.what == "1 run has 2 of 7 planned epochs"


def test_a_half_finished_study_names_what_is_missing(study):
    study.run(1, 1)
    study.run(1, 2)
    study.run(2, 1)
    study.run(1, 1, variant="default")
    (problem,) = found(study)
    assert problem.what == (
        "not every condition has 2 runs: default/cpus-1 has 1, default/cpus-2 has 0, fixed-seed/cpus-2 has 1"
    )
    assert problem.todo == "run `vbstudy sweep` to finish"


def planned(study, *, instead=None, **runs):
    plan = Plan(
        runs={f"lenet5/{name.replace('_', '-')}/cpus-1": n for name, n in runs.items()}, instead=instead
    )
    return dataclasses.replace(load_study(study.directory), plan=plan)


def test_a_variant_that_the_plan_gives_fewer_runs_lacks_none(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition)
    study.run(1, 1, variant="exact")
    whole = planned(study, fixed_seed=3, exact=1)
    assert (reservations(whole), missing_runs(whole)) == ((), "")


def test_what_a_plan_lacks_is_counted_also_where_no_condition_has_more(study):
    study.run(1, 1)
    study.run(1, 1, variant="exact")
    study.run(1, 7, variant="exact")  # more than planned stands for none
    half = planned(study, fixed_seed=3, exact=2, default=2, control=2)
    assert missing_runs(half) == "7 of 9 planned runs are missing"
    (problem,) = reservations(half)
    named = "lenet5/fixed-seed/cpus-1 has 1 of 3, lenet5/exact/cpus-1 has 1 of 2 and 2 more conditions"
    assert problem.what == f"7 of 9 planned runs are missing: {named}"
    assert problem.todo == "run `vbstudy sweep` to finish"
    (problem,) = reservations(planned(study, fixed_seed=3, instead=("watch", "a sweep is running")))
    assert problem.todo == "a sweep is running: `vbstudy watch`"


def test_attempts_that_failed_are_named_with_what_repeating_them_does(study):
    study.run(1, failures={"Lost": 1})
    study.run(1, variant="default", seed=None, failures={"RuntimeError": 1, "Died": 2})
    (evidence,) = (study.directory / "failed/lenet5/default/cpus-2/0001-x",)
    evidence.mkdir(parents=True)
    (study.directory / "failed/a/b/c/d").mkdir(parents=True)
    (evidence.parent / ".DS_Store").write_text("no attempt")
    (evidence.parent / "0002-notes").write_text("nor is this")
    texts = [str(problem) for problem in found(study) if problem.path.startswith("failed/")]
    same = "repeated with the same seeds; the errors are in this folder"
    mend = (
        "repeated with new seeds, so the runs that finish are a selected sample; if the cause was unrelated "
    )
    mend += "to the seeds and you have fixed it, move this folder out of failed/"
    assert sorted(texts) == [
        f"failed/lenet5/default/cpus-1: 3 attempts failed (Died 2, RuntimeError 1) ({mend})",
        f"failed/lenet5/default/cpus-2: 1 attempt failed (unknown 1) ({mend})",
        f"failed/lenet5/fixed-seed/cpus-1: 1 attempt failed (Lost 1) ({same})",
    ]


def test_losses_that_are_not_finite(study):
    study.run(1, losses=(float("inf"), float("nan")))
    (problem,) = found(study)
    assert problem.path == "runs/lenet5/fixed-seed/cpus-1"
    assert problem.what == "1 run has a training loss that is not finite, or beyond 1e100 in size"


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"cpu_model": "Other CPU"}, "2 CPU models (Fabricated CPU, Other CPU)"),
        ({"capability": "AVX512"}, "2 instruction sets (ATen AVX2, ATen AVX512)"),
        ({"accelerator": "tcg"}, "2 ways of virtualisation (unknown, tcg)"),
    ],
)
def test_a_set_of_unlike_hardware_is_refused_by_its_fields_unless_it_is_asked_for(study, other, named):
    study.run(1, 1)
    study.run(2, 1)
    study.run(2, 2, **other)
    with pytest.raises(MixedHardwareError) as error:
        analyze(study.directory)
    assert f"the condition lenet5/fixed-seed/cpus-2 mixes {named}: " in str(error.value)
    assert "--allow-mixed" in str(error.value)
    assert len(analyze(study.directory, allow_mixed=True).study.runs) == 3


def test_unlike_hardware_of_different_sets_is_not_refused(study):
    study.run(1)
    study.run(2, cpu_model="Other CPU")
    refuse_mixed(load_study(study.directory))


def test_runs_that_end_before_the_planned_epochs_are_named(study):
    study.run(1)
    study.run(2, losses=(1.0,), accuracies=(0.5,), epochs_planned=2)
    study.run(2, 2)
    found = [p for p in reservations(load_study(study.directory)) if "planned epochs" in p.what]
    assert [(p.path, p.what) for p in found] == [
        ("runs/lenet5/fixed-seed/cpus-2", "1 run has 1 of 2 planned epochs")
    ]
    assert not found[0].skipped
