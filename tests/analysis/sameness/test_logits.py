"""Logits against those of the lowest thread count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.load.study import load_study
from analysis.sameness.logits import logit_rows, measures
from analysis.stats import numerics
from guest.records.run import PREDICTIONS


def test_copies_of_the_reference_are_0_and_repeated_others_are_not(usual_study):
    frame = pd.DataFrame(logit_rows(load_study(usual_study.directory)))
    last = frame[frame["view"] == "last"].set_index("scope")
    assert set(frame.variant) == {"fixed-seed"}  # of free seeds, logits differ by the seed
    assert last.vermv["1"] == last.vc["1"] == last.ulp_most["1"] == 0
    # One sample of four goes from class 0 to class 1: two of its three one-hot logits.
    assert last.vc["4"] == 2 / 12
    assert last.vermv["4"] == 2 / 12  # 1 -> 0 counts |1 - 0| / 1, 0 -> 1 by the rule for zeros
    assert last.own["4"] == 0
    assert (last.logits_distinct == 1).all()
    assert (last.vermv_low == last.vermv).all()


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
