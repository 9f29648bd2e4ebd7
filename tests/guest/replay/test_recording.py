import dataclasses
import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records import bounded
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
    (tmp_path / "used" / "main,main").write_bytes(first.to_bytes(8, "little"))
    assert streams.left_over(tmp_path) == {"main,main": [a_draw(b"left")]}
    assert streams.never_ran(tmp_path) == ["helper.1"]


@pytest.mark.parametrize("process", ["main", "py-main"])
def test_what_the_program_itself_did_not_ask_for_is_left_over_though_it_asked_for_nothing(tmp_path, process):
    streams.prepare(tmp_path, [a_draw(stream=f"{process},main")])
    assert streams.left_over(tmp_path) == {f"{process},main": [a_draw(stream=f"{process},main")]}


def test_a_seed_that_the_program_set_by_itself_is_not_left_over_whoever_set_it(tmp_path):
    own, clock = (
        Draw(stream="py-main,a", kind="seed", site="random.seed at x.py:1", data=data)
        for data in (b"7", b"1795983031")
    )
    streams.prepare(tmp_path, [own, clock])
    assert set((tmp_path / "seeds").read_bytes().splitlines()) == {
        b"random.seed 7",
        b"random.seed 1795983031",
    }
    (tmp_path / "own" / "py-main-f1").write_bytes(b"random.seed 7\n")
    assert streams.left_over(tmp_path) == {"py-main,a": [clock]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"stream": "../../evil"}, "stream"),
        ({"stream": ".."}, "stream"),
        ({"stream": ""}, "stream"),
        ({"stream": "a\0b,main"}, "stream"),
        ({"stream": f"main,{'x' * 300}"}, "stream"),
        ({"site": "s" * 70_000}, "longer than 511 bytes"),
        ({"kind": "guess"}, "'guess' is none of getrandom"),
        ({"kind": "seed", "data": b"not json"}, "not a seed"),
        ({"kind": "seed", "data": b'{"hex": "0"}'}, "not a seed"),
    ],
)
def test_a_draw_that_no_process_made_is_refused_with_its_line(tmp_path, changed, told):
    draw = dataclasses.replace(a_draw(), **changed)
    recording.write(tmp_path / "a.rec", a_recording(a_draw(), draw))
    with pytest.raises(RecordingError, match=rf"a\.rec, line 3: is not a draw: .*{told}"):
        recording.read(tmp_path / "a.rec")


@pytest.mark.parametrize("seed", ["banana", "a\0b", "-1", "4294967296", "١"])
def test_a_hash_seed_that_python_refuses_is_refused_with_its_line(tmp_path, seed):
    made = a_recording()
    made = dataclasses.replace(made, header=dataclasses.replace(made.header, python_hash_seed=seed))
    recording.write(tmp_path / "a.rec", made)
    with pytest.raises(RecordingError, match=r"a\.rec, line 1: python_hash_seed .* is not 0 to 4294967295"):
        recording.read(tmp_path / "a.rec")


def test_a_recording_that_no_replay_reads_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "RECORDING", bounded.Limit(bytes=1 << 20))
    recording.write(tmp_path / "a.rec", a_recording(a_draw()))
    with pytest.raises(RecordingError, match="has 2 MiB, and replay accepts at most 1; record a"):
        recording.write(tmp_path / "b.rec", a_recording(a_draw(bytes(3 << 19))))
    assert [path.name for path in tmp_path.iterdir()] == ["a.rec"]
