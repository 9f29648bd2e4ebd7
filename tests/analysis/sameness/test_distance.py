"""The table of distances, and where training diverges."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.load.study import load_study
from analysis.quality.histories import loss_rows, loss_sd_by_epoch
from analysis.results.model import ACROSS
from analysis.sameness.distance import distance


def across(study):
    frame = distance(load_study(study.directory)).frame
    return frame[(frame.scope == ACROSS) & (frame["view"] == "last")]


def first_difference(study):
    return across(study).iloc[0]


def test_the_bracket_of_the_first_difference(study):
    study.run(1, steps={1: "a", 2: "b", 4: "c", 8: "d"}, losses=(1.0, 0.5, 0.2), accuracies=(0.5,) * 3)
    study.run(2, steps={1: "a", 2: "b", 4: "C", 8: "D"}, losses=(1.0, 0.5, 0.3), accuracies=(0.5,) * 3)
    row = first_difference(study)
    assert (row.equal_up_to, row.different_at) == (2, 4)
    assert row.diverges == "equal up to step 2, different at step 4"
    assert row.diverges_loss == 3
    assert pd.isna(row.diverges_metric)


def test_a_difference_at_the_first_step_and_none_at_all(study):
    study.run(1, workload="a", steps={1: "x"})
    study.run(2, workload="a", steps={1: "y"})
    study.run(1, workload="b", steps={1: "x", 2: "y"})
    study.run(2, workload="b", steps={1: "x", 2: "y"})
    frame = across(study).set_index("workload")
    assert frame.diverges["a"] == "different at step 1, the first recorded"
    assert frame.diverges["b"] == "equal up to step 2, the last recorded"


def test_free_seeds_have_no_first_difference(study):
    study.run(1, variant="default")
    study.run(2, variant="default")
    assert "diverges_loss" not in across(study)


def test_what_is_known_of_a_thread_count_stands_in_one_row(usual_study):
    loaded = load_study(usual_study.directory)
    frame = distance(loaded, loss_rows(loss_sd_by_epoch(loaded))).frame
    assert not frame.duplicated(["workload", "variant", "view", "scope"]).any()
    assert len(frame) == 2 * 2 * 4  # variants, views, three thread counts and across them
    row = frame[(frame.variant == "fixed-seed") & (frame["view"] == "last")].set_index("scope")
    assert (row.l2["4"], row.loss_end["4"], row.vermv["4"]) == (0, 0, 0)
    assert row.vermv[ACROSS] == pytest.approx(2 / 12 / 2)  # one of the two others
    assert row.loss_end[ACROSS] == pytest.approx(0.01)  # of 0.5, 0.51 and 0.52
    assert (row.n["4"], row.n[ACROSS], row.remark[ACROSS]) == (3, 9, "")
    assert row.diverges[ACROSS].startswith("equal up to step 1")


def test_with_several_seeds_the_first_difference_is_that_of_any_seed(study):
    for cpus in (1, 2):
        for seed in (1, 2):
            steps = {1: f"a{seed}", 2: f"b{seed}", 4: f"c{seed}{cpus if seed == 2 else ''}"}
            study.run(cpus, seed, seed=seed, steps=steps, weights=f"{seed}")
    assert first_difference(study).diverges == "equal up to step 2, different at step 4"
