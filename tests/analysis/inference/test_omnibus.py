from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.inference.omnibus import MARGIN, effect_sizes, equivalence, set_tests
from analysis.load.study import load_study
from analysis.stats.statistics import holm


def runs(study, accuracies, **other):
    for cpus, values in accuracies.items():
        for repetition, value in enumerate(values, start=1):
            study.run(cpus, repetition, accuracies=(value,), losses=(1.0,), **other)


def last(table):
    return table.frame[table.frame["view"] == "last"].reset_index(drop=True)


def test_place_and_spread_of_all_thread_counts(study):
    rng = np.random.default_rng(31)
    accuracies = {1: 0.8 + 0.001 * rng.normal(size=12), 2: 0.8 + 0.02 * rng.normal(size=12)}
    runs(study, accuracies, variant="default")
    table = set_tests(load_study(study.directory))
    row = last(table).iloc[0]
    groups = [np.asarray(values) for values in accuracies.values()]
    assert row.h_p == pytest.approx(stats.kruskal(*groups).pvalue)
    assert row.w_p == pytest.approx(stats.levene(*groups, center="median").pvalue)
    assert row.w_p_holm == pytest.approx(holm(list(table.frame.w_p))[0])
    assert (row.h_result, row.w_result) == ("no difference found", "differ")
    assert row.n == [12, 12]


def test_copies_are_not_tested_and_one_thread_count_has_no_row(study):
    runs(study, {1: [0.5] * 3, 2: [0.6] * 3})
    runs(study, {1: [0.5] * 3}, variant="control")
    (row,) = last(set_tests(load_study(study.directory))).itertuples()
    assert row.h_result == "not tested: all sets constant, unequal"
    assert row.w_result == "not tested: all sets constant: no dispersion to compare"
    assert pd.isna(row.h_p_holm)


def test_effects_state_both_sizes_and_intervals(study):
    runs(study, {1: [0.5, 0.6, 0.7], 2: [0.8, 0.9]}, variant="default")
    (row,) = last(effect_sizes(load_study(study.directory))).itertuples()
    assert (row.a, row.b, row.n_a, row.n_b) == ("1", "2", 3, 2)
    assert row.delta == -1
    assert row.delta_high > -1
    assert row.d == pytest.approx((0.6 - 0.85) / np.sqrt((0.01 + 0.005) / 2))
    assert row.d_low < row.d < row.d_high


def test_close_sets_are_equivalent_and_distant_or_wide_ones_are_not_shown(study):
    close = [0.8, 0.801, 0.802, 0.801]
    runs(study, {1: close, 2: close[::-1], 4: [0.7, 0.9, 0.6, 1.0]}, variant="default")
    table = equivalence(load_study(study.directory))
    assert list(last(table).result) == ["equivalent", "not shown", "not shown"]
    assert (table.frame.margin == MARGIN).all()
    assert f"{MARGIN:g}" in table.note


@pytest.mark.parametrize(
    ("other", "result"),
    [
        (0.5, "not tested: all runs equal"),
        (0.501, "not tested: both sets constant, unequal, closer than the margin"),
        (0.6, "not tested: both sets constant, unequal, not closer than the margin"),
    ],
)
def test_constant_sets_are_compared_with_the_margin(study, other, result):
    runs(study, {1: [0.5] * 3, 2: [other] * 3})
    assert list(last(equivalence(load_study(study.directory))).result) == [result]


def test_a_single_run_is_said_to_be_too_few(study):
    runs(study, {1: [0.5], 2: [0.6, 0.7]})
    (row,) = last(equivalence(load_study(study.directory))).itertuples()
    assert row.result == "not tested: fewer than two runs in a set"
