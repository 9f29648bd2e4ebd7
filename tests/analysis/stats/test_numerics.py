from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance

from analysis.stats.numerics import kl_to_gaussian, l2, l2_of_units, ulp_distance, vc, vermv, vs

finite = st.floats(-1e6, 1e6, width=32)


@st.composite
def pairs(draw, dtype=np.float32):
    size = draw(st.integers(1, 10))
    return tuple(draw(arrays(dtype, size, elements=finite)) for _ in range(2))


@given(pairs())
def test_distances_are_symmetric_and_zero_only_for_equal_values(pair):
    a, b = pair
    for measure in (l2, l2_of_units, vc):
        assert measure(a, b) == measure(b, a)
        assert measure(a, a) == 0
    assert (ulp_distance(a, b) == ulp_distance(b, a)).all()
    same = bool((a == b).all())
    assert (vc(a, b) == 0) == (l2(a, b) == 0) == (vermv(a, b) == 0) == same
    assert ((ulp_distance(a, b) == 0) == (a == b)).all()
    assert 0 <= vc(a, b) <= 1
    assert l2_of_units(a, b) <= 2 + 1e-12


@given(pairs())
def test_l2_is_scipys(pair):
    a, b = (v.astype(np.float64) for v in pair)
    assert l2(a, b) == pytest.approx(distance.euclidean(a, b))


def test_l2_by_hand():
    a, b = np.array([3.0, 0.0]), np.array([0.0, 4.0])
    assert l2(a, b) == 5
    assert l2_of_units(a, b) == pytest.approx(math.sqrt(2))
    assert l2_of_units(a, 7 * a) == pytest.approx(0, abs=1e-15)
    assert l2_of_units(np.zeros(2), a) == 1


def test_nearly_equal_vectors_keep_their_distance():
    a = np.full(10_000, 1.0, np.float32)
    b = a.copy()
    b[0] = np.nextafter(b[0], np.float32(2))
    assert l2(a, b) == pytest.approx(2.0**-23, rel=1e-12)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_neighbours_are_one_ulp_apart_also_across_zero(kind):
    x = np.array([1.0, -1.0, 0.0, 100.0], kind)
    assert ulp_distance(x, np.nextafter(x, kind(np.inf))).tolist() == [1, 1, 1, 1]
    small = np.nextafter(np.array([0.0], kind), kind(1))
    assert ulp_distance(-small, small).tolist() == [2]
    assert ulp_distance(np.array([-0.0], kind), np.array([0.0], kind)).tolist() == [0]
    top = np.array([np.finfo(kind).max], kind)
    bits = 8 * np.dtype(kind).itemsize
    largest = int(top.view(f"u{bits // 8}")[0])
    assert int(ulp_distance(-top, top)[0]) == 2 * largest


def test_vs_by_hand():
    assert vs(2.0, 1.5) == 0.25
    assert vs(2.0, -2.5) == -0.25
    assert (vs(0.0, 0.0), vs(0.0, 1.0)) == (0.0, -math.inf)
    with pytest.raises(ValueError, match="finite"):
        vs(1.0, math.nan)


def test_vermv_and_vc_by_hand():
    a, b = np.array([2.0, -4.0, 1.0]), np.array([1.0, -4.0, 1.5])
    assert vermv(a, b) == pytest.approx((1 / 2 + 0 + 1 / 2) / 3)
    assert vc(a, b) == pytest.approx(2 / 3)


def test_a_zero_in_the_reference_distorts_no_other_element():
    a, b = np.array([0.0, 0.0, 1e-30, 4.0]), np.array([0.0, 1e-9, 2e-30, 4.0])
    assert vermv(a, b) == pytest.approx((0 + 1 + 1 + 0) / 4)


@given(pairs(), st.floats(0.5, 64))
def test_vermv_does_not_see_the_unit(pair, scale):
    a, b = (v.astype(np.float64) for v in pair)
    assert vermv(scale * a, scale * b) == pytest.approx(vermv(a, b), rel=1e-9, abs=1e-12)


def test_arrays_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        l2(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        vc(np.array([np.nan]), np.array([np.nan]))
    with pytest.raises(ValueError, match="equal types"):
        ulp_distance(np.zeros(2, np.float32), np.zeros(2))


def test_gaussian_values_are_near_a_gaussian_and_others_are_not():
    rng = np.random.default_rng(3)
    normal = kl_to_gaussian(rng.normal(5, 2, 4000))
    exponential = kl_to_gaussian(rng.exponential(size=4000))
    two = kl_to_gaussian(np.repeat([0.0, 1.0], 50))
    assert normal is not None
    assert exponential is not None
    assert two is not None
    assert 0 <= normal < 0.02
    assert exponential > 0.1
    assert two > 0.8


def test_the_divergence_by_hand():

    values = np.array([0.0] * 6 + [4.0] * 2)
    sd = math.sqrt((6 * 1 + 2 * 9) / 7)

    def below(x: float) -> float:
        return 0.5 * (1 + math.erf((x - 1) / sd / math.sqrt(2)))

    expected = 0.75 * math.log(0.75 / below(1)) + 0.25 * math.log(0.25 / (1 - below(3)))
    assert kl_to_gaussian(values) == pytest.approx(expected)


@given(arrays(np.float64, st.integers(8, 40), elements=st.floats(-100, 100)))
def test_the_divergence_is_never_negative_and_does_not_see_the_order(values):
    found = kl_to_gaussian(values)
    if np.ptp(values) == 0:
        assert found is None
    elif np.ptp(values) > 1e-6:
        assert found is not None
        assert found >= -1e-12
        assert found == pytest.approx(kl_to_gaussian(values[::-1]))


def test_no_spread_and_few_values_have_no_shape():
    assert kl_to_gaussian(np.full(20, 0.1)) is None
    assert kl_to_gaussian(np.arange(7.0)) is None
