from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.inference.omnibus import set_tests
from analysis.load.study import load_study
from analysis.stats.groups import brown_forsythe
from analysis.stats.statistics import holm


def runs(study, accuracies, **other):
    for cpus, values in accuracies.items():
        for repetition, value in enumerate(values, start=1):
            study.run(
                cpus,
                repetition,
                accuracies=(value,),
                losses=(1.0,),
                weights=f"{cpus} {repetition}",
                **other,
            )


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
    assert row.w_p == pytest.approx(brown_forsythe(groups).p)
    assert row.w_p_holm == pytest.approx(holm(list(table.frame.w_p))[0])
    assert (row.h_result, row.w_result) == ("no difference found", "differ")
    assert row.n == [12, 12]


def test_interim_analyses_share_the_error(study):
    runs(study, {1: [0.5, 0.51, 0.52, 0.53, 0.54], 2: [0.6, 0.61, 0.62, 0.63, 0.64]}, variant="default")
    once, often = (last(set_tests(load_study(study.directory), each)) for each in (1, 5))
    for p in ("h_p", "w_p"):
        assert list(often[p]) == pytest.approx(list(np.minimum(1, 5 * once[p])))
    assert (once.h_result[0], often.h_result[0]) == ("differ", "no difference found")


def test_copies_are_not_tested_and_one_thread_count_has_no_row(study):
    runs(study, {1: [0.5] * 3, 2: [0.6] * 3})
    runs(study, {1: [0.5] * 3}, variant="control")
    (row,) = last(set_tests(load_study(study.directory))).itertuples()
    assert row.h_result == "not tested: all conditions constant, unequal"
    assert row.w_result == "not tested: all conditions constant: no dispersion to compare"
    assert pd.isna(row.h_p_holm)


def test_shared_seeds_are_compared_within_seeds(study):
    """What is the same for every seed is found, though seeds differ much more."""
    for cpus, shift in ((1, 0.0), (2, 0.001), (4, 0.002)):
        values = [0.5 + 0.04 * seed + shift for seed in range(8)]
        for seed, value in enumerate(values, start=1):
            study.run(cpus, seed, seed=seed, accuracies=(value,), losses=(1.0,), weights=f"{cpus} {seed}")
    row = last(set_tests(load_study(study.directory))).iloc[0]
    assert row.h == pytest.approx(16)  # every seed has the same order: n (k - 1)
    assert row.h_method.endswith("permutations within seeds")
    assert row.h_result == "differ"
    assert row.w_result == "not tested: thread counts that share their seeds are not independent"


def test_a_thread_count_with_other_seeds_is_compared_too(study):
    for cpus, first, level in ((1, 1, 0.7), (2, 1, 0.7), (4, 11, 0.5)):
        for seed in range(first, first + 5):
            values = {"accuracies": (level + 0.001 * (seed * cpus % 7),), "losses": (1.0,)}
            study.run(cpus, 1 + seed - first, seed=seed, weights=f"{cpus} {seed}", **values)
    row = last(set_tests(load_study(study.directory))).iloc[0]
    assert (row.threads, row.n) == (["1", "2", "4"], [5, 5, 5])
    assert row.h_method == "9999 permutations"
    assert row.h_result == "differ"
