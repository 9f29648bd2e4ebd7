"""Crossed designs: only runs of one seed are compared."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.quality.robustness import flips
from analysis.results.model import ACROSS
from analysis.sameness.churn import churn
from analysis.sameness.distance import distance
from analysis.sameness.logits import logit_rows
from analysis.sameness.weights import weight_rows

SEEDS = (1, 2, 3, 4, 5, 6)


@pytest.fixture
def crossed(study):
    """Six seeds twice on one and on two threads: copies on each, and between the two threads as many of
    four samples differ as PREDICTED says; the models of two seeds have nothing in common."""
    for seed in SEEDS:
        first = (seed % 2,) * 4
        for cpus in (1, 2):
            changed = (1 - seed % 2,) * (seed // 3) if cpus == 2 else ()
            for repetition in (seed, seed + len(SEEDS)):
                study.run(
                    cpus,
                    repetition,
                    seed=seed,
                    truth=(0, 1, 0, 1),
                    predicted=changed + first[len(changed) :],
                    weights=f"{seed}{seed}{cpus if seed > 1 else 1}",
                )
    return load_study(study.directory)


def test_churn_is_between_runs_of_one_seed(crossed):
    frame = churn(*read_predictions(crossed)).frame
    last = frame[frame["view"] == "last"].set_index("scope")
    assert (last.churn["1"], last.largest["1"], last.agreement["1"]) == (0, 0, 1)
    assert (last.n["1"], last.pairs["1"], last.seeds["1"]) == (12, 6, 6)
    expected = sum(seed // 3 for seed in SEEDS) / 4 / len(SEEDS)
    for scope in ("1 | 2", ACROSS):
        assert last.churn[scope] == pytest.approx(expected)
        assert (last.n[scope], last.pairs[scope], last.seeds[scope]) == (24, 24, 6)
        assert 0 <= last.low[scope] < expected < last.high[scope]  # over the six seeds
    assert last.p.isna().all()  # McNemar's test is for two models, not for six of each


def test_weights_lie_apart_within_seeds(crossed):
    frame = pd.DataFrame(weight_rows(crossed))
    last = frame[frame["view"] == "last"].set_index("scope")
    assert (last.l2["1"], last.pairs["1"]) == (0, 6)
    assert last.differing[ACROSS] == pytest.approx(5 / 6 / 3)  # one weight of three, but for the first seed
    assert (last.pairs_text[ACROSS], last.seeds[ACROSS]) == ("24", 6)


def test_logits_are_compared_with_those_of_their_seed(crossed):
    last = pd.DataFrame(logit_rows(crossed)).query("view == 'last'").set_index("scope")
    assert (last.vc["1"], last.vc["2"]) == (0, 0)
    assert last.vc[ACROSS] == pytest.approx(sum(seed // 3 for seed in SEEDS) / 4 / len(SEEDS))
    assert (last.logits_read[ACROSS], last.logits_distinct[ACROSS]) == (12, 6)


def test_free_seeds_are_not_counted_as_one(crossed, study):
    for cpus in (1, 2):
        for repetition in (1, 2, 3):
            classes = {"truth": (0, 1, 0, 1), "predicted": (0, 1, 0, 1)}
            study.run(cpus, repetition, variant="default", seed=10 * cpus + repetition, **classes)
    loaded = load_study(study.directory)
    tables = churn(*read_predictions(loaded)), flips(*read_predictions(loaded)), distance(loaded)
    for table in tables:
        seeds = table.frame.groupby("variant").seeds
        assert set(seeds.get_group("fixed-seed")) == {len(SEEDS)}
        assert seeds.get_group("default").isna().all()


def test_runs_of_one_seed_each_have_no_churn_within_a_thread_count(study):
    for seed in SEEDS:
        for cpus in (1, 2):
            study.run(cpus, seed, seed=seed, weights=f"{seed}{cpus}")
    loaded = load_study(study.directory)
    frame = churn(*read_predictions(loaded)).frame.set_index(["view", "scope"])
    assert (frame.pairs["last", "1"], frame.pairs["last", "1 | 2"]) == (0, 6)
    assert frame.churn.isna()["last", "1"]
    found = pd.DataFrame(weight_rows(loaded)).set_index(["view", "scope"])
    assert found.remark["last", "1"] == "one run of each seed"


def test_intervals_over_seeds_stay_within_what_can_be(study):
    for seed in SEEDS:
        for cpus in (1, 2):
            study.run(
                cpus,
                seed,
                seed=seed,
                predicted=(0, 1, 2, cpus - 1 if seed < 3 else 0),
                weights=f"{cpus}{cpus}{cpus if seed > 1 else 0}",
            )
    loaded = load_study(study.directory)
    far = pd.DataFrame(weight_rows(loaded)).set_index(["view", "scope"]).loc["last", ACROSS]
    assert far.differing == pytest.approx(17 / 18)
    assert far.differing < far.differing_high <= 1
    near = pd.DataFrame(logit_rows(loaded)).set_index(["view", "scope"]).loc["last", ACROSS]
    assert 0 <= near.vermv_low < near.vermv
