import random

import numpy as np
import pytest

from guest.machine import seeds
from guest.records.run import Seeds

FIXED = Seeds(initialisation=1, data_order=1, augmentation=1, dropout=1)


def test_fixed_factors_stay_and_free_ones_are_drawn_anew():
    drawn = [seeds.draw(Seeds(initialisation=7)) for _ in range(4)]
    assert {d.initialisation for d in drawn} == {7}
    assert len({d.data_order for d in drawn}) == 4
    assert all(0 <= d.dropout < 2**31 for d in drawn)


def test_equal_seeds_give_equal_streams_and_factors_do_not_share_one():
    first = seeds.generator(FIXED, "data_order").permutation(100)
    again = seeds.generator(FIXED, "data_order").permutation(100)
    other = seeds.generator(FIXED, "augmentation").permutation(100)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_global_generators_follow_the_seed():
    seeds.seed_globals(FIXED)
    first = (random.random(), np.random.rand())
    seeds.seed_globals(FIXED)
    assert (random.random(), np.random.rand()) == first


def test_an_unknown_factor_is_an_error():
    with pytest.raises(AttributeError):
        seeds.generator(FIXED, "weather")
