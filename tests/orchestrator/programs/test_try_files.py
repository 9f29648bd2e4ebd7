import gzip
import hashlib
import json
import math
import pickle
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.programs import folders
from orchestrator.programs.try_files import Role, numbers, read, role_of
from tests.guest.projects import test_events


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("out/model.pt", Role.WEIGHTS),
        ("m.weights.h5", Role.WEIGHTS),
        ("old.pkl", Role.WEIGHTS),
        ("test_logits.npy", Role.PREDICTIONS),
        ("submission.csv", Role.PREDICTIONS),
        ("history.csv", Role.OTHER),
        ("features.npy", Role.OTHER),
        ("checkpoint.npz", Role.WEIGHTS),
        ("checkpoint-10/optimizer.pt", Role.OTHER),
        ("training_args.bin", Role.OTHER),
        ("plot.png", Role.OTHER),
    ],
)
def test_files_are_known_by_their_names(name, role):
    assert role_of(name) is role


def test_arrays_of_any_name_are_compared_as_arrays(tmp_path):
    for i in (1, 2):
        np.savez(tmp_path / f"{i}.npz", a=np.arange(3.0))
    one, other = (read(tmp_path / f"{i}.npz", Role.OTHER) for i in (1, 2))
    assert one == other
    assert (one.parsed, one.count) == (True, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("id,label\n101,3\n102,5\n", "id,label\n101,3\n102,6\n"),
        ("id,label\na.png,3\nb.png,5\n", "id,label\na.png,3\nb.png,6\n"),
        ("id,p0,p1\n101,0.1,0.9\n102,0.2,0.8\n", "id,p0,p1\n101,0.1,0.9\n102,0.8,0.2\n"),
        ("y_true,y_pred\n1,0\n1,0\n2,0\n", "y_true,y_pred\n1,1\n1,0\n2,0\n"),
        ("label,sure\n2,0.5\n2,0.25\n", "label,sure\n1,0.5\n2,0.25\n"),
    ],
)
def test_the_classes_of_a_table_are_not_its_identifiers(tmp_path, one, other):
    found = []
    for text in (one, other):
        (tmp_path / "submission.csv").write_text(text)
        found.append(read(tmp_path / "submission.csv", Role.PREDICTIONS))
    assert found[0].parsed
    assert (found[0].classes or found[0].digest) != (found[1].classes or found[1].digest)


def test_all_arrays_of_predictions_are_compared_and_no_metadata_of_their_file(tmp_path):
    logits = np.eye(4, dtype=np.float32)
    found = []
    for save, value in ((np.savez, 0.0), (np.savez_compressed, 0.0), (np.savez, 0.5)):
        save(tmp_path / "logits.npz", logits=logits, embedding=np.full(3, value))
        found.append(read(tmp_path / "logits.npz", Role.PREDICTIONS))
    assert found[0] == found[1]
    assert found[0].classes == found[2].classes
    assert found[0].digest != found[2].digest


def test_all_tensors_of_a_checkpoint_are_compared(tmp_path):
    torch = pytest.importorskip("torch")
    found = []
    for value in (1.0, 2.0):
        tensors = {"w": torch.ones(3)}
        torch.save({"model": tensors, "ema": {"w": torch.ones(3) * value}}, tmp_path / "last.pt")
        found.append(read(tmp_path / "last.pt", Role.WEIGHTS))
    assert found[0].digest != found[1].digest
    assert found[0].count == 2


