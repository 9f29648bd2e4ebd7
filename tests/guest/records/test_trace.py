import dataclasses
from pathlib import Path

import pytest

from guest.records import trace
from guest.records.codec import RecordError, seal

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_still_read(version):
    found = trace.decode((GOLDEN / f"trace-{version}.json").read_text())
    assert (found.version, found.tree_sha256) == (trace.TRACE_VERSION, "")
    assert [origin.setting for origin in found.origins] == ["oneDNN"]
    assert trace.decode(seal(found)) == found


def test_a_trace_of_one_side_is_damaged():
    whole = trace.decode((GOLDEN / "trace-2.json").read_text())
    with pytest.raises(RecordError, match="1 sides, not 2"):
        trace.decode(seal(dataclasses.replace(whole, sides=whole.sides[:1])))
