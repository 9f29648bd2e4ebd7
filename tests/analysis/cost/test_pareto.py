from __future__ import annotations

import pytest

from analysis.cost.pareto import compared_variant, pareto
from analysis.load.study import View, load_study
from tests.analysis.provenance.test_overrides import as_project


def points(study):
    return {p.threads: p for p in pareto(load_study(study.directory), "lenet5", View.LAST)}


def test_the_front_is_what_no_other_beats_in_both(study):
    for cpus, wall_s, accuracy in ((1, 10.0, 0.9), (2, 5.0, 0.8), (4, 6.0, 0.7), (8, 5.0, 0.75)):
        study.run(cpus, wall_s=wall_s, accuracies=(0.1, accuracy))
    assert [name for name, p in points(study).items() if p.on_front] == ["1", "2"]


def test_equal_points_are_both_on_the_front(study):
    for cpus in (1, 2):
        study.run(cpus, wall_s=5.0)
    assert all(p.on_front for p in points(study).values())


def test_an_unfit_time_is_shown_and_never_on_the_front(study):
    study.run(1, wall_s=10.0)
    study.run(2, wall_s=1.0, oversubscribed=True)
    found = points(study)
    assert found["1"].on_front
    assert not found["2"].on_front
    assert found["2"].excluded == "oversubscribed"


def test_points_carry_n_and_intervals(study):
    for repetition, wall_s in enumerate((8.0, 9.0, 10.0, 11.0, 12.0), start=1):
        study.run(1, repetition, wall_s=wall_s)
    time = points(study)["1"].wall_s
    assert (time.n, time.value) == (5, 10.0)
    half = 2.776445 * (2.5 / 5) ** 0.5  # Student's t, four degrees of freedom; the values are symmetric
    assert (time.low, time.high) == pytest.approx((10 - half, 10 + half))


def test_free_seeds_are_compared_where_there_are_any(study):
    study.run(1, variant="control")
    assert compared_variant(load_study(study.directory), "lenet5") == "control"
    study.run(1)
    study.run(1, variant="default")
    assert compared_variant(load_study(study.directory), "lenet5") == "default"


def test_a_score_is_of_the_distinct_models_as_in_the_table_of_performance(study):
    for repetition in range(1, 5):
        rare = repetition == 4
        study.run(1, repetition, weights="b" if rare else "a", accuracies=(0.5, 0.6 if rare else 0.9))
    assert points(study)["1"].score.value == pytest.approx(0.75)


def test_a_metric_whose_direction_is_not_known_has_no_front(study):
    for cpus in (1, 2):
        as_project(study.run(cpus, wall_s=10.0 / cpus, accuracies=(0.1, cpus / 10)), metric="mse")
    found = pareto(load_study(study.directory), "lenet5", View.LAST)
    assert [p.score.value for p in found] == [0.1, 0.2]
    assert not any(p.on_front for p in found)


def test_times_of_different_machines_have_no_front(study):
    for cpus, model in ((1, "Slow CPU"), (2, "Fast CPU")):
        study.run(cpus, wall_s=10.0 / cpus, cpu_model=model)
    found = points(study).values()
    assert [p.on_front for p in found] == [False, False]
    assert {p.excluded for p in found} == {"2 CPU models (Slow CPU, Fast CPU)"}