def test_a_pickle_is_compared_by_its_bytes_with_a_caveat_and_never_loaded(tmp_path):
    (tmp_path / "model.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    seen = read(tmp_path / "model.pkl", Role.WEIGHTS)
    assert not seen.parsed
    assert "is a pickle, which is never loaded; compared byte for byte" in seen.caveat


def test_the_thread_count_in_a_model_of_lightgbm_is_no_difference(tmp_path):
    found = []
    for threads, value in ((1, 5), (2, 5), (2, 6)):
        path = tmp_path / "model.txt"
        path.write_text(f"tree\nversion=v4\nleaf_value={value}\n[num_threads: {threads}]\n")
        found.append(read(path, Role.OTHER))
    assert found[0].digest == found[1].digest != found[2].digest
    assert found[0].caveat == "byte for byte, but for its num_threads"


class Model:
    """As scikit-learn's KMeans."""

    def __init__(self, threads: int, value: float) -> None:
        self._n_threads, self.value = threads, value


@pytest.mark.needs("studies")
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("compress", [bytes, zlib.compress, gzip.compress])
def test_the_thread_count_in_a_pickle_is_no_difference(tmp_path, protocol, compress):
    found = []
    # Joblib writes arrays between the parts of a pickle; the last ones lie where two pieces meet.
    for before in (b"", b"\n\0" * 7, bytes((1 << 20) - 60), bytes((1 << 20) - 70)):
        for threads, value in ((1, 0.5), (10, 0.5), (10, 0.25)):
            path = tmp_path / "model.joblib"
            path.write_bytes(compress(before + pickle.dumps(Model(threads, value), protocol)))
            found.append(read(path, Role.WEIGHTS))
        assert found[-3].digest == found[-2].digest != found[-1].digest
        assert "compared byte for byte, but for its _n_threads" in found[-1].caveat


@pytest.mark.parametrize(
    "broken", [lambda data: data[:-3], lambda data: data + data, lambda data: data + b"x"]
)
@pytest.mark.parametrize("compress", [zlib.compress, gzip.compress])
def test_what_is_no_single_compressed_stream_is_compared_by_its_bytes(tmp_path, compress, broken):
    path = tmp_path / "model.pkl"
    path.write_bytes(broken(compress(b"content")))
    assert read(path, Role.WEIGHTS).digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_damaged_archive_is_compared_by_its_bytes(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", "text " * 100)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[40] ^= 255
    (tmp_path / "a.zip").write_bytes(data)
    assert read(tmp_path / "a.zip", Role.OTHER).caveat == "byte for byte"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("m.json", '{"eval": {"loss": 0.250}, "ok": true, "s": "7"}', {"eval.loss": ("0.250",)}),
        ("t.json", '{"log": [{"loss": 2, "lr": 1e-3}, {"loss": 1}]}', {"log.loss": ("2", "1"),
                                                                    "log.lr": ("1e-3",)}),
        ("l.jsonl", '{"a": 1}\n\n{"a": 2}\n', {"a": ("1", "2")}),
        ("h.csv", "epoch,loss\n1,0.5\n2,0.25\n", {"epoch": ("1", "2"), "loss": ("0.5", "0.25")}),
        ("c.csv", "# results\n0,0.5\n", {"# results": ("0",), "column 2": ("0.5",)}),
        ("n.csv", "1,2\n3,x\n", {"column 1": ("1", "3"), "column 2": ("2",)}),
        ("e.csv", "", {}),
        ("bad.json", '{"a": ', {}),
        ("deep.json", "[" * 100_000, {}),
        ("long.json", "9" * 5000, {}),
        ("nan.json", '{"a": NaN}', {"a": ("nan",)}),
    ],
)  # fmt: skip
def test_numbers_are_read_from_files_as_they_are_written(tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    assert numbers(tmp_path / name)[0] == found


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("labels.csv", "row,label\n0,cat\n1,dog\n", "row,label\n0,dog\n1,cat\n"),
        ("gaps.csv", "a,b\n1,\n,2\n1,2\n", "a,b\n,2\n1,\n1,2\n"),
        ("labels.json", '{"labels": ["cat", "dog"], "n": 9}', '{"labels": ["dog", "cat"], "n": 9}'),
        ("flags.jsonl", '{"n": 1, "right": true}', '{"n": 1, "right": false}'),
    ],
)
def test_text_beside_numbers_is_compared(tmp_path, name, one, other):
    found = []
    for text in (one, other):
        (tmp_path / name).write_text(text)
        found.append(numbers(tmp_path / name))
    assert found[0][0] == found[1][0]
    assert found[0][1].digest != found[1][1].digest


def test_times_and_numbers_are_no_text(tmp_path):
    found = []
    for value in (1, 2):
        (tmp_path / "a.jsonl").write_text(f'{{"at": "2026-11-27T12:00:0{value}", "seconds": {value}}}')
        found.append(numbers(tmp_path / "a.jsonl")[1])
    assert found[0] == found[1] is not None
    (tmp_path / "b.json").write_text('{"a": [1, 2.5]}')
    assert numbers(tmp_path / "b.json")[1] is None


def test_numbers_are_read_from_tensorboard(tmp_path):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(bytes.fromhex(test_events.TENSORFLOW))
    assert numbers(path)[0] == {"acc": ("0.25", "0.5", "0.75")}


@given(st.dictionaries(st.text(st.characters(exclude_characters=".")), st.floats()))
@example({"": 0.5, "value": 0.25})  # what has no name is called so, too
def test_every_number_of_an_object_is_found(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("numbers") / "x.json"
    path.write_text(json.dumps(values))
    expected: dict[str, list[float]] = {}
    for name, value in values.items():
        expected.setdefault(name or "value", []).append(value)
    found = {name: list(map(float, written)) for name, written in numbers(path)[0].items()}
    assert found.keys() == expected.keys()
    for name, several in found.items():
        assert several == pytest.approx(expected[name], nan_ok=True, abs=math.ulp(0))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Nov23_16-34-48_host/events.out.tfevents.1700000000.host.1.0", "*_host/events.out.tfevents.*"),
        ("out/2026-11-23_16-34-48/m.pt", "out/*/m.pt"),
        ("outputs/2026-11-23/16-34-48/m.npz", "outputs/*/m.npz"),
        ("20261123/1634480.csv", "*/1634480.csv"),
        ("model-1700000000.pt", "model-*.pt"),
        ("model_00012345.pt", "model_00012345.pt"),
        ("version_0/metrics.csv", "version_0/metrics.csv"),
    ],
)  # fmt: skip
def test_files_are_the_same_ones_when_their_names_hold_times(tmp_path, name, known):
    before = folders.stamps(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    assert folders.written(tmp_path, before) == {known: tmp_path / name}


def test_only_new_and_changed_files_are_compared_and_no_leavings(tmp_path):
    for name in ("data.bin", "changed.txt", ".git/x", "__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before")
    before = folders.stamps(tmp_path)
    for name in ("changed.txt", ".git/y", "new/20261123.txt", "new/20261124.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("afterwards")
    assert list(folders.written(tmp_path, before)) == ["changed.txt", "new/*.txt", "new/*.txt (2)"]
