import json

import pytest

from guest import harden_records
from guest.records import NewerSchemaError, RecordError
from tests import factories


def test_a_hardening_survives_the_way_through_its_file():
    made = factories.hardening([factories.measurement()])
    assert harden_records.decode(harden_records.encode(made)) == made


@pytest.mark.parametrize("position", [30, 300, 600, 900])
def test_a_flipped_byte_is_detected(position):
    data = bytearray(harden_records.encode(factories.hardening([factories.measurement()])).encode())
    data[position] ^= 1
    with pytest.raises(RecordError):
        harden_records.decode(bytes(data))


def test_the_file_of_a_newer_vbstudy_is_told_from_a_damaged_one():
    data = json.loads(harden_records.encode(factories.hardening([])))
    data["version"] = harden_records.HARDEN_VERSION + 1
    with pytest.raises(NewerSchemaError, match="upgrade vbstudy"):
        harden_records.decode(json.dumps(data))
