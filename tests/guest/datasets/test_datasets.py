from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import http.server
import importlib.resources
import io
import os
import pickle
import socketserver
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from guest.datasets import datafiles, datasets
from guest.datasets.catalogue import SourceFile
from guest.datasets.datasets import DATASETS, DatasetError, DatasetInfo
from tests.orchestrator.test_files import binds, bound

TEXTS_SHA256 = {
    "headlines": "ecb06b7f73658d636ae685883275e03481ccd970b4c54d0bd579b0f50260a57f",
    "stories": "773b6d70642f8e461909141c6c1aacff1ee51c6900de9fe32e2ecce7b0a37845",
}
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
EMBEDDED = [name for name, info in DATASETS.items() if info.embedded]


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VBSTUDY_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tiny_images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 28, 28), np.uint8), random.integers(0, 10, count).astype(np.uint8)


TRAIN, TEST = tiny_images(300, 1), tiny_images(40, 2)
CONTENTS = [idx(TRAIN[0]), idx(TRAIN[1]), idx(TEST[0]), idx(TEST[1])]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> DatasetInfo:
    """MNIST with 300 training and 40 test images, from an address where nobody answers."""
    files = []
    for source, content in zip(DATASETS["mnist"].files, CONTENTS, strict=True):
        packed = gzip.compress(content, mtime=0)
        files.append(
            dataclasses.replace(
                source,
                urls=("http://127.0.0.1:9/nobody",),
                size_bytes=len(packed),
                sha256=sha256(packed),
                contents={next(iter(source.contents)): sha256(content)},
            )
        )
    info = dataclasses.replace(DATASETS["mnist"], files=tuple(files))
    monkeypatch.setitem(DATASETS, "mnist", info)
    return info


def write_packed(folder: Path) -> None:
    for source, content in zip(DATASETS["mnist"].files, CONTENTS, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / source.name).write_bytes(gzip.compress(content, mtime=0))


def rows(split: datasets.Split) -> set[bytes]:
    return {row.tobytes() for row in split.x}


# What the sets are


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_have_the_shapes_they_announce(name: str) -> None:
    data = datasets.load(name)
    assert (len(data.train.y), len(data.test.y)) == data.info.samples
    for part in (data.train, data.validation, data.test):
        assert part.x.shape[1:] == data.info.shape
        assert part.x.dtype == (np.float32 if data.info.kind == "image" else np.int32)
        assert part.y.dtype == np.int64
        assert set(np.unique(part.y)) == set(range(data.info.classes))
        if data.info.vocabulary:
            assert 0 <= part.x.min() < part.x.max() < data.info.vocabulary


def test_digits_are_those_of_scikit_learn() -> None:
    data = datasets.load("digits")
    original = load_digits()
    ours = np.concatenate([data.train.x, data.validation.x, data.test.x])
    pixels = np.round((ours[:, 3::3, 3::3, 0][:, :8, :8] * 0.3492 + 0.2237) * 16).astype(int)
    labels = np.concatenate([data.train.y, data.validation.y, data.test.y])
    as_set = sorted((label, *image.ravel()) for label, image in zip(labels, pixels, strict=True))
    assert as_set == sorted(
        (label, *image.ravel().astype(int))
        for label, image in zip(original.target, original.images, strict=True)
    )


def test_digits_are_centred_and_scaled() -> None:
    x = datasets.load("digits").train.x
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02


@pytest.mark.parametrize(("name", "expected"), TEXTS_SHA256.items())
def test_texts_stay_the_same_to_the_token(name: str, expected: str) -> None:
    x, y, _ = datasets._embedded(DATASETS[name])
    assert sha256(x.tobytes() + y.tobytes()) == expected


def test_texts_are_padded_in_front_only() -> None:
    x = datasets.load("headlines").train.x
    assert (x[:, -1] != 0).all()
    is_word = x != 0
    assert (is_word[:, 1:] >= is_word[:, :-1]).all()


def test_headline_classes_overlap() -> None:
    """A Bayes classifier of single words, fitted on the training part, is good but far from perfect."""
    data = datasets.load("headlines")
    counts = np.ones((2, data.info.vocabulary))
    for label in (0, 1):
        np.add.at(counts[label], data.train.x[data.train.y == label].ravel(), 1)
    odds = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    odds[0] = 0
    right = ((odds[data.test.x].sum(axis=1) > 0) == (data.test.y == 1)).mean()
    assert 0.75 < right < 0.93


