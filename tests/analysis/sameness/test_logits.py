"""Logits against those of the lowest thread count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.load.study import load_study
from analysis.results.model import ACROSS
from analysis.sameness.logits import logit_rows, measures
from analysis.stats import numerics
from guest.records.run import PREDICTIONS


def test_logits_of_copies_are_0_within_a_thread_count_and_not_across(usual_study):
    frame = pd.DataFrame(logit_rows(load_study(usual_study.directory)))
    last = frame[frame["view"] == "last"].set_index("scope")
    assert set(frame.variant) == {"fixed-seed"}  # of free seeds, logits differ by the seed
    for threads in ("1", "2", "4"):
        assert last.vermv[threads] == last.vermv_low[threads] == last.vc[threads] == 0
        assert (last.logits_distinct[threads], last.logits_read[threads]) == (1, 2)
    # On 4 threads one sample of four goes from class 0 to 1: two of its three one-hot logits. On 2 none.
    assert last.vc[ACROSS] == last.vermv[ACROSS] == 2 / 12 / 2  # 0 -> 1 counts 1, by the rule for zeros
    assert (last.logits_distinct[ACROSS], last.logits_read[ACROSS]) == (2, 6)


def test_one_run_of_a_thread_count_is_compared_across_them_alone(study):
    for cpus, predicted in ((1, (0, 1, 2, 0)), (2, (0, 1, 2, 1))):
        study.run(cpus, weights=f"{cpus}", predicted=predicted)
    last = pd.DataFrame(logit_rows(load_study(study.directory))).query("view == 'last'")
    assert list(last.scope) == [ACROSS]


def test_the_measures_are_those_of_numerics():
    rng = np.random.default_rng(2)
    a = rng.normal(size=(50, 4)).astype(np.float32)
    b = np.nextafter(a, np.float32(10))
    found = measures(a, b)
    assert (found["ulp"], found["ulp_most"], found["vc"]) == (1, 1, 1)
    assert found["vermv"] == numerics.vermv(a, b)
    each = [abs(numerics.vs(float(x), float(y))) for x, y in zip(a.flat, b.flat, strict=True)]
    assert found["vs"] == pytest.approx(max(each))


def test_damaged_or_infinite_logits_are_remarked(study):
    study.usual()
    loaded = load_study(study.directory)
    path = study.directory / "runs" / loaded.runs[loaded.runs.variant == "fixed-seed"].run_id.iloc[-1]
    (path.parent / "0001" / PREDICTIONS).write_bytes(b"no")
    frame = pd.DataFrame(logit_rows(loaded)).set_index(["scope", "view"])
    assert "SHA-256" in frame.remark["4", "last"]
    with pytest.raises(ValueError, match="finite"):
        measures(np.array([1.0], np.float32), np.array([np.inf], np.float32))
