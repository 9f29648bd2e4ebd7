from __future__ import annotations

import json

import pytest

from analysis.scan.kept import NAME, KeptScanError, encode, read_kept
from tests.analysis.scan.requirements.test_shares import made


def test_a_kept_scan_is_read_back(tmp_path):
    scan = made(2, 1, 3)
    (tmp_path / NAME).write_text(encode(scan))
    assert read_kept(tmp_path) == scan
    assert read_kept(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema_version": 1, "projects": [3]}', '{"schema_version": 99}']
)
def test_a_damaged_or_newer_scan_is_refused(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(KeptScanError):
        read_kept(tmp_path)


def test_every_part_of_a_scan_survives_json():
    assert json.loads(encode(made(1, 1, 1)))["projects"][0]["hardware"][0]["part"] == "gpu"
