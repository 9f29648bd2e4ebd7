from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.load.predictions import read_predictions
from analysis.load.study import StudyData, load_study
from analysis.quality.histories import loss_rows, loss_sd_by_epoch, max_difference
from analysis.quality.performance import performance
from analysis.results.model import ACROSS, Table
from analysis.sameness.churn import churn
from analysis.stats.metrics import max_difference as difference_of
from analysis.stats.observations import mark_failures
from analysis.tables import build_tables

# Xiao et al., ISSRE 2021, table VII: accuracy on 1, 2, 6 and 12 threads, and the printed difference.
TABLE_VII = [
    ([0.748852066, 0.748852066, 0.748951887, 0.748053504], 0.000898383),
    ([0.907718122, 0.932885885, 0.932885885, 0.922818780], 0.025167763),
    ([0.748852066, 0.664703534, 0.748951887, 0.748652426], 0.084248353),
    ([0.921140969, 0.835570455, 0.835570455, 0.895973146], 0.085570514),
]


def rows(table: Any, **where: Any) -> pd.DataFrame:
    frame = table.frame
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.reset_index(drop=True)


def load(study: Any) -> StudyData:
    return load_study(study.directory)


def judged_performance(study: Any) -> Table:
    """As in an analysis: with the trainings that failed, and intervals from the predictions."""
    loaded, predictions = read_predictions(load(study))
    return performance(mark_failures(loaded, predictions), predictions)


@pytest.mark.parametrize(("accuracies", "printed"), TABLE_VII)
def test_the_published_differences_come_out(study, accuracies, printed):
    for cpus, accuracy in zip((1, 2, 6, 12), accuracies, strict=True):
        study.run(cpus, accuracies=(0.5, accuracy))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row.difference == pytest.approx(printed, abs=1e-9)
    assert row.epochs == "2"
    assert row["values"] == accuracies
    assert difference_of(np.array(accuracies)[:, None]).difference == pytest.approx(printed, abs=1e-9)


def test_performance_counts_what_is_distinct(study):
    for repetition, (accuracy, weights, predicted) in enumerate(
        [(0.5, "a", (0, 1, 2, 1)), (0.75, "b", (0, 1, 2, 1)), (0.5, "c", (0, 1, 1, 0))], start=1
    ):
        study.run(
            2, repetition, variant="default", accuracies=(accuracy,), losses=(1.0,), weights=weights,
            predicted=predicted, selected_accuracies=(0.6,), selected=(0, 0, 0, 0),
        )  # fmt: skip
    table = performance(load(study))
    last, selected = rows(table, view="last").iloc[0], rows(table, view="selected").iloc[0]
    assert (last.n, last["min"], last["max"], last.range) == (3, 0.5, 0.75, 0.25)
    assert last["mean"] == pytest.approx(1.75 / 3)
    assert last.sd == pytest.approx(np.std([0.5, 0.75, 0.5], ddof=1))
    assert (last.models, last.predictions, last["values"]) == (3, 2, 2)
    assert (selected.sd, selected.models, selected.predictions, selected["values"]) == (0.0, 3, 1, 1)


def test_the_largest_difference_uses_common_values_or_means(study):
    study.run(1, 1, accuracies=(0.1, 0.3))
    study.run(1, 2, accuracies=(0.1, 0.3))
    study.run(2, 1, accuracies=(0.1, 0.5))
    study.run(2, 2, weights="another", accuracies=(0.1, 0.6))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row["values"] == pytest.approx([0.3, 0.55])
    assert row.difference == pytest.approx(0.25)
    assert row.basis == "means of each thread count's runs"
    assert (row.threads, row.n) == (["1", "2"], [2, 2])


