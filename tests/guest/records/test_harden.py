import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from guest.records import harden
from guest.records.codec import NewerSchemaError, RecordError, seal
from tests import factories

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True)
class Older:
    version: int
    results: object


def test_a_hardening_survives_the_way_through_its_file():
    made = factories.hardening([factories.measurement()])
    assert harden.decode(seal(made)) == made


@pytest.mark.parametrize("position", [30, 300, 600, 900])
def test_a_flipped_byte_is_detected(position):
    data = bytearray(seal(factories.hardening([factories.measurement()])).encode())
    data[position] ^= 1
    with pytest.raises(RecordError):
        harden.decode(bytes(data))


def test_a_workload_whose_name_is_a_path_is_refused():
    made = factories.hardening([factories.measurement()])
    named = replace(made, workload=replace(made.workload, name="/tmp/evil"))
    with pytest.raises(RecordError, match="'/tmp/evil' is no name"):
        harden.decode(seal(named))


def test_the_file_of_a_newer_vbstudy_is_told_from_a_damaged_one():
    data = json.loads(seal(factories.hardening([])))
    data["version"] = harden.HARDEN_VERSION + 1
    with pytest.raises(NewerSchemaError, match="upgrade vbstudy"):
        harden.decode(json.dumps(data))


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_still_read(version):
    found = harden.decode((GOLDEN / f"harden-{version}.json").read_text())
    excluded = {result.tier.value: {cost.excluded for cost in result.costs} for result in found.results}
    assert excluded["exact"] == {"disturbed by others"}
    assert harden.decode(seal(found)) == found


def test_a_file_of_the_first_version_with_other_fields_is_an_error():
    for results in ([{}], [[]], 3, None):
        text = seal(Older(version=1, results=results))
        with pytest.raises(RecordError):
            harden.decode(text)
