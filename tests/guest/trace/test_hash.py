"""The hash of raw bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.trace import hash as trace_hash
from guest.trace.hash import SHARE, WORDS, hash_arrays, hash_bytes


@given(st.binary(min_size=1, max_size=200), st.data())
def test_every_single_bit_counts(data, draw):
    place = draw.draw(st.integers(0, 8 * len(data) - 1))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << (place % 8)
    assert hash_bytes(np.frombuffer(data, np.uint8)) != hash_bytes(np.frombuffer(bytes(changed), np.uint8))


@given(st.lists(st.floats(width=32), min_size=2, max_size=50, unique=True), st.randoms())
def test_the_order_counts(numbers, random):
    mixed = list(numbers)
    random.shuffle(mixed)
    a, b = np.array(numbers, np.float32), np.array(mixed, np.float32)
    assert (hash_bytes(a) == hash_bytes(b)) == (a.tobytes() == b.tobytes())


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from([np.float32, np.float64]))
def test_two_flipped_signs_do_not_cancel(i, j, kind):
    array = np.arange(1, 101, dtype=kind)
    other = array.copy()
    other[[i, j]] *= -1
    assert hash_bytes(array) != hash_bytes(other)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 8 * WORDS - 1, 8 * WORDS, 8 * WORDS + 1, 40 * WORDS + 3])
def test_the_last_byte_and_the_length_count(size):
    data = np.zeros(size + 1, np.uint8)
    other = data.copy()
    other[-1] = 1
    assert len({hash_bytes(data), hash_bytes(other), hash_bytes(data[:-1])}) == 3


def test_how_many_cores_hash_it_does_not_count(monkeypatch):
    data = np.random.default_rng(2).integers(0, 256, 64 * SHARE * WORDS + 5, dtype=np.uint8)
    found = set()
    for cores in (1, 2, 3, 64):
        monkeypatch.setattr(trace_hash, "_cores", lambda cores=cores: cores)
        found.add(hash_bytes(data))
    assert len(found) == 1


def test_where_the_bytes_lie_does_not_count():
    memory = np.random.default_rng(1).integers(0, 256, 100_001, dtype=np.uint8)
    assert hash_bytes(memory[1:]) == hash_bytes(memory[1:].copy())


def test_signed_zeros_and_nans_are_told_apart():
    values = [0.0, -0.0, np.nan, np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]]
    assert len({hash_bytes(np.array([value], np.float32)) for value in values}) == 4


def test_arrays_count_with_name_type_and_shape():
    zeros = np.zeros(4, np.float32)
    variants = [{"a": zeros}, {"b": zeros}, {"a": zeros.reshape(2, 2)}, {"a": zeros.view(np.int32)}]
    variants += [{"a": zeros, "b": zeros}]
    assert len({hash_arrays(each) for each in variants}) == len(variants)
    assert hash_arrays({"a": zeros, "b": zeros + 1}) == hash_arrays({"b": zeros + 1, "a": zeros})
