from pathlib import Path

from guest.records import trace
from guest.records.codec import seal

GOLDEN = Path(__file__).parents[2] / "golden"


def test_a_file_of_the_first_version_is_still_read():
    found = trace.decode((GOLDEN / "trace-1.json").read_text())
    assert [origin.setting for origin in found.origins] == ["oneDNN"]
    assert trace.decode(seal(found)) == found