def test_the_answer_of_a_story_is_the_last_place_of_the_one_asked_for() -> None:
    data = datasets.load("stories")
    packed = importlib.resources.files("guest.datasets").joinpath("data", "texts.npz")
    with packed.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        words = ("", *map(str, arrays["stories_words"]))
    for sample, answer in zip(data.test.x[:200], data.test.y[:200], strict=True):
        *sentences, question = ([words[i] for i in row if i] for row in sample)
        assert question[:2] == ["where", "is"]
        moves = [sentence for sentence in sentences if sentence and sentence[0] == question[2]]
        assert moves[-1][-1] == PLACES[answer]


# How they are split


@pytest.mark.parametrize("name", EMBEDDED)
def test_no_sample_lies_in_two_parts(name: str) -> None:
    data = datasets.load(name)
    train, validation, test = rows(data.train), rows(data.validation), rows(data.test)
    assert not train & validation
    assert not train & test
    assert not validation & test
    total = sum(len(part.y) for part in (data.train, data.validation, data.test))
    for part in (data.validation, data.test):
        assert abs(len(part.y) / total - 0.15) < 0.02


@given(st.permutations(range(300)))
def test_the_split_does_not_depend_on_the_order_of_the_file(order: list[int]) -> None:
    x, y = TRAIN[0], TRAIN[1].astype(np.int64)
    expected = [(x[part], y[part]) for part in datasets._split(x, y, 0)]
    shuffled_x, shuffled_y = x[order], y[order]
    for (x0, y0), part in zip(expected, datasets._split(shuffled_x, shuffled_y, 0), strict=True):
        assert np.array_equal(x0, shuffled_x[part])
        assert np.array_equal(y0, shuffled_y[part])


def test_equal_samples_fall_into_the_same_part() -> None:
    x = np.repeat(TRAIN[0][:50], 3, axis=0)
    parts = datasets._split(x, np.arange(150), 0)
    assert all(len(part) % 3 == 0 for part in parts)
    assert sum(map(len, parts)) == 150


def test_an_official_test_part_is_kept(tiny: DatasetInfo, tmp_path: Path) -> None:
    write_packed(tmp_path)
    data = datasets.load("mnist", [tmp_path])
    assert len(data.test.y) == 40
    assert len(data.train.y) + len(data.validation.y) == 300
    assert 15 <= len(data.validation.y) <= 45
    scaled = (TEST[0].astype(np.float64) / 255 - 0.1307) / 0.3081
    assert sorted(data.test.x.sum(axis=(1, 2, 3))) == pytest.approx(sorted(scaled.sum(axis=(1, 2))), rel=1e-4)
    assert sorted(data.test.y) == sorted(TEST[1])


def test_limits_take_the_first_samples_and_bound_validation() -> None:
    everything = datasets.load("digits")
    limited = datasets.load("digits", train_samples=100, test_samples=20)
    assert np.array_equal(limited.train.x, everything.train.x[:100])
    assert np.array_equal(limited.test.y, everything.test.y[:20])
    assert np.array_equal(limited.validation.y, everything.validation.y[:20])


@pytest.mark.parametrize(("limits", "message"), [
    ({"train_samples": 5000}, "digits has 1262 training samples; 5000 were asked for"),
    ({"test_samples": 0}, "ask for 1 to 268"),
])  # fmt: skip
def test_impossible_limits_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.load("digits", **limits)


# Where they are found


def test_an_unknown_name_gets_the_nearest_spelling() -> None:
    with pytest.raises(DatasetError, match="unknown data set 'fasion-mnist': did you mean 'fashion-mnist'"):
        datasets.load("fasion-mnist")
    with pytest.raises(DatasetError, match="there are digits, mnist"):
        datasets.info("xyzzy")


