from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.inference.pairwise import (
    DIFFER,
    EQUIVALENT,
    NO_MARGIN,
    NONE_FOUND,
    NOT_SHOWN,
    UNREACHABLE,
    comparisons,
)
from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.stats.power import Test, detectable
from analysis.stats.ranks import brunner_munzel
from analysis.stats.statistics import pooled_sd, welch_bounds
from guest.records.run import Metric

SETS = {
    1: (0.50, 0.51, 0.52, 0.53, 0.54),
    2: (0.60, 0.61, 0.62, 0.63, 0.64),
    4: (0.505, 0.515, 0.525, 0.535, 0.6),
}


def fabricate(study, sets, *, seed=None, copies=False, **options):
    for cpus, accuracies in sets.items():
        for repetition, accuracy in enumerate(accuracies, start=1):
            study.run(
                cpus,
                repetition,
                variant="default",
                accuracies=(0.5, accuracy),
                weights="w" if copies else f"{cpus} {repetition}",
                seed=repetition if seed == "matched" else 100 * cpus + repetition,
                **options,
            )


def last(study, **options):
    frame = comparisons(load_study(study.directory), **options).frame
    return frame[frame["view"] == "last"].reset_index(drop=True)


def test_sets_are_compared_by_brunner_and_munzel_and_corrected_by_holm(study):
    fabricate(study, SETS)
    found = last(study)
    expected = [brunner_munzel(SETS[a], SETS[b]).p for a, b in ((1, 2), (1, 4), (2, 4))]
    assert list(found.p) == expected
    assert list(found.p_holm) == pytest.approx(list(multipletests(expected, method="holm")[1]))
    assert list(found.pair) == ["1 | 2", "1 | 4", "2 | 4"]
    assert list(found.result)[:2] == [DIFFER, NONE_FOUND]
    assert list(found.n) == ["5 · 5"] * 3
    assert found.delta[0] == -1
    assert set(found.family) == {3}


def test_a_difference_has_its_interval_effect_and_smallest_detectable_size(study):
    fabricate(study, SETS)
    row = last(study).iloc[1]
    a, b = np.array(SETS[1]), np.array(SETS[4])
    assert row.difference == pytest.approx(a.mean() - b.mean())
    assert (row.low, row.high) == pytest.approx(welch_bounds(a, b))
    assert row.d_low < row.d < row.d_high
    assert row.sd == pytest.approx(pooled_sd([a, b])[0])
    assert row.detectable == pytest.approx(detectable(5, row.sd, 3, Test.RANKS), rel=1e-6)


def test_n_too_small_says_so(study):
    fabricate(study, {cpus: values[:3] for cpus, values in SETS.items()})
    found = last(study)
    assert set(found.verdict) == {UNREACHABLE}
    assert list(found.p_smallest) == pytest.approx([0.3] * 3)
    assert found.detectable.isna().all()


def test_all_metrics_of_a_view_are_one_family(study):
    fabricate(study, SETS, metrics=(Metric.ACCURACY, Metric.F1_MACRO))
    found = last(study)
    assert set(found.family) == {6}
    assert len(found) == 6


def test_copies_count_once_and_one_observation_is_not_tested(study):
    fabricate(study, {1: (0.5,) * 5, 2: (0.6,) * 5}, copies=True)
    (row,) = last(study).itertuples()
    assert (row.observations_a, row.observations_b, row.n_a) == (1, 1, 5)
    assert row.result == row.verdict == "not tested: fewer than two observations in a condition"


def test_values_that_do_not_vary_are_not_tested(study):
    fabricate(study, {1: (0.5,) * 5, 2: (0.6,) * 5})
    assert set(last(study).result) == {"not tested: both conditions constant, unequal"}


def test_runs_of_the_same_random_numbers_are_compared_in_pairs(study):
    rng = np.random.default_rng(7)
    seeds = rng.normal(0.6, 0.05, 8)
    sets = {1: tuple(seeds), 2: tuple(seeds + 0.004 + rng.normal(0, 0.002, 8))}
    fabricate(study, sets, seed="matched")
    (row,) = last(study).itertuples()
    differences = np.array(sets[1]) - np.array(sets[2])
    assert (row.matched, row.n, row.result) == (True, "8 pairs", DIFFER)
    assert row.p == 2 / 2**8
    assert (row.low, row.high) == pytest.approx(
        tuple(stats.ttest_rel(sets[1], sets[2]).confidence_interval(0.95))
    )
    assert row.d == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert row.detectable < 0.005, "less than between sets, whose SD is ten times as large"
    assert row.verdict == "differ, by less than the margin"


def test_repetitions_of_one_seed_are_one_pair(study):
    for cpus in (1, 2):
        for seed in (1, 2, 3):
            for copy in (1, 2):
                study.run(
                    cpus,
                    2 * seed + copy,
                    seed=seed,
                    weights=f"{cpus} {seed}",
                    accuracies=(0.5 + seed * cpus / 99,),
                    losses=(1.0,),
                )
    (row,) = last(study).itertuples()
    assert (row.n, row.n_a, row.observations_a) == ("3 pairs", 6, 3)


def test_close_sets_are_equivalent_and_distant_or_wide_ones_are_not_shown(study):
    close = (0.8, 0.801, 0.802, 0.801)
    fabricate(study, {1: close, 2: close[::-1], 4: (0.7, 0.9, 0.6, 1.0)})
    found = last(study)
    assert list(found.same) == [EQUIVALENT, NOT_SHOWN, NOT_SHOWN]
    assert found.verdict[0] == EQUIVALENT
    assert (found.margin == 0.01).all()


def test_the_margin_is_the_studys_and_none_is_made_up(study):
    fabricate(study, {1: (70.0, 71.0, 72.0), 2: (70.5, 71.5, 72.0)})
    assert set(last(study).same) == {NO_MARGIN}
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 20.0\n")
    assert set(last(study).same) == {EQUIVALENT}


@pytest.mark.parametrize("seed", [None, "matched"])
def test_interim_analyses_share_the_error(study, seed):
    fabricate(study, SETS | {2: (0.6, 0.61, 0.62, 0.65, 0.64)}, seed=seed)
    once, often = last(study), last(study, analyses=5)
    assert list(often.p) == pytest.approx(list(np.minimum(1, 5 * once.p)))
    for low, high in ("low", "high"), ("d_low", "d_high"), ("same_low", "same_high"):
        assert (often[high] - often[low] > once[high] - once[low]).all()
    if not seed:
        assert (often.delta_high - often.delta_low > once.delta_high - once.delta_low).all()
        assert (often.detectable.fillna(np.inf) > once.detectable).all()


def test_a_sequential_sweep_is_corrected_for_its_planned_analyses(study):
    fabricate(study, SETS)
    kept = {"plan": {"until": "decided(tests)", "interim": [3, 5]}, "interim_done": 2, "answers": []}
    (study.directory / "sequential.json").write_text(json.dumps(kept))
    tables = analyze(study.directory).tables
    assert set(tables["tests"].frame.analyses) == {2}
    for name in ("tests", "set_tests"):
        assert "corrected for 2 planned interim analyses" in tables[name].note


def test_a_single_run_is_said_to_be_too_few(study):
    fabricate(study, {1: (0.5,), 2: (0.6, 0.7)})
    (row,) = last(study).itertuples()
    assert row.same == "not tested: fewer than two observations in a condition"
    assert pd.isna(row.p_holm)
