from __future__ import annotations

import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.inference.pairwise import DIFFER, NONE_FOUND, UNREACHABLE, u_tests
from analysis.load.study import load_study
from guest.records.run import Metric

SETS = {
    1: (0.50, 0.51, 0.52, 0.53, 0.54),
    2: (0.60, 0.61, 0.62, 0.63, 0.64),
    4: (0.505, 0.515, 0.525, 0.535, 0.6),
}


def fabricate(study, sets, **options):
    for cpus, accuracies in sets.items():
        for repetition, accuracy in enumerate(accuracies, start=1):
            study.run(cpus, repetition, variant="default", accuracies=(0.5, accuracy), **options)


def test_p_values_are_scipys_and_the_correction_is_statsmodels(study):
    fabricate(study, SETS)
    frame = u_tests(load_study(study.directory)).frame
    last = frame[frame["view"] == "last"]
    expected = [
        float(stats.mannwhitneyu(SETS[a], SETS[b], method="exact").pvalue) for a, b in ((1, 2), (1, 4))
    ]
    assert list(last.p[:2]) == expected
    assert list(last.p_holm) == pytest.approx(list(multipletests(last.p, method="holm")[1]))
    assert list(zip(last.a, last.b, strict=True)) == [("1", "2"), ("1", "4"), ("2", "4")]
    assert list(last.result)[:2] == [DIFFER, NONE_FOUND]
    assert last.delta.iloc[0] == -1
    assert set(last.family) == {3}


def test_n_too_small_says_so(study):
    fabricate(study, {cpus: values[:3] for cpus, values in SETS.items()})
    frame = u_tests(load_study(study.directory)).frame
    assert set(frame.result) == {UNREACHABLE}
    assert list(frame.p_smallest) == pytest.approx([0.3] * 6)


def test_all_metrics_of_a_view_are_one_family(study):
    fabricate(study, SETS, metrics=(Metric.ACCURACY, Metric.F1_MACRO))
    frame = u_tests(load_study(study.directory)).frame
    assert set(frame.family) == {6}
    assert len(frame) == 12


def test_copies_are_not_tested(study):
    fabricate(study, {1: (0.5,) * 5, 2: (0.6,) * 5, 4: (0.6,) * 5})
    frame = u_tests(load_study(study.directory)).frame
    assert frame.p.isna().all()
    assert set(frame.result) == {
        "not tested: both sets constant, unequal",
        "not tested: both sets constant, equal",
    }


def test_one_thread_count_gives_an_empty_table_with_columns(study):
    study.run(1)
    frame = u_tests(load_study(study.directory)).frame
    assert frame.empty
    assert "p_holm" in frame
