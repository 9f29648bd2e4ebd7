from __future__ import annotations

import hashlib
import json
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save

from analysis.load.study import View, load_study
from analysis.results.model import ACROSS
from analysis.sameness.weights import _by_run, _distances, _pairs, distances, read_weights, weight_rows
from analysis.stats import numerics
from analysis.stats.statistics import mean_of_pairs
from guest.records.codec import RecordError, digest
from guest.records.run import RECORD, WEIGHTS


def sha(data):
    return hashlib.sha256(data).hexdigest()


def last(study):
    frame = pd.DataFrame(weight_rows(load_study(study.directory)))
    return frame[frame["view"] == "last"].set_index("scope")


def test_distances_within_and_across_by_hand(study):
    for repetition in (1, 2):
        study.run(1, repetition, weights="340")
        study.run(2, repetition, weights=f"30{4 * repetition}")
    found = last(study)
    assert (found.l2["1"], found.differing["1"]) == (0, 0)
    assert found.l2["2"] == 4
    assert found.differing["2"] == pytest.approx(1 / 3)
    across = found.loc[ACROSS]
    # of (3, 4, 0) to (3, 0, 4) and (3, 0, 8), each two times
    assert across.l2 == pytest.approx((np.sqrt(32) + np.sqrt(80)) / 2)
    units = [numerics.l2_of_units(np.array([3.0, 4, 0]), np.array([3.0, 0, x])) for x in (4, 8)]
    assert across.l2_unit == pytest.approx(np.mean(units))
    assert (across.pairs, across.pairs_text, across.weights) == (4, "4", 3)
    assert across.differing == pytest.approx(2 / 3)


@given(
    st.integers(1, 9).flatmap(
        lambda d: st.tuples(*[arrays(np.float32, d, elements=st.floats(-99, 99, width=32))] * 2)
    )
)
def test_one_pass_gives_what_the_definitions_give(pair):
    a, b = pair
    lengths = [float(np.linalg.norm(v.astype(np.float64))) for v in pair]
    l2, unit, differing = distances(a, b, *lengths)
    assert l2 == pytest.approx(numerics.l2(a, b))
    assert unit == pytest.approx(numerics.l2_of_units(a, b), abs=1e-7)
    assert differing == numerics.vc(a, b)


def test_a_damaged_file_is_named_and_nothing_is_measured(study):
    study.run(1, 1, weights="34")
    damaged = study.run(1, 2, weights="35") / WEIGHTS
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(bytes(data))
    row = last(study).loc["1"]
    assert np.isnan(row.l2)
    assert row.remark == "not measured: weights.safetensors does not match its SHA-256"


def test_one_run_has_no_distance(study):
    study.run(1)
    assert last(study).loc["1"].remark == "one run"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"not safetensors", "weights.safetensors"),
        (save({"counter": np.array([1])}), "holds no weights"),
        (save({"a": np.array([np.inf], np.float32)}), "not finite"),
    ],
)
def test_files_without_usable_weights_are_refused(tmp_path, data, what):
    (tmp_path / WEIGHTS).write_bytes(data)
    with pytest.raises(RecordError, match=what):
        read_weights(tmp_path / WEIGHTS, sha(data))


def test_models_of_unlike_size_are_not_compared(study):
    study.run(1, 1, weights="34")
    study.run(2, 1, weights="345")
    assert last(study).loc[ACROSS].remark == "not measured: models of 2 and 3 weights are not compared"


def test_a_run_without_a_weights_file_is_named(study):
    study.run(1, 2, weights="34")
    folder = study.run(1, 1, weights="35")
    record = json.loads((folder / RECORD).read_text())
    del record["record_sha256"], record["result"]["artifacts"][WEIGHTS]
    (folder / RECORD).write_text(json.dumps(record | {"record_sha256": digest(record)}))
    assert last(study).loc["1"].remark.startswith("not measured: weights.safetensors")


def test_many_runs_and_large_models_are_sampled_and_always_the_same_way():
    threads = np.array(["1", "2"] * 150)
    pairs, total = _pairs(threads, models=300, affordable=10**6, across=True)
    assert (len(pairs), total) == (450, 150 * 150)
    assert all(threads[i] != threads[j] for i, j in pairs)
    assert len(set(pairs)) == 450
    assert pairs == _pairs(threads, models=300, affordable=10**6, across=True)[0]
    assert len(_pairs(threads[:60], models=60, affordable=10, across=False)[0]) == 10
    assert len(_pairs(threads[:60], models=4, affordable=10, across=False)[0]) == 60 * 59 // 2


@pytest.mark.parametrize(
    ("sizes", "affordable"),
    [((30,) * 4, 111), ((30,) * 4, 400), ((100,) * 4, 10**6), ((20, 30, 40), 80), ((9,) * 8, 10)],
)
def test_drawn_pairs_are_of_every_two_thread_counts_and_their_numbers_are_no_variance(sizes, affordable):
    threads = np.repeat([str(2**i) for i in range(len(sizes))], sizes)
    pairs, _ = _pairs(threads, len(threads), affordable, across=True)
    apart = {pair: 1.0 + i for i, pair in enumerate(combinations(dict.fromkeys(threads), 2))}
    assert {(threads[i], threads[j]) for i, j in pairs} == set(apart)
    assert len(pairs) <= max(affordable, len(apart))
    values = np.array([apart[threads[i], threads[j]] for i, j in pairs])
    parts = _by_run(values, pairs, threads, across=True)
    found = mean_of_pairs(float(values.mean()), parts)
    assert sum(map(np.sum, parts)) / 2 == pytest.approx(found.value)
    assert found.low is None or found.high - found.low < 1e-9


@pytest.mark.parametrize("sizes", [(100, 100, 5), (400, 300, 5), (100, 100, 100)])
def test_drawn_pairs_of_unequal_sets_estimate_the_mean_over_all_pairs(sizes):
    at = {"1": 0.0, "2": 1.0, "4": 7.0}
    threads = np.repeat(list(at), sizes)
    names = [f"run {i}" for i in range(len(threads))]
    runs = pd.DataFrame({"run_id": names, "threads": threads, View.LAST.sha256("weights"): names})
    runs["last_weights_file_sha256"] = names
    place = dict(zip(names, threads, strict=True))
    models = SimpleNamespace(view=View.LAST, vector=lambda run, _: (np.array([at[place[run]], 1.0]), 1.0))
    row = _distances(models, runs, across=True, numbers=10**6)
    count = dict(zip(at, sizes, strict=True))
    of_all = {(a, b): count[a] * count[b] for a, b in combinations(at, 2)}
    assert row["of_pairs"] == sum(of_all.values()) > row["pairs"]
    expected = sum(n * (at[b] - at[a]) for (a, b), n in of_all.items()) / row["of_pairs"]
    assert row["l2"] == pytest.approx(expected)
    assert row["l2_low"] is None or row["l2_high"] - row["l2_low"] < 1e-9


@pytest.mark.parametrize("runs", [300, 700])
def test_drawn_pairs_within_a_thread_count_have_each_run_equally_often(runs):
    threads = np.array(["1"] * runs)
    pairs, _ = _pairs(threads, runs, 10**6, across=False)
    times = np.bincount(np.array(pairs).ravel())
    assert set(times[times > 0]) == {2}
    (part,) = _by_run(np.ones(len(pairs)), pairs, threads, across=False)
    assert len(part) == min(runs, 500)
    assert np.ptp(part) < 1e-9
