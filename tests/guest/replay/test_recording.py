import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.replay import recording, streams
from guest.replay.recording import Draw, Header, NewerRecordingError, Recording, RecordingError

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
draws = st.builds(
    Draw,
    stream=st.builds("{},{}".format, names, names),
    kind=st.sampled_from(sorted(streams.LETTERS)),
    site=st.text(st.characters(codec="utf-8"), max_size=30),
    data=st.binary(max_size=64),
)


def a_recording(*drawn: Draw) -> Recording:
    header = Header(
        format="vbstudy-recording",
        version=recording.VERSION,
        level="library",
        command=("python", "train.py"),
        created_at="2026-01-01T00:00:00+00:00",
        machine="Linux x86_64",
        status=0,
        python_hash_seed="",
        modules={"torch": "2.13"},
        limits=(),
    )
    return Recording(header=header, draws=drawn or (a_draw(), a_draw(b"more")))


def a_draw(data: bytes = b"random", stream: str = "main,main") -> Draw:
    return Draw(stream=stream, kind="getrandom", site="libc.so:f", data=data)


def test_a_recording_survives_the_way_through_its_file(tmp_path):
    recording.write(tmp_path / "a.rec", a_recording())
    assert recording.read(tmp_path / "a.rec") == a_recording()


def test_a_recording_is_for_its_owner_alone_and_nothing_else_is_left(tmp_path):
    recording.write(tmp_path / "a.rec", a_recording())
    assert stat.S_IMODE((tmp_path / "a.rec").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.rec"]


def test_every_flipped_byte_of_a_recording_is_detected(tmp_path):
    path = tmp_path / "a.rec"
    recording.write(path, a_recording())
    whole = path.read_bytes()
    for position in range(0, len(whole) - 1, 3):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(RecordingError, match=r"a\.rec"):
            recording.parse(bytes(damaged), "a.rec")


@pytest.mark.parametrize("part", [0.2, 0.6, 0.95])
def test_a_recording_that_was_cut_off_is_detected(tmp_path, part):
    path = tmp_path / "a.rec"
    recording.write(path, a_recording())
    whole = path.read_bytes()
    with pytest.raises(RecordingError):
        recording.parse(whole[: int(len(whole) * part)], "a.rec")


def test_a_recording_of_a_newer_vbstudy_is_told_from_a_damaged_one(tmp_path):
    path = tmp_path / "a.rec"
    recording.write(path, a_recording())
    first, rest = path.read_text().split("\n", 1)
    newer = json.dumps(json.loads(first) | {"version": recording.VERSION + 1})
    with pytest.raises(NewerRecordingError, match="upgrade vbstudy"):
        recording.parse(f"{newer}\n{rest}".encode(), "a.rec")


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail_in_another_way(data):
    with pytest.raises(RecordingError):
        recording.parse(data, "a.rec")
    with pytest.raises(RecordingError):
        recording.parse(b'{"format": "vbstudy-recording"}\n' + data, "a.rec")


@given(st.lists(draws, max_size=8))
def test_draws_survive_the_way_through_the_folder_in_their_order(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("folder")
    streams.prepare(folder, drawn)
    found = streams.collect(folder)
    for name in {draw.stream for draw in drawn}:
        assert [d for d in found if d.stream == name] == [d for d in drawn if d.stream == name]
    assert len(found) == len(drawn)


def test_an_event_that_a_killed_process_cut_off_is_left_out(tmp_path):
    streams.prepare(tmp_path, [a_draw(), a_draw(b"last")])
    path = tmp_path / "streams" / "main,main"
    path.write_bytes(path.read_bytes()[:-1])
    assert streams.collect(tmp_path) == (a_draw(),)


def test_what_was_not_asked_for_is_left_over_unless_its_process_never_ran(tmp_path):
    streams.prepare(tmp_path, [a_draw(), a_draw(b"left"), a_draw(stream="helper.1,main")])
    first = streams.EVENT.size + len("libc.so:f") + len(b"random")
    (tmp_path / "streams" / "main,main.used").write_bytes(first.to_bytes(8, "little"))
    assert streams.left_over(tmp_path) == {"main,main": [a_draw(b"left")]}
    assert streams.never_ran(tmp_path) == ["helper.1"]


@pytest.mark.parametrize("process", ["main", "py-main"])
def test_what_the_program_itself_did_not_ask_for_is_left_over_though_it_asked_for_nothing(tmp_path, process):
    streams.prepare(tmp_path, [a_draw(stream=f"{process},main")])
    assert streams.left_over(tmp_path) == {f"{process},main": [a_draw(stream=f"{process},main")]}


def test_a_stream_cannot_lead_out_of_the_folder(tmp_path):
    with pytest.raises(RecordingError, match="cannot be replayed"):
        streams.prepare(tmp_path, [a_draw(stream="../../evil")])
