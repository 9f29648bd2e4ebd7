from __future__ import annotations

import importlib.util

import pandas as pd
import pytest

from analysis.exchange.parquet import ExtraMissingError, _plain, write_parquet
from analysis.pipeline import analyze


def test_without_pyarrow_the_line_that_installs_it_is_named(study, tmp_path, monkeypatch):
    study.run(1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ExtraMissingError, match="-m pip install pyarrow"):
        write_parquet(analyze(study.directory), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_columns_are_of_one_kind():
    frame = pd.DataFrame({"l": [[1, "a"], None], "m": [1, None], "t": ["a", None]}, dtype=object)
    plain = _plain(frame)
    assert plain.l.tolist() == [["1", "a"], None]
    assert plain.m.dtype == float
    assert plain.t[0] == "a"
    assert pd.isna(plain.t[1])


@pytest.mark.needs("tools")
def test_every_table_is_read_back_from_parquet(study, tmp_path):
    study.usual()
    analysis = analyze(study.directory)
    paths = write_parquet(analysis, tmp_path / "out")
    assert {path.stem for path in paths} >= {"runs", "epochs", "steps", *analysis.tables}
    again = pd.read_parquet(tmp_path / "out" / "epochs.parquet")
    pd.testing.assert_frame_equal(again, analysis.study.epochs, check_dtype=False)
    sets = pd.read_parquet(tmp_path / "out" / "tables" / "performance.parquet")
    assert sets.sd.tolist() == analysis.tables["performance"].frame.sd.tolist()
    with pytest.raises(FileExistsError):
        write_parquet(analysis, tmp_path / "out")