def test_no_difference_between_equal_values_of_different_models_is_not_exact(study):
    for cpus in (1, 2):
        for seed in (1, 2, 3):
            free = {"variant": "default", "seed": 10 * cpus + seed}
            study.run(cpus, seed, **free, weights=f"{cpus} {seed}", accuracies=(1.0, 1.0))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row.difference == 0
    assert row.basis == "each thread count's runs agree", "of several seeds, not repetitions of one"
    assert pd.isna(row.low)
    assert pd.isna(row.high)


def test_no_difference_between_different_models_of_equal_seeds_is_not_exact(study):
    for cpus in (1, 2):
        for seed, accuracy in ((1, 0.5), (2, 1.0)):
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(accuracy,), losses=(1.0,))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert (row.difference, row.n) == (0, [2, 2])
    assert pd.isna(row.low)


def test_no_difference_is_exact_only_if_it_is_for_every_thread_count(study):
    for seed, accuracy in enumerate((0.25, 0.5, 0.75), 1):
        for cpus, each in ((1, accuracy), (2, 1 - accuracy), (4, accuracy)):  # 2 has the mean, not the pairs
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(each,), losses=(1.0,))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row.difference == 0
    assert pd.isna(row.low)


def test_the_largest_difference_of_equal_seeds_is_that_of_their_pairs(study):
    for cpus in (1, 2):
        for seed, accuracy in enumerate((0.3, 0.5, 0.3), 1):  # the third is a copy of the first
            name = seed if seed < 3 else 1
            study.run(cpus, seed, seed=name, weights=f"of {name}", accuracies=(accuracy,), losses=(1.0,))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row["values"] == [0.4, 0.4]
    assert (row.difference, row.low, row.high) == (0, 0, 0)


def test_the_largest_difference_counts_each_common_seed_once_however_often_it_does_not_repeat(study):
    differences = (0.0005, 0.0001, -0.0003, 0.0004)
    for seed, difference in enumerate(differences, 1):
        for r in range(3):
            accuracy = 0.5 + 0.1 * seed  # seed 1 does not repeat on one thread
            study.run(
                1, 3 * seed + r, seed=seed, weights=f"1 {seed} {r * (seed == 1)}", accuracies=(0, accuracy)
            )
            study.run(2, 3 * seed + r, seed=seed, weights=f"2 {seed}", accuracies=(0, accuracy + difference))
    study.run(1, 20, seed=9, weights="not on two threads", accuracies=(0, 0.1))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert row["values"] == pytest.approx([0.75, 0.75 + np.mean(differences)])
    assert row.difference == pytest.approx(np.mean(differences))
    assert row.low < row.difference < row.high
    assert (row.low + row.high) / 2 == pytest.approx(row.difference)
    assert row.n == [12, 12]


def test_the_largest_difference_of_free_seeds_is_of_the_means_of_seeds(study):
    for cpus, seeds in ((1, (1, 2, 3)), (2, (4, 5, 6))):
        for seed in seeds:
            for r in (1, 2) if seed == 1 else (1,):
                free = {"variant": "default", "seed": seed}
                accuracy = 0.5 + 0.01 * seed + 0.1 * (r - 1)
                study.run(cpus, 2 * seed + r, **free, weights=f"{seed} {r}", accuracies=(0, accuracy))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    first, second = np.array([0.56, 0.52, 0.53]), np.array([0.54, 0.55, 0.56])
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(1 - 0.05 / 2)
    assert row.difference == pytest.approx(second.mean() - first.mean())
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high))


def test_the_largest_difference_of_a_project_that_plans_no_epochs_has_an_interval(study):
    for repetition, accuracy in enumerate((0.3, 0.4, 0.35), 1):
        study.run(1, repetition, weights=f"1-{repetition}", accuracies=(accuracy,), losses=(1.0,))
        study.run(2, repetition, weights=f"2-{repetition}", accuracies=(accuracy + 0.1,), losses=(1.0,))
    data = load(study)
    data.runs["epochs_planned"] = 0
    row = rows(max_difference(data), view="last").iloc[0]
    assert row.low < row.difference < row.high


