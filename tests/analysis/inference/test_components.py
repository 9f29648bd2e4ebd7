from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.inference.components import components, split
from analysis.load.study import load_study


def test_the_split_by_hand():
    # means 1 and 5, deviations +-1 within: MSW = (4 * 1) / 2 = 2, MSB = 2 * (4 + 4) / 1 = 16, n0 = 2
    found = split([np.array([0.0, 2.0]), np.array([4.0, 6.0])])
    assert (found.within, found.between) == (pytest.approx(2), pytest.approx((16 - 2) / 2))
    assert (found.n, found.groups) == (4, 2)


def test_the_split_finds_the_variances_that_were_put_in():
    rng = np.random.default_rng(21)
    threads = rng.normal(0, 2, 200)
    found = split([effect + rng.normal(0, 1, 3 + i % 4) for i, effect in enumerate(threads)])
    assert found.within == pytest.approx(1, rel=0.1)
    assert found.between == pytest.approx(4, rel=0.25)


def test_equal_thread_counts_have_no_component_on_average():
    rng = np.random.default_rng(22)
    found = [split(list(rng.normal(0, 1, (4, 5)))).between for _ in range(60)]
    assert np.median(found) < 0.1


@pytest.mark.needs("studies")
@given(st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=4), min_size=2, max_size=4))
def test_variances_are_not_negative_and_do_not_see_order_or_origin(groups):
    arrays = [np.array(group) for group in groups]
    one, other = split(arrays), split([array[::-1] + 3 for array in reversed(arrays)])
    assert one.within >= 0
    assert one.between >= 0
    assert one.within == pytest.approx(other.within, abs=1e-9)
    assert one.between == pytest.approx(other.between, abs=1e-9)


def test_constant_sets_have_exactly_no_variance_within():
    found = split([np.full(3, 0.1), np.full(3, 0.3)])
    assert (found.within, found.between) == (0.0, pytest.approx(0.02))
    assert split([np.full(3, 0.1)] * 3).between == 0.0


def parts(study) -> pd.DataFrame:
    frame = components(load_study(study.directory)).frame
    return frame[frame["view"] == "last"].set_index("component")


def test_the_four_variants_give_the_four_parts(study):
    accuracies = {
        "default": {1: (0.5, 0.7), 2: (0.6, 0.8)},
        "algo": {1: (0.5, 0.6), 2: (0.5, 0.6)},
        "fixed-seed": {1: (0.5, 0.52), 2: (0.6, 0.62)},
        "control": {1: (0.5, 0.5), 2: (0.5, 0.5)},
    }
    for variant, sets in accuracies.items():
        for cpus, values in sets.items():
            for repetition, value in enumerate(values, start=1):
                study.run(cpus, repetition, variant=variant, accuracies=(value,), losses=(1.0,))
    found = parts(study)
    assert found.variance["ALGO: seeds"] == pytest.approx(0.005)
    assert found.variance["IMPL: run to run"] == pytest.approx(0.0002)
    assert found.variance["threads"] == 0  # MSB 0.01 < MSW 0.02
    assert found.remark["threads"] == "estimated below 0"
    assert found.remark["nothing left free"] == ""
    assert found.variance["rest"] == pytest.approx(0.02 - 0.005 - 0.0002)
    assert found.variance["all"] == pytest.approx(0.02)
    assert found.variance["threads, one seed"] == pytest.approx((0.01 - 0.0002) / 2)
    assert found.variance["nothing left free"] == 0
    of_all = ["ALGO: seeds", "IMPL: run to run", "threads", "rest"]
    assert found.share[of_all].sum() == pytest.approx(1)
    assert found.n["ALGO: seeds"] == 4


def test_with_several_seeds_run_to_run_is_within_a_seed(study):
    for cpus in (1, 2):
        for i, value in enumerate((0.5, 0.9, 0.52, 0.92), start=1):
            study.run(cpus, i, seed=(i - 1) % 2 + 1, accuracies=(value,), losses=(1.0,))
    found = parts(study)
    assert found.variance["IMPL: run to run"] == pytest.approx(0.0002)
    assert found.groups["IMPL: run to run"] == 2
    assert found.remark["threads, one seed"] == "inconclusive: the table `seeds` compares them"


def test_what_an_incomplete_design_does_not_tell_is_said(study):
    study.run(1, 1, variant="default")
    study.run(2, 1, variant="default")
    study.run(1, 1)
    study.run(1, 2)
    found = parts(study)
    assert found.remark["ALGO: seeds"] == "inconclusive: no runs of algo"
    assert found.remark["threads"] == "inconclusive: no thread count has two runs"
    assert found.remark["threads, one seed"] == "inconclusive: one thread count only"
    assert "no runs of algo" in found.remark["rest"]
    assert found.variance["IMPL: run to run"] == 0
    assert found.variance[["ALGO: seeds", "threads", "rest", "all"]].isna().all()
