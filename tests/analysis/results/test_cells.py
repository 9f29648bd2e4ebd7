from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.results.cells import cell, interval, number, p_value
from analysis.results.model import Column, Kind


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.COUNT, 12, "12"),
        (Kind.COUNT, 4.5, "4.5"),
        (Kind.METRIC, 0.748951887, "0.74895"),
        (Kind.METRIC, 0.0, "0.00000"),
        (Kind.METRIC, 0.000123456, "0.000123"),
        (Kind.METRIC, 3e-7, "3.00e-07"),
        (Kind.METRIC, -9e-7, "-9.00e-07"),
        (Kind.SPREAD, 0.000898383, "0.00090"),
        (Kind.SPREAD, 0.0, "0"),
        (Kind.SPREAD, 1.26e-9, "1.3e-09"),
        (Kind.SECONDS, 123.456, "123"),
        (Kind.SECONDS, 8.3041, "8.30"),
        (Kind.RATIO, 1.709, "1.71"),
        (Kind.P, 0.0004, "<0.001"),
        (Kind.P, 0.0456, "0.046"),
        (Kind.P, 0.0497, "0.0497"),
        (Kind.P, 0.05, "0.050"),
        (Kind.P, 0.0503, "0.0503"),
        (Kind.P, 0.04997, "0.04997"),
        (Kind.P, 0.05003, "0.05003"),
        (Kind.P, math.nextafter(0.05, 1), "0.05000000000000001"),
        (Kind.TEXT, True, "yes"),
        (Kind.TEXT, "", "–"),
        (Kind.METRIC, None, "–"),
        (Kind.METRIC, math.nan, "–"),
        (Kind.COUNT, pd.NA, "–"),
        (Kind.SPREAD, math.inf, "∞"),
        (Kind.SPREAD, np.float64(0.5), "0.50"),
    ],
)
def test_numbers(kind, value, text):
    assert number(kind, value) == text


def test_intervals_have_the_decimals_of_the_estimate():
    assert interval(Kind.SPREAD, 0.0012, 0.00064, 0.00741) == "0.0012 [0.0006, 0.0074]"


def test_bounds_show_on_which_side_of_0_they_lie():
    assert interval(Kind.SPREAD, 0.0012, 0.00003, 0.0024) == "0.0012 [0.00003, 0.0024]"
    assert interval(Kind.SPREAD, -0.0012, -0.0024, -0.000004) == "-0.0012 [-0.0024, -0.000004]"
    assert interval(Kind.RATIO, 0.4, 0.003, 0.8) == "0.40 [0.003, 0.80]"
    assert interval(Kind.METRIC, 0.5, 0.0, 1.0) == "0.50000 [0.00000, 1.00000]"
    assert interval(Kind.SPREAD, 0.0012, 0.0, 0.0024) == "0.0012 [0, 0.0024]"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.0, 0.0, 0.014, "0 [0, 0.014]"),
        (0.0, -0.25, 0.014, "0 [-0.25, 0.01]"),
        (0.0, 0.0, 1.4e-9, "0 [0, 1.4e-09]"),
        (0.0012, 3e-9, 0.0024, "1.2e-03 [3.0e-09, 2.4e-03]"),
        (2e-7, 0.0, 0.0024, "2.0e-07 [0, 2.4e-03]"),
        (3.0e6, 2.5e5, math.inf, "3.0e+06 [2.5e+05, ∞]"),
    ],
)
def test_an_interval_has_one_format_of_numbers(value, low, high, text):
    assert interval(Kind.SPREAD, value, low, high) == text


def test_cells():
    sd = Column(header="SD", source="sd", kind=Kind.SPREAD, low="low", high="high")
    assert cell(sd, {"sd": 0.5, "low": 0.25, "high": 1.5}) == "0.50 [0.25, 1.50]"
    assert cell(sd, {"sd": 0.0, "low": 0.0, "high": 0.0}) == "0 (exact)"
    assert cell(sd, {"sd": 0.5, "low": 0.5, "high": 0.5}) == "0.50 (exact)"
    assert cell(sd, {"sd": None, "low": None, "high": None}) == "–"
    assert cell(sd, {"sd": 0.5, "low": math.nan, "high": math.nan}) == "0.50"
    level = Column(header="weights", source="w", kind=Kind.LEVEL, low="k", high="n")
    assert cell(level, {"w": "identical", "k": 1, "n": 3}) == "identical (n=3)"
    assert cell(level, {"w": "identical", "k": 3, "n": 12}) == "identical for each seed (n=12)"
    assert cell(level, {"w": "differ", "k": 4, "n": 12}) == "differ (4 distinct of 12)"
    assert cell(level, {"w": "one run: inconclusive", "k": 1, "n": 1}) == "one run: inconclusive"
    assert cell(Column(header="", source="v", kind=Kind.METRIC), {"v": [0.5, 0.25]}) == "0.50000 · 0.25000"
    assert cell(Column(header="", source="v"), {"v": []}) == "–"


def test_p_in_a_sentence():
    assert (p_value(0.0001), p_value(0.5)) == ("< 0.001", "= 0.500")