def test_the_largest_difference_has_the_interval_of_its_epoch(study):
    for k in (-1, 0, 1):  # at the second epoch the difference is as large, and of the other sign
        for cpus, means in ((1, (0.5, 0.75)), (2, (0.75, 0.5))):
            free = {"variant": "default", "seed": 10 * cpus + k}
            accuracies = tuple(each + k / 16 for each in means)
            study.run(cpus, k + 2, **free, weights=f"{cpus} {k}", accuracies=accuracies)
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert (row.epochs, row.difference) == ("1-2", 0.25)
    assert row.low < row.difference < row.high
    assert (row.low + row.high) / 2 == pytest.approx(0.25)


def test_the_largest_difference_names_its_stretch_of_epochs_and_the_end(study):
    study.run(1, accuracies=(0.5, 0.75, 0.75, 0.5), losses=(1.0,) * 4)
    study.run(2, accuracies=(0.5, 0.5, 0.5, 0.625), losses=(1.0,) * 4)
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert (row.epochs, row.first_epoch, row.difference, row.final_difference) == ("2-3", 2, 0.25, 0.125)
    assert row.basis == "one run of each thread count"


def test_one_thread_count_has_no_difference_and_says_why(study):
    study.run(1)
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert pd.isna(row.difference)
    assert row.basis == "one thread count only"


def test_fixed_seeds_of_which_none_is_on_all_thread_counts_have_no_largest_difference(study):
    for cpus, seeds in ((1, (1, 2, 3)), (2, (1, 2)), (4, (3,))):
        for seed in seeds:
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(0.5, 0.1 * seed))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert (row.difference, row.basis, row.n) == (None, "no seed on all thread counts", [3, 2, 1])


def test_unlike_numbers_of_epochs_are_compared_where_they_meet(study):
    study.run(1, accuracies=(0.5, 0.75, 0.1), losses=(1.0, 0.5, 0.2))
    study.run(2, accuracies=(0.5, 0.5), losses=(1.0, 0.5))
    row = rows(max_difference(load(study)), view="last").iloc[0]
    assert (row.difference, row.epochs) == (0.25, "2")


def test_loss_sd_within_and_across(study):
    study.run(1, 1, losses=(1.0, 0.2))
    study.run(1, 2, losses=(1.0, 0.4))
    study.run(2, 1, losses=(1.0, 0.5))
    by_epoch = loss_sd_by_epoch(load(study))
    within = rows(by_epoch, scope="1")
    assert list(within.sd) == [0.0, pytest.approx(np.std([0.2, 0.4], ddof=1))]
    assert rows(by_epoch, scope="2").sd.isna().all()
    across = rows(by_epoch, scope=ACROSS)
    assert list(across.n) == [2, 2]
    assert list(across.sd) == [0.0, pytest.approx(np.std([0.3, 0.5], ddof=1))]
    (row,) = (row for row in loss_rows(by_epoch) if row["scope"] == ACROSS)
    assert (row["loss_first"], row["loss_epoch"]) == (0.0, 2)


def test_the_loss_of_each_seed_counts_once_and_copies_do_not(study):
    for repetition, (seed, weights, loss) in enumerate(
        ((1, "a", 0.2), (1, "b", 0.4), (2, "c", 0.5), (2, "c", 0.5)), start=1
    ):
        study.run(1, repetition, seed=seed, weights=weights, losses=(loss,))
    row = loss_sd_by_epoch(load(study)).frame.set_index("scope").loc["1"]
    assert row.n == 2
    assert row.sd == pytest.approx(0.2 / 2**0.5)  # of 0.3 and 0.5


def test_losses_that_are_not_finite_are_counted_not_averaged(study):
    study.run(1, 1, losses=(float("nan"), 0.2))
    study.run(1, 2, losses=(1.0, 0.4))
    row = loss_rows(loss_sd_by_epoch(load(study)))[0]
    assert pd.isna(row["loss_first"])
    assert row["losses_not_finite"] == 1
    assert row["loss_end"] == pytest.approx(np.std([0.2, 0.4], ddof=1))


