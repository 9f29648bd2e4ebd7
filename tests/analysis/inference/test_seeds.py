import warnings

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import mixedlm

from analysis.inference.seeds import seeds, split
from analysis.load.study import load_study


def table(study) -> pd.DataFrame:
    frame = seeds(load_study(study.directory)).frame
    return frame[frame["view"] == "last"] if len(frame) else frame


def crossed(study, values, **options) -> None:
    """Accuracies by thread count, one a seed."""
    for cpus, each in values.items():
        for seed, value in enumerate(each, start=1):
            study.run(
                cpus, seed, seed=seed, weights=f"{cpus} {seed}", accuracies=(value,), losses=(1.0,), **options
            )


def test_the_sds_are_those_of_the_mixed_model():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(8, 1)) + np.array([0.0, 0.4, -0.2]) + 0.5 * rng.normal(size=(8, 3))
    long = pd.DataFrame(
        {"y": values.ravel(), "seed": np.repeat(np.arange(8), 3), "threads": np.tile(np.arange(3), 8)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = mixedlm("y ~ C(threads)", long, groups="seed").fit(reml=True)
    seed, interaction = float(fit.cov_re.iloc[0, 0]), float(fit.scale)
    effects = np.array([0.0, *fit.fe_params.iloc[1:]])
    found = split(values)
    assert found.seeds == pytest.approx((seed + interaction) ** 0.5, rel=1e-3)
    assert found.threads == pytest.approx((effects.var(ddof=1) + interaction * (1 - 1 / 8)) ** 0.5, rel=1e-3)
    low, high = found.bounds["ratio"]
    assert low < found.ratio < high


def test_the_sds_are_root_mean_square_differences_over_root_two():
    values = np.random.default_rng(6).normal(size=(6, 2))
    found = split(values)
    assert found.threads == pytest.approx(np.sqrt(((values[:, 0] - values[:, 1]) ** 2).mean() / 2))
    pairs = [(a - b) ** 2 for column in values.T for a in column for b in column if a != b]
    assert found.seeds == pytest.approx(np.sqrt(np.mean(pairs) / 2))


def test_values_may_be_moved_and_scaled():
    values = np.random.default_rng(7).normal(size=(5, 3))
    one, other = split(values), split(100 * values + 3)
    assert one.bounds["ratio"] == pytest.approx(other.bounds["ratio"])
    assert other.threads == pytest.approx(100 * one.threads)


def test_a_crossed_design_has_a_row_a_metric_and_view(study):
    crossed(study, {1: (0.70, 0.80, 0.90, 0.75), 2: (0.71, 0.78, 0.91, 0.77)})
    row = table(study).iloc[0]
    assert (row.n, row.settings, row.left_out, row.remark) == (4, 2, 0, "")
    assert 0 < row.ratio_low < row.ratio < row.ratio_high
    assert set(seeds(load_study(study.directory)).frame["view"]) == {"last", "selected"}


def test_copies_count_once_and_seeds_that_lack_a_thread_count_are_left_out(study):
    values = {1: (0.70, 0.80, 0.90, 0.75), 2: (0.71, 0.78, 0.91, 0.77), 4: (0.7, 0.8, 0.9)}
    crossed(study, values)
    before = table(study).iloc[0]
    for repetition in (5, 6):  # of seed 1
        study.run(1, repetition, seed=1, weights="1 1", accuracies=(0.70,), losses=(1.0,))
    after = table(study).iloc[0]
    assert (before.n, before.left_out) == (3, 1)
    assert (after.ratio, after.ratio_high) == (before.ratio, before.ratio_high)


def test_equal_models_of_each_seed_are_exactly_zero(study):
    for cpus in (1, 2):
        for seed in (1, 2):
            study.run(cpus, seed, seed=seed, weights=f"{seed}", accuracies=(0.6 + 0.1 * seed,), losses=(1.0,))
    row = table(study).iloc[0]
    assert (row.ratio, row.ratio_low, row.ratio_high) == (0, 0, 0)


def test_a_metric_that_does_not_show_the_models_difference_has_no_interval(study):
    crossed(study, {1: (0.7, 0.8, 0.9), 2: (0.7, 0.8, 0.9)})
    row = table(study).iloc[0]
    assert row.ratio == 0
    assert pd.isna(row.ratio_high)
    assert row.remark == "no interval: the models differ, the metric does not show it"


def test_a_difference_that_few_seeds_show_has_the_lower_bound_zero(study):
    crossed(study, {1: (0.7, 0.8, 0.9, 0.6, 0.5), 2: (0.7, 0.81, 0.9, 0.6, 0.5)})
    row = table(study).iloc[0]
    assert row.ratio_low == 0 < row.ratio < row.ratio_high
    assert row.remark == "the metric differs for 1 of 5 seeds"


def test_seeds_that_all_give_one_value_have_no_ratio(study):
    crossed(study, {1: (0.7, 0.7, 0.7), 2: (0.8, 0.8, 0.8)})
    row = table(study).iloc[0]
    assert pd.isna(row.ratio)
    assert row.remark == "the seeds give equal values"


def test_one_seed_and_free_seeds_have_no_rows(usual_study):
    assert table(usual_study).empty