def test_a_set_that_is_nowhere_says_where_it_was_looked_for(tiny: DatasetInfo, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        datasets.load("mnist", [tmp_path])
    message = str(caught.value)
    assert "mnist was not found: no folder holds train-images-idx3-ubyte.gz" in message
    assert str(tmp_path / "MNIST" / "raw") in message
    assert "VBSTUDY_DATA" in message


@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw"])
def test_given_folders_and_their_usual_subfolders_are_searched(
    tiny: DatasetInfo, tmp_path: Path, below: str
) -> None:
    write_packed(tmp_path / below)
    assert datasets.find("mnist", [tmp_path / "empty", tmp_path]) == tmp_path / below


def test_a_set_without_subfolders_is_searched_in_a_folder_of_its_name(
    tiny: DatasetInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "letters", dataclasses.replace(tiny, name="letters", subfolders=()))
    with pytest.raises(DatasetError) as caught:
        datasets.load("letters", [tmp_path])
    assert f"  {tmp_path / 'letters'}\n" in str(caught.value)
    write_packed(tmp_path / "letters")
    assert datasets.find("letters", [tmp_path]) == datasets.download("letters", tmp_path)


def test_given_folders_come_before_the_environment_and_that_before_the_cache(
    tiny: DatasetInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("given", "named"):
        write_packed(tmp_path / folder)
    write_packed(datasets.default_folder() / "mnist")
    assert datasets.find("mnist") == datasets.default_folder() / "mnist"
    monkeypatch.setenv("VBSTUDY_DATA", f"{tmp_path / 'elsewhere'}{os.pathsep}{tmp_path / 'named'}")
    assert datasets.find("mnist") == tmp_path / "named"
    assert datasets.find("mnist", [tmp_path / "given"]) == tmp_path / "given"


def test_a_folder_that_misses_a_file_does_not_count(tiny: DatasetInfo, tmp_path: Path) -> None:
    write_packed(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert datasets.find("mnist", [tmp_path]) is None


# How their files are read


def test_unpacked_and_recompressed_files_load_alike(tiny: DatasetInfo, tmp_path: Path) -> None:
    write_packed(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for source, content in zip(tiny.files, CONTENTS, strict=True):
        (name,) = source.contents
        (tmp_path / "b" / name).write_bytes(content)
    (tmp_path / "b" / "train-images-idx3-ubyte").unlink()
    recompressed = gzip.compress(CONTENTS[0], compresslevel=1, mtime=1)
    (tmp_path / "b" / "train-images-idx3-ubyte.gz").write_bytes(recompressed)
    first, second = (datasets.load("mnist", [tmp_path / name]) for name in "ab")
    assert np.array_equal(first.train.x, second.train.x)


def test_files_of_another_set_hide_none_in_its_subfolder_and_are_not_called_damaged(
    tiny: DatasetInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mnist and fashion-mnist have files of the same names."""
    write_packed(tmp_path)
    with pytest.raises(DatasetError, match=r"ubyte.gz is of mnist: move .* into the subfolder mnist of your"):
        datasets.load("fashion-mnist", [tmp_path])
    fashion = dataclasses.replace(DATASETS["fashion-mnist"], files=tiny.files)
    monkeypatch.setitem(DATASETS, "fashion-mnist", fashion)
    write_packed(tmp_path / "fashion-mnist")
    assert datasets.find("fashion-mnist", [tmp_path]) == tmp_path / "fashion-mnist"


@pytest.mark.parametrize("damage", ["truncated", "other content", "not gzip"])
def test_a_damaged_file_is_named(tiny: DatasetInfo, tmp_path: Path, damage: str) -> None:
    write_packed(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    match damage:
        case "truncated":
            path.write_bytes(path.read_bytes()[:-9])
        case "other content":
            path.write_bytes(gzip.compress(idx(TRAIN[1][::-1])))
        case "not gzip":
            path.write_bytes(b"<html>")
    with pytest.raises(DatasetError, match=f"{path} is damaged"):
        datasets.load("mnist", [tmp_path])


LOAD = """
import sys
from guest.datasets import datasets
try:
    datasets.load(sys.argv[1], [sys.argv[2]])
except datasets.DatasetError as error:
    print(error)
"""


@binds
@pytest.mark.parametrize("kind", ["packed", "unpacked", "pickled"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, kind: str) -> None:
    info = DATASETS["cifar10" if kind == "pickled" else "mnist"]
    names = {
        "packed": [source.name for source in info.files],
        "unpacked": [name for source in info.files for name in source.contents],
        "pickled": [source.pickled for source in info.files],
    }[kind]
    for name in names:
        (tmp_path / name).touch(mode=0)
    message = bound(sys.executable, "-c", LOAD, info.name, str(tmp_path))
    assert message == f"{tmp_path / names[0]} cannot be read (Permission denied)\n"


@pytest.mark.parametrize("data", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\0", idx(TRAIN[1]) + b"x"])
def test_what_is_not_idx_is_refused(data: bytes) -> None:
    with pytest.raises(DatasetError, match="file is not an IDX file"):
        datafiles.read_idx(data, "file")


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_idx_or_refused(data: bytes) -> None:
    with contextlib.suppress(DatasetError):
        shape, raw = datafiles.read_idx(data, "file")
        assert int(np.prod(shape)) == len(raw)


# CIFAR


def cifar_batches(labels: int) -> dict[str, bytes]:
    """Two batches of 20 records in the binary layout: labels, then three planes of 1,024 pixels."""
    random = np.random.default_rng(labels)
    return {
        name: random.integers(0, 10, (20, labels + 3072), np.uint8).tobytes() for name in ("train", "test")
    }


def python2_pickle(keys: dict[bytes, list[int]], pixels: bytes) -> bytes:
    """A batch as Python 2 and numpy 1 wrote it: protocol 2, byte strings, one array of `uint8`."""

    def string(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def integer(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little")

    dtype = b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
    state = integer(1) + integer(len(pixels) // 3072) + integer(3072) + b"\x86" + dtype + b"\x89"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + string(b"b")
    items = string(b"data") + array + b"\x87R" + b"(" + state + string(pixels) + b"tb"
    for key, values in keys.items():
        items += string(key) + b"](" + b"".join(map(integer, values)) + b"e"
    return b"\x80\x02}(" + items + b"u."


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, bytes]]:
    info = DATASETS[request.param]
    batches = cifar_batches(1 if request.param == "cifar10" else 2)
    source = dataclasses.replace(
        info.files[0],
        contents={f"folder/{name}.bin": sha256(data) for name, data in batches.items()},
    )
    monkeypatch.setitem(DATASETS, request.param, dataclasses.replace(info, files=(source,)))
    return request.param, batches


def write_python_archive(
    folder: Path, name: str, batches: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {}
    for stem, data in batches.items():
        records = np.frombuffer(data, np.uint8).reshape(20, -1)
        labels = records[:, :-3072].T.tolist()
        keys = [b"labels"] if name == "cifar10" else [b"coarse_labels", b"fine_labels"]
        pixels = records[:, -3072:].tobytes()
        members[f"cifar-python/{stem}"] = python2_pickle(dict(zip(keys, labels, strict=True)), pixels)
    source = DATASETS[name].files[0]
    path = folder / source.pickled
    write_tar(path, members)
    known = dataclasses.replace(source, pickled_sha256=sha256(path.read_bytes()))
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], files=(known,)))


def test_cifar_is_read_from_archive_folder_and_python_archive_alike(
    cifar: tuple[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, batches = cifar
    for kind in ("archive", "folder", "python"):
        (tmp_path / kind).mkdir()
    members = {f"folder/{stem}.bin": data for stem, data in batches.items()}
    write_tar(tmp_path / "archive" / DATASETS[name].files[0].name, members)
    for stem, data in batches.items():
        (tmp_path / "folder" / f"{stem}.bin").write_bytes(data)
    write_python_archive(tmp_path / "python", name, batches, monkeypatch)
    before = {path.name for path in (tmp_path / "archive").iterdir()}

    loaded = [datasets.load(name, [tmp_path / kind]) for kind in ("archive", "folder", "python")]

    assert {path.name for path in (tmp_path / "archive").iterdir()} == before  # nothing is extracted
    record = np.frombuffer(batches["test"], np.uint8).reshape(20, -1)[0]
    red = (record[-3072] / 255 - loaded[0].info.mean[0]) / loaded[0].info.std[0]
    assert np.isclose(loaded[0].test.x[:, 0, 0, 0], red).any()
    assert len(loaded[0].test.y) == 20
    fine = np.frombuffer(batches["test"], np.uint8).reshape(20, -1)[:, -3073]
    assert sorted(loaded[0].test.y) == sorted(fine)
    for other in loaded[1:]:
        assert np.array_equal(other.train.x, loaded[0].train.x)
        assert np.array_equal(other.test.y, loaded[0].test.y)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("batch", [
    pickle.dumps(Evil(), 2),
    pickle.dumps({b"data": Evil()}, 4),
    b"cbuiltins\neval\n.",
    b"cnumpy\nload\n.",
    python2_pickle({}, bytes(3072)).replace(b"\x02\0\0\0u1", b"\x02\0\0\0O8"),
], ids=["call", "nested call", "eval", "numpy.load", "array of objects"])  # fmt: skip
def test_a_pickle_with_anything_but_plain_arrays_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match="archive is refused"):
        datafiles._unpickle(batch, Path("archive"))
    assert not list(tmp_path.iterdir())


def test_an_unknown_python_archive_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = DATASETS["cifar10"].files[0].pickled
    write_tar(tmp_path / name, {"cifar-10-batches-py/test_batch": pickle.dumps(Evil(), 2)})
    advice = r"delete it \(`vbstudy provision` then downloads cifar-10-binary.tar.gz\), or get it again"
    with pytest.raises(DatasetError, match=f"{name} is not the official archive.*; {advice}"):
        datasets.load("cifar10", [tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == [name]


# How they are fetched


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address on the loopback, and the folder behind it."""
    root = tmp_path / "served"
    root.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(root))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}", root
        running.shutdown()
        thread.join()


@pytest.fixture
def served(
    tiny: DatasetInfo, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[DatasetInfo, Path]:
    address, root = server
    files = tuple(dataclasses.replace(f, urls=(*f.urls, f"{address}/{f.name}")) for f in tiny.files)
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(tiny, files=files))
    write_packed(root)
    return DATASETS["mnist"], root


def test_download_tries_the_next_address_reports_progress_and_loads(
    served: tuple[DatasetInfo, Path], tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = datasets.download("mnist", tmp_path / "data", lambda *event: seen.append(event))
    assert folder == tmp_path / "data" / "mnist"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f.name for f in served[0].files)
    for source in served[0].files:
        assert (source.name, source.size_bytes, source.size_bytes) in seen
    assert len(datasets.load("mnist", [tmp_path / "data"]).test.y) == 40


def test_what_is_there_is_not_downloaded_again(served: tuple[DatasetInfo, Path], tmp_path: Path) -> None:
    datasets.download("mnist", tmp_path)
    seen: list[object] = []
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    datasets.download("mnist", tmp_path, lambda file, *_: seen.append(file))
    assert set(seen) == {"t10k-labels-idx1-ubyte.gz"}


@pytest.mark.parametrize(("change", "message"), [
    (lambda data: data[:-1] + b"\1", "SHA-256"),
    (lambda data: data + b"more", "more than the published"),
    (lambda data: data[:-5], "bytes arrived"),
    (lambda _: None, "HTTP Error 404"),
])  # fmt: skip
def test_a_wrong_download_is_refused_and_leaves_nothing(
    served: tuple[DatasetInfo, Path], tmp_path: Path, change: object, message: str
) -> None:
    path = served[1] / "train-images-idx3-ubyte.gz"
    changed = change(path.read_bytes())  # type: ignore[operator]
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz could not be downloaded") as caught:
        datasets.download("mnist", tmp_path / "data")
    assert message in str(caught.value)
    assert not list((tmp_path / "data" / "mnist").iterdir())


def test_what_killed_downloads_left_is_removed_unless_others_are_under_way(
    served: tuple[DatasetInfo, Path], tmp_path: Path
) -> None:
    folder, name = tmp_path / "mnist", "train-images-idx3-ubyte.gz"
    folder.mkdir()
    left, own = folder / f".{name}.1.part", folder / f".{name}.mine.part"
    left.touch()
    own.touch()
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    datasets.download("mnist", tmp_path)
    assert left.exists()
    os.close(other)
    (folder / name).unlink()
    datasets.download("mnist", tmp_path)
    assert (left.exists(), own.exists()) == (False, True)


def test_only_the_web_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    source = SourceFile(
        name="copy", urls=((tmp_path / "file").as_uri(),), size_bytes=1, sha256=sha256(b"x"), contents={}
    )
    with pytest.raises(DatasetError, match="only http and https"):
        datafiles.fetch(source, tmp_path)


def test_embedded_sets_are_not_downloaded() -> None:
    with pytest.raises(DatasetError, match="nothing to download"):
        datasets.download("digits")


# What importing costs


def test_importing_needs_neither_numpy_nor_the_network() -> None:
    code = (
        "import sys, guest.datasets.datasets, guest.workloads; "
        "sys.exit(str({'numpy', 'torch', 'tensorflow', 'keras', 'urllib.request'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "")


def test_loading_starts_no_thread() -> None:
    """It happens before a fork."""
    code = (
        "import os, guest.datasets.datasets as d; d.load('digits'); d.load('headlines'); d.load('stories'); "
        "raise SystemExit(len(os.listdir('/proc/self/task')))"
    )
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 1