def test_churn_by_hand(study):
    study.run(1, 1, predicted=(0, 1, 2, 0))
    study.run(1, 2, predicted=(0, 1, 2, 1))
    study.run(2, 1, predicted=(0, 0, 2, 0))
    table = churn(*read_predictions(load(study)))
    last = rows(table, view="last").set_index("scope")
    assert last.churn["1"] == last.largest["1"] == pytest.approx(1 / 4)
    assert pd.isna(last.churn["2"])
    assert last.churn["1 | 2"] == last.churn[ACROSS] == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert list(last.pairs) == [1, 0, 2, 2]
    assert last.agreement[ACROSS] == 0.5
    assert (last.samples == 4).all()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations([0.5, 0.625, 0.75, 0.875]))
def test_the_order_of_repetitions_changes_nothing(tmp_path_factory, study, accuracies):
    shuffled = type(study)(tmp_path_factory.mktemp("study"))
    for repetition, accuracy in enumerate(accuracies, start=1):
        for cpus in (1, 2):
            model = f"{cpus} {repetition}"
            shuffled.run(cpus, repetition, accuracies=(0.5, accuracy), variant="default", weights=model)
    table = performance(load(shuffled))
    row = rows(table, view="last", threads="1").iloc[0]
    assert row.sd == pytest.approx(np.std([0.5, 0.625, 0.75, 0.875], ddof=1), rel=1e-12)


def test_every_table_states_its_n_and_explains_itself(usual):
    for table in usual.tables.values():
        assert table.title
        assert table.note
        assert {"n", "n_a"} & set(table.frame.columns), table.name
        assert {column.source for column in table.columns} <= set(table.frame.columns)


def test_the_tables_are_those_of_the_plan(usual_study):
    loaded, predictions = read_predictions(load(usual_study))
    assert list(build_tables(loaded, predictions)) == [
        "verdicts", "cpu_models", "performance", "seeds", "max_difference", "tests",
        "set_tests",
        "components", "churn", "calibration", "calibration_bins", "flips",
        "subgroups", "by_class", "distance", "loss_sd_by_epoch", "time",
        "convergence",
    ]  # fmt: skip


def test_failed_trainings_are_counted_and_left_out_of_the_rest(study):
    for repetition, accuracy in enumerate((0.1, 0.8, 0.9), start=1):
        model = f"model {repetition}"
        study.run(1, repetition, variant="default", accuracies=(accuracy,), losses=(1.0,), weights=model)
    row = rows(judged_performance(study), view="last").iloc[0]
    assert (row.n, row.observations, row.failed) == (3, 2, 1)
    assert row["range"] == pytest.approx(0.1)
    assert row.sd == pytest.approx(np.std([0.8, 0.9], ddof=1))
    assert row.failure_rate == pytest.approx(1 / 3)
    assert 0 < row.failure_rate_low < 1 / 3 < row.failure_rate_high < 1


def test_a_mean_has_an_interval_for_these_test_samples_and_a_wider_one_for_others(study):
    truth = tuple(i % 3 for i in range(60))
    for repetition in range(1, 7):
        wrong = {0, 1, 2, 10 * repetition - 1}
        predicted = tuple((c + 1) % 3 if i in wrong else c for i, c in enumerate(truth))
        accuracy = 1 - len(wrong) / 60 - repetition / 10_000
        model = f"model {repetition}"
        study.run(
            1, repetition, truth=truth, predicted=predicted, variant="default", weights=model,
            accuracies=(accuracy,), losses=(1.0,),
        )  # fmt: skip
    row = rows(judged_performance(study), view="last").iloc[0]
    assert row.other_low < row.mean_low < row["mean"] < row.mean_high < row.other_high < 1
