import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.projects import events
from guest.projects.events import EventError

# A file that TensorFlow 2.21 wrote: acc = 0.25, 0.5 as simple values, 0.75 as a tensor.
TENSORFLOW = (
    "3e00000000000000d9d240e7090000001b69c0da411a0d627261696e2e4576656e743a3252240a2274656e736f72666c"
    "6f772e636f72652e7574696c2e6576656e74735f777269746572b2eac4de19000000000000008bf10828096dea131b69"
    "c0da4110012a0c0a0a0a03616363150000803e1cca4b4719000000000000008bf1082809c5ea131b69c0da4110022a0c"
    "0a0a0a03616363150000003faa6009ca200000000000000029eda95009caf1131b69c0da4110032a130a110a03616363"
    "420a080112002a040000403f68c99861"
)


def field(number: int, kind: int, data: bytes) -> bytes:
    return bytes([number << 3 | kind]) + data


def text(number: int, data: bytes) -> bytes:
    return field(number, 2, bytes([len(data)]) + data)


def event(step: int, tag: str, value: bytes) -> bytes:
    summary = text(1, text(1, tag.encode()) + value)
    data = field(1, 1, b"\0" * 8) + field(2, 0, bytes([step])) + text(5, summary)
    return struct.pack("<Q", len(data)) + b"crc." + data + b"crc."


def simple(value: float) -> bytes:
    return field(2, 5, struct.pack("<f", value))


def tensor(value: float) -> bytes:
    return text(8, field(1, 0, b"\1") + text(5, struct.pack("<f", value)))


def write(folder, data: bytes):
    folder.mkdir(exist_ok=True)
    (folder / "events.out.tfevents.1.host").write_bytes(data)
    return folder


def test_scalars_are_read_in_both_of_their_forms(tmp_path):
    folder = write(
        tmp_path, event(1, "acc", simple(0.5)) + event(2, "acc", tensor(0.75)) + event(2, "x", simple(9))
    )
    assert events.scalars(folder, "acc") == [(1, 0.5), (2, 0.75)]


def test_a_record_that_was_cut_off_ends_the_file(tmp_path):
    data = event(1, "acc", simple(0.5))
    assert events.scalars(write(tmp_path, data + data[:-9]), "acc") == [(1, 0.5)]


def test_a_tag_that_is_not_there_is_told_with_those_that_are(tmp_path):
    with pytest.raises(EventError, match="no scalar 'accuracy'; there are acc"):
        events.scalars(write(tmp_path, event(1, "acc", simple(0.5))), "accuracy")
    with pytest.raises(EventError, match="holds no TensorBoard events"):
        events.scalars(tmp_path / "nowhere", "acc")


def test_a_tag_in_several_folders_is_refused_and_several_files_of_one_are_read(tmp_path):
    for part, value in (("train", 0.9), ("validation", 0.5)):
        write(tmp_path / part, event(1, "acc", simple(value)))
    with pytest.raises(EventError, match="'acc' in several folders: train, validation; name one in `file`"):
        events.scalars(tmp_path, "acc")
    resumed = tmp_path / "validation" / "events.out.tfevents.2.host"
    resumed.write_bytes(event(2, "acc", simple(0.75)))
    assert events.scalars(tmp_path / "validation", "acc") == [(1, 0.5), (2, 0.75)]


def test_what_tensorflow_writes_is_read(tmp_path):
    assert events.scalars(write(tmp_path, bytes.fromhex(TENSORFLOW)), "acc") == [
        (1, 0.25),
        (2, 0.5),
        (3, 0.75),
    ]


@given(st.binary(max_size=200))
def test_no_bytes_fail_in_another_way_than_the_documented_one(tmp_path_factory, data):
    folder = write(tmp_path_factory.mktemp("events"), struct.pack("<Q", len(data)) + b"crc." + data + b"crc.")
    try:
        events.scalars(folder, "acc")
    except EventError:
        return
